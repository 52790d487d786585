"""Write the records of a corpus as `.spacy` files, with a report of what they hold."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterable

from spacy.language import Language
from spacy.tokens import DocBin

from spacy_nested_ner.corpora.docbin import DocBinWriter
from spacy_nested_ner.corpora.docs import record_to_docs
from spacy_nested_ner.corpora.records import SPLITS, ReadOptions, Record
from spacy_nested_ner.corpora.statistics import MISALIGNED_EXAMPLE, SplitStatistics
from spacy_nested_ner.files import writable, written_together

REPORT = "report.json"


def convert_corpus(
    records: Iterable[Record],
    output_dir: Path,
    nlp: Language,
    spans_key: str = "sc",
    source: Dict[str, Any] | None = None,
    options: ReadOptions | None = None,
) -> Dict[str, SplitStatistics]:
    """Write `train.spacy`, `dev.spacy`, `test.spacy` and `report.json` into a folder.

    Nothing is written if the records stop with an error: files of an earlier run stay as they
    were. Docs wait on disk, not in memory, until their file is complete.

    records: from `read_corpus` or a reader. nlp: its tokenizer cuts the records that come without
    words. spans_key: where the entities go in `doc.spans`. source: put in the report as it is.
    options: those that the records were read with; they say how docs are cut and hold the errors
    that were skipped.

    Returns the statistics of each split, a split without records included.

    Raises ValueError if a record belongs to no split, and if a file would be replaced by an empty
    one.
    """
    options = options or ReadOptions()
    statistics = {split: SplitStatistics() for split in SPLITS}
    with ExitStack() as stack:
        bins = {split: stack.enter_context(DocBinWriter()) for split in SPLITS}
        for record in records:
            if record.split not in SPLITS:
                raise ValueError(
                    f"{record.doc_id}: the record belongs to no split. Read the corpus with "
                    "read_corpus, which splits it, or set record.split."
                )
            for doc, dropped in options.problems.stop(
                record_to_docs(record, nlp, spans_key, options)
            ):
                statistics[record.split].add(doc, spans_key, dropped)
                doc.user_data.pop(MISALIGNED_EXAMPLE, None)  # the report has it
                bins[record.split].add(doc)
        report = {
            **(source or {}),
            "spans_key": spans_key,
            "skipped_errors": options.problems.count,
            "first_skipped_errors": options.problems.messages,
            "splits": {split: counts.to_dict() for split, counts in statistics.items()},
        }
        _write(bins, report, output_dir)
    return statistics


def _docs_in(path: Path) -> int:
    try:
        return len(DocBin().from_disk(path))
    except Exception:  # there is none, or it is damaged
        return 0


def _write(bins: Dict[str, DocBinWriter], report: Dict[str, Any], output_dir: Path) -> None:
    targets = {split: output_dir / f"{split}.spacy" for split in bins}
    for split, target in targets.items():
        if not len(bins[split]) and (there := _docs_in(target)):
            raise ValueError(
                f"{target} holds {there} docs, and there are none for it now. Choose another "
                "folder, or remove that file."
            )
    with written_together([*targets.values(), output_dir / REPORT]) as drafts:
        for split, target in targets.items():
            bins[split].write(drafts[target])
        text = json.dumps(writable(report), indent=2, ensure_ascii=False) + "\n"
        drafts[output_dir / REPORT].write_text(text, encoding="utf8")
