"""Predictions beside gold: numbers and pictures."""
