"""Rows of the output: the schema, and Arrow columns from what a pipeline found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

from spacy_nested_ner.corpora.splits import id_of

if TYPE_CHECKING:
    import pyarrow as pa
    from spacy.tokens import Doc

SPAN = (("start", "int"), ("end", "int"), ("label", "string"), ("score", "float"))
DETAILS = (("text", "string"), ("depth", "int"))


@dataclass(frozen=True)
class Unusable:
    """Stands where a text should be; says why there is none."""

    problem: str


Text = Union[str, Unusable]


@dataclass(frozen=True)
class Row:
    """What was found in a text. spans: values in the order of `span_fields`; spans and n_tokens
    are None where there is an error."""

    spans: Optional[List[Tuple[Any, ...]]] = None
    n_tokens: Optional[int] = None
    error: Optional[str] = None


def import_arrow() -> Any:
    """pyarrow. Raises ImportError that says how to install it."""
    try:
        import pyarrow
    except ImportError as err:
        raise ImportError(
            "Annotating tables needs pyarrow: python -m pip install 'spacy_nested_ner[scale]'. "
            f"({err})"
        ) from err
    return pyarrow


def span_fields(details: bool) -> Tuple[Tuple[str, str], ...]:
    """Name and type, in Spark's words, of each field of a span."""
    return SPAN + DETAILS if details else SPAN


def ddl(details: bool) -> str:
    """The schema in Spark's words."""
    fields = ", ".join(f"{name}: {kind}" for name, kind in span_fields(details))
    return f"id string, spans array<struct<{fields}>>, n_tokens int, error string, model string"


def schema(details: bool) -> pa.Schema:
    """The schema of the output."""
    pa = import_arrow()
    return pa.schema(
        {
            "id": pa.string(),
            "spans": pa.list_(_span_type(details)),
            "n_tokens": pa.int32(),
            "error": pa.string(),
            "model": pa.string(),
        }
    )


def _span_type(details: bool) -> pa.DataType:
    pa = import_arrow()
    types = {"int": pa.int32(), "string": pa.string(), "float": pa.float32()}
    return pa.struct([(name, types[kind]) for name, kind in span_fields(details)])


def record_batch(
    ids: Sequence[Optional[str]], rows: Sequence[Row], model: str, details: bool
) -> pa.RecordBatch:
    """Rows as Arrow columns, in their order."""
    pa = import_arrow()
    offsets: List[Optional[int]] = []
    spans: List[Tuple[Any, ...]] = []
    for row in rows:
        offsets.append(None if row.spans is None else len(spans))
        spans += row.spans or []
    kind = _span_type(details)
    columns = list(zip(*spans)) or [()] * kind.num_fields
    fields = [pa.array(column, field.type) for column, field in zip(columns, kind)]
    values = pa.StructArray.from_arrays(fields, fields=list(kind))
    arrays = [
        pa.array(ids, pa.string()),
        pa.ListArray.from_arrays(pa.array([*offsets, len(spans)], pa.int32()), values),
        pa.array([row.n_tokens for row in rows], pa.int32()),
        pa.array([row.error for row in rows], pa.string()),
        pa.repeat(pa.scalar(model, pa.string()), len(rows)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(details))


def row_of(doc: Doc, spans_key: str, details: bool) -> Row:
    """The row of a doc, outer spans first.

    Raises ValueError if the doc has no spans of that key; names those that it has.
    """
    from spacy_nested_ner.tables import scored_spans

    spans: List[Tuple[Any, ...]] = [
        (span.start_char, span.end_char, span.label_, score)
        for span, score in scored_spans(doc, spans_key)
    ]
    return Row(_with_details(doc.text, spans) if details else spans, len(doc))


def _with_details(text: str, spans: List[Tuple[Any, ...]]) -> List[Tuple[Any, ...]]:
    """With text and depth: how many spans lie around it in the longest chain, itself included."""
    from spacy_nested_ner.corpora.statistics import nesting

    depth = nesting((start, end) for start, end, *_ in spans).depth
    return [(*span, text[span[0] : span[1]], depth[span[0], span[1]]) for span in spans]


def ids_of(column: pa.Array) -> List[Optional[str]]:
    """Ids as strings. Bytes that are not UTF-8 are written as \\xff.

    Raises ValueError for a column of anything but strings and numbers.
    """
    pa = import_arrow()
    if pa.types.is_floating(column.type):
        return [id_of(value) for value in column.to_pylist()]
    try:
        strings = column.cast(pa.string(), safe=False)  # also binary ones that are not UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"Ids must be strings or numbers, not {column.type}: {error}") from error
    return _decoded(strings, "backslashreplace")


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of that type holds texts; one of nulls may."""
    types = import_arrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    known = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(is_known(kind) for is_known in known)


def texts_of(column: pa.Array, name: str) -> List[Text]:
    """The texts of a column of that name, with what is not UTF-8 where `surrogateescape` puts
    it."""
    if not is_text(column.type):
        return [Unusable(f"{name!r} is {column.type}, not text")] * len(column)
    null = Unusable("there is no text: it is null")
    return [null if text is None else text for text in _decoded(column, "surrogateescape")]


def _decoded(column: pa.Array, errors: str) -> List[Optional[str]]:
    """Strings. errors: what becomes of bytes that are not UTF-8, as in `bytes.decode`."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:  # other systems write strings without looking into them
        values = column.cast(import_arrow().large_binary()).to_pylist()
        return [None if value is None else value.decode("utf8", errors) for value in values]
