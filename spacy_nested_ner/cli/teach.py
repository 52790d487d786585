"""`nested-ner teach`: training data that a large pipeline makes of raw text for a small one."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import CodeOpt, GpuOpt, SpansKeyOpt, TextOpt, TextsArg
from spacy_nested_ner.cli.output import failing
from spacy_nested_ner.cli.pipelines import load_pipeline, use_gpu
from spacy_nested_ner.cli.texts import TextReading, counted, file_texts, spans_with_scores

if TYPE_CHECKING:
    from spacy.tokens import Doc

    from spacy_nested_ner.evaluation.scores.own_thresholds import ScoredComponent

TeacherArg = Annotated[
    str, typer.Argument(metavar="TEACHER", help="Folder or package name of a pipeline")
]
OutputArg = Annotated[Path, typer.Argument(metavar="OUTPUT", help="The .spacy file to write")]


def teach_cli(
    teacher: TeacherArg,
    texts_path: TextsArg,
    output_path: OutputArg,
    text: TextOpt = "text",
    spans_key: SpansKeyOpt = "sc",
    gpu_id: GpuOpt = -1,
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
        use_gpu(gpu_id)
        keep_few_shapes()
        reading = TextReading(load_pipeline(teacher), spans_key)
        with DocBinWriter() as writer:

            def add(doc: "Doc", _: str, component: "ScoredComponent") -> int:
                writer.add(taught(doc, component))
                return len(doc.spans[component.spans_key])

            found = list(reading.map(texts, add))  # entities of each text
            if not any(found):
                raise ValueError(f"{teacher} finds nothing in {texts_path}. {reading.left_out()}")
            with written_together([output_path]) as drafts:
                writer.write(drafts[output_path])
    if reading.unusable:
        msg.warn(reading.left_out())
    msg.good(f"Annotated {counted(len(found))} with {sum(found)} weighted entities:")
    typer.echo(str(output_path.resolve()))


def taught(doc: "Doc", component: "ScoredComponent") -> "Doc":
    """The tokens, sentences and entities of a doc, with the weights of the entities."""
    from spacy.tokens import Span, SpanGroup

    from spacy_nested_ner.evaluation.data.picking import stretched
    from spacy_nested_ner.evaluation.scores.raw_text import gold_doc
    from spacy_nested_ner.pipeline.gold import TAUGHT, WEIGHTS

    copy = gold_doc(doc.vocab, doc)
    found = spans_with_scores(doc, component)
    spans = [Span(copy, span.start, span.end, label=span.label_, kb_id=TAUGHT) for span, _ in found]
    weights = [round(stretched(score, component.middle), 3) for _, score in found]
    copy.spans[component.spans_key] = SpanGroup(
        copy, name=component.spans_key, spans=spans, attrs={WEIGHTS: weights}
    )
    return copy
