"""The annotator: what every way to annotate many documents runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterable, Iterator, List, Optional, Union

from spacy_nested_ner.files import read_object
from spacy_nested_ner.scale.inputs import Pair, batched, checked, problem_of
from spacy_nested_ner.scale.pipelines import (
    LoadedPipeline,
    check_key,
    folder_of,
    hash_of,
    load,
    locate,
)
from spacy_nested_ner.scale.rows import (
    Row,
    Text,
    ddl,
    ids_of,
    import_arrow,
    record_batch,
    row_of,
    schema,
    texts_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from spacy.language import Language

ON_ERROR = ("column", "raise")


class Annotator:
    """Finds the entities of texts in Arrow tables. A row in is a row out, in the same order.

    It carries the name of the pipeline and the hash of its files, never weights: pickled it is
    small, and each process that uses it loads the pipeline once. Use it from several threads as you
    like; they take turns.

    The rows that it gives have the columns

    - `id` (string): of the row; numbers become strings
    - `spans` (list of structs): of each entity `start` and `end`, in Unicode code points and
        exclusive, `label`, `score` (float32), outer entities first. Empty where nothing was found,
        null where there is an error. With `details` also `text` and `depth`: how many entities lie
        around it in the longest chain, itself included
    - `n_tokens` (int32): null where there is an error
    - `error` (string): why the text has no spans: there is none, it is not UTF-8 or too long, the
        pipeline fails on it. Null for all other rows
    - `model` (string): name and version of the pipeline and the first digits of its hash
    """

    def __init__(
        self,
        model: Union[str, os.PathLike],
        *,
        text: str = "text",
        id: str = "id",
        spans_key: str = "sc",
        batch_size: int = 250,
        on_error: str = "column",
        details: bool = False,
        threads: int = 1,
        gpu_id: int = -1,
    ) -> None:
        """model: a folder, or the name of a package; it must be at the same place and of the same
            contents wherever the annotator is used.
        text, id: names of the columns that are read.
        spans_key: key of the entities in doc.spans.
        batch_size: texts that the pipeline is given at once, fewer where these have more than a
            million characters; their words are forgotten after them.
        on_error: "column" writes an error into its row, "raise" raises it.
        details: give text and depth of each entity, too.
        threads: of torch, in each process.
        gpu_id: the GPU, or -1 for the CPU.

        Raises ValueError if there is no such pipeline, or for settings that cannot be.
        """
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error is {on_error!r}; expected one of {', '.join(ON_ERROR)}.")
        if batch_size < 1 or threads < 1:
            raise ValueError("batch_size and threads must be at least 1.")
        self.model = locate(model)
        self.hash = hash_of(self.model)
        self.text = text
        self.id = id
        self.spans_key = spans_key
        self.batch_size = batch_size
        self.on_error = on_error
        self.details = details
        self.threads = threads
        self.gpu_id = gpu_id
        self.name = f"{_full_name(self.model)}@{self.hash[:12]}"

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that it gives."""
        return schema(self.details)

    @property
    def ddl(self) -> str:
        """The same schema in Spark's words."""
        return ddl(self.details)

    def load(self) -> LoadedPipeline:
        """Load the pipeline, unless this process has it.

        Raises ValueError if its files are not those that the annotator was made for, or if it
        writes no spans of the key.
        """
        import torch

        pipeline = load(self.model, self.hash, self.gpu_id)
        if pipeline.keys is not None:
            check_key(self.model, self.spans_key, pipeline.keys)
        torch.set_num_threads(self.threads)
        return pipeline

    def __call__(self, data: Union[pa.RecordBatch, pa.Table]) -> Union[pa.RecordBatch, pa.Table]:
        """Annotate a record batch or a table; gives one of the same kind.

        Raises ValueError if a column is missing, and as `load`; with on_error="raise" also for
        the first text that fails.
        """
        pa = import_arrow()
        batches = data.to_batches() if isinstance(data, pa.Table) else [data]
        found = pa.Table.from_batches(self.spark(batches), self.schema)
        if isinstance(data, pa.Table):
            return found
        whole = found.combine_chunks().to_batches()
        return whole[0] if whole else self._batch([], [])

    def spark(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For Spark: `df.mapInArrow(annotator.spark, annotator.ddl)`. Gives record batches of
        `batch_size` rows at most."""
        for batch in batches:
            for pairs in batched(self._pairs(batch), self.batch_size):
                yield self.annotate([name for name, _ in pairs], [text for _, text in pairs])

    def _pairs(self, batch: pa.RecordBatch) -> Iterator[Pair]:
        """Ids and texts. Few are unpacked at once: the batch may hold long ones."""
        for start in range(0, batch.num_rows, self.batch_size):
            part = batch.slice(start, self.batch_size)
            ids, texts = self._column(part, self.id), self._column(part, self.text)
            yield from zip(ids_of(ids), texts_of(texts, self.text))

    @property
    def actor(self) -> type:
        """For Ray: `dataset.map_batches(annotator.actor, batch_format="pyarrow", ...)`."""
        annotator = self

        class AnnotatorActor:
            """Loads the pipeline when it starts."""

            def __init__(self) -> None:
                annotator.load()

            def __call__(self, table: pa.Table) -> pa.Table:
                return annotator(table)

        return AnnotatorActor

    def annotate(self, ids: List[Optional[str]], texts: List[Text]) -> pa.RecordBatch:
        """Annotate texts that are one batch of the pipeline; see `__call__`."""
        pipeline = self.load()
        rows = [self._unusable(text, pipeline.max_length) for text in texts]
        usable = [text for text, row in zip(texts, rows) if row is None and isinstance(text, str)]
        if usable:
            with pipeline.zone(usable) as nlp:
                found = iter(self._rows(nlp, usable))
            rows = [next(found) if row is None else row for row in rows]
        return self._batch(ids, [row for row in rows if row is not None])

    def _batch(self, ids: List[Optional[str]], rows: List[Row]) -> pa.RecordBatch:
        if self.on_error == "raise":
            for name, row in zip(ids, rows):
                if row.error is not None:
                    raise ValueError(f"The text with the id {name!r}: {row.error}")
        return record_batch(ids, rows, self.name, self.details)

    def _unusable(self, text: Text, longest: int) -> Optional[Row]:
        problem = problem_of(checked(text), longest)
        return None if problem is None else Row(error=problem)

    def _rows(self, nlp: Language, texts: List[str]) -> List[Row]:
        """Texts that fail together are tried again in halves, so that each error gets into the row
        of its own text."""
        from spacy_nested_ner.pipeline.tokens import make_doc

        try:
            made = (make_doc(nlp, text) for text in texts)
            docs = list(nlp.pipe(made, batch_size=self.batch_size))
            if len(docs) != len(texts):
                raise ValueError("a component of the pipeline drops the doc")
            return [row_of(doc, self.spans_key, self.details) for doc in docs]
        except Exception as error:  # whatever a pipeline may raise
            if len(texts) == 1:
                return [Row(error=f"{type(error).__name__}: {error}")]
        middle = len(texts) // 2
        return self._rows(nlp, texts[:middle]) + self._rows(nlp, texts[middle:])

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name not in batch.schema.names:
            has = ", ".join(map(repr, batch.schema.names)) or "none"
            raise ValueError(
                f"The table has no column {name!r}. Its columns: {has}. Name the right ones: "
                "Annotator(..., text=..., id=...)"
            )
        return batch.column(name)


def _full_name(model: str) -> str:
    """Language, name and version of a pipeline, as its package is called."""
    metas = sorted(folder_of(model).glob("**/meta.json"), key=lambda path: len(path.parts))
    meta = read_object(metas[0]) if metas else {}
    parts = (meta.get("lang"), meta.get("name"), meta.get("version"))
    return "{}_{}-{}".format(*(part or "unknown" for part in parts))
