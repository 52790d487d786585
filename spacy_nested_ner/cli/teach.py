"""`nested-ner teach`: training data that a large pipeline makes of raw text for a small one."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, List, Sequence

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import CodeOpt, GpuOpt, TextOpt, TextsArg, WithoutOpt
from spacy_nested_ner.cli.output import failing
from spacy_nested_ner.cli.pipelines import load_pipeline, use_gpu
from spacy_nested_ner.cli.texts import (
    TextReading,
    counted,
    file_texts,
    known_texts,
    spans_with_scores,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc

    from spacy_nested_ner.evaluation.scores.own_thresholds import ScoredComponent

TeacherArg = Annotated[
    str, typer.Argument(metavar="TEACHER", help="Folder or package name of a pipeline")
]
OutputArg = Annotated[Path, typer.Argument(metavar="OUTPUT", help="The .spacy file to write")]
SpansKeysOpt = Annotated[
    List[str],
    typer.Option(help="Key of the entities in doc.spans; repeat it for several components"),
]


def teach_cli(
    teacher: TeacherArg,
    texts_path: TextsArg,
    output_path: OutputArg,
    text: TextOpt = "text",
    spans_key: SpansKeysOpt = ["sc"],  # noqa: B006
    gpu_id: GpuOpt = -1,
    without: WithoutOpt = None,
    code: CodeOpt = None,
) -> None:
    """Annotate raw text with the entities that a trained pipeline finds, as training data for
    another pipeline, in addition to gold data.

    Each entity has a weight, how sure the teacher is of it: the components of this package learn
    from the entity in that share of their training steps.
    """
    from spacy_nested_ner.corpora.docbin import DocBinWriter
    from spacy_nested_ner.files import written_together
    from spacy_nested_ner.scale.pipelines import keep_few_shapes

    with failing("Cannot teach. Nothing was written."):
        if output_path.suffix != ".spacy":
            raise ValueError(f"{output_path} must be a .spacy file.")
        texts = file_texts(texts_path, text, output_path)
        _check_taught(output_path)
        known = known_texts(without or (), output_path)
        use_gpu(gpu_id)
        keep_few_shapes()
        reading = TextReading(load_pipeline(teacher), spans_key, known)
        with DocBinWriter() as writer:

            def add(doc: "Doc", _: str) -> int:
                writer.add(taught(doc, reading.components))
                return sum(len(doc.spans[each.spans_key]) for each in reading.components)

            found = list(reading.map(texts, add))  # entities of each text
            if not any(found):
                raise ValueError(
                    f"{teacher} finds nothing in {texts_path}. {reading.nothing_left()}"
                )
            with written_together([output_path]) as drafts:
                writer.write(drafts[output_path])
    reading.report()
    msg.good(f"Annotated {counted(len(found))} with {sum(found)} weighted entities:")
    typer.echo(str(output_path.resolve()))


def _check_taught(path: Path) -> None:
    """Raises ValueError if a file is there that is not from here: its annotation would be lost."""
    from spacy.vocab import Vocab

    from spacy_nested_ner.corpora.docbin import read_docs
    from spacy_nested_ner.pipeline.gold import WEIGHTS

    for doc in read_docs(path, Vocab()) if path.exists() else ():
        own = (
            # What a user has added is not marked as the others are.
            WEIGHTS in group.attrs and len({span.kb_id for span in group}) <= 1
            for group in doc.spans.values()
        )
        if doc.ents or not doc.spans or not all(own):
            raise ValueError(f"{path} exists, and not all is from 'teach'. Choose another name.")


def taught(doc: "Doc", components: "Sequence[ScoredComponent]") -> "Doc":
    """The tokens, sentences and entities of a doc, with the weights of the entities."""
    from spacy.tokens import Span, SpanGroup

    from spacy_nested_ner.evaluation.scores.raw_text import gold_doc
    from spacy_nested_ner.pipeline.gold import TAUGHT, WEIGHTS

    copy = gold_doc(doc.vocab, doc)
    for each in components:
        key, found = each.spans_key, spans_with_scores(doc, each)
        spans = [Span(copy, s.start, s.end, label=s.label_, kb_id=TAUGHT) for s, _ in found]
        weights = [_weight(score, each.middle) for _, score in found]
        copy.spans[key] = SpanGroup(copy, name=key, spans=spans, attrs={WEIGHTS: weights})
    return copy


def _weight(score: float, threshold: float) -> float:
    """Rounded, but `SURE` or more where the component finds the span, as it compares, and less
    elsewhere."""
    import numpy as np

    from spacy_nested_ner.evaluation.data.picking import stretched
    from spacy_nested_ner.pipeline.gold import SURE

    weight = round(stretched(score, threshold), 3)
    found = np.float32(score) >= np.float32(threshold)
    return max(weight, SURE) if found else min(weight, SURE - 0.001)
