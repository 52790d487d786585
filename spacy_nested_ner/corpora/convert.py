"""Write the records of a corpus as `.spacy` files, with a report of what they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterable

from spacy.language import Language
from spacy.tokens import DocBin

from spacy_nested_ner.corpora.docs import record_to_doc
from spacy_nested_ner.corpora.files import written_together
from spacy_nested_ner.corpora.records import SPLITS, Record
from spacy_nested_ner.corpora.statistics import SplitStatistics

REPORT = "report.json"


def convert_corpus(
    records: Iterable[Record],
    output_dir: Path,
    nlp: Language,
    spans_key: str = "sc",
    source: Dict[str, Any] | None = None,
) -> Dict[str, SplitStatistics]:
    """Write `train.spacy`, `dev.spacy`, `test.spacy` and `report.json` into a folder.

    Nothing is written if the records stop with an error: files of an earlier run stay as they
    were.

    records: from a reader. nlp: its tokenizer cuts the records that come without words.
    spans_key: where the entities go in `doc.spans`. source: put in the report as it is.

    Returns the statistics of each split, a split without records included.
    """
    statistics = {split: SplitStatistics() for split in SPLITS}
    bins = {split: DocBin(attrs=["SENT_START"], store_user_data=True) for split in SPLITS}
    for record in records:
        doc, dropped = record_to_doc(record, nlp, spans_key)
        statistics[record.split].add(doc, spans_key, dropped)
        bins[record.split].add(doc)
    splits = {split: counts.to_dict() for split, counts in statistics.items()}
    report = {**(source or {}), "spans_key": spans_key, "splits": splits}
    targets = [output_dir / f"{split}.spacy" for split in SPLITS]
    with written_together([*targets, output_dir / REPORT]) as drafts:
        for doc_bin, target in zip(bins.values(), targets):
            drafts[target].write_bytes(doc_bin.to_bytes())
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        drafts[output_dir / REPORT].write_text(text, encoding="utf8")
    return statistics
