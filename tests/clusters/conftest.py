"""Tests in real Spark and Ray: `python -m pytest tests/clusters`, with nothing else beside them."""

from tests.scale.conftest import model

__all__ = ["model"]
