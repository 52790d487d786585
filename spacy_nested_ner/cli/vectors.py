"""`nested-ner vectors`: what a pretrained encoder knows of words, for a CNN to read."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Iterable, Tuple

import typer
from wasabi import msg

from spacy_nested_ner.cli.adapt import EncoderArg
from spacy_nested_ner.cli.options import GpuOpt, LangOpt, TextOpt, TextsArg
from spacy_nested_ner.cli.output import check_replaced, failing
from spacy_nested_ner.cli.pipelines import blank_pipeline, use_gpu
from spacy_nested_ner.cli.texts import BATCH, UsableTexts, file_texts

if TYPE_CHECKING:
    from spacy.language import Language

OutputArg = Annotated[
    Path, typer.Argument(metavar="OUTPUT", help="Folder for a pipeline that has the vectors")
]
WordsOpt = Annotated[int, typer.Option(min=1, help="The most frequent words: at most so many")]
WidthOpt = Annotated[int, typer.Option(min=1, help="Numbers in a vector")]


def vectors_cli(
    encoder: EncoderArg,
    texts_path: TextsArg,
    output_path: OutputArg,
    text: TextOpt = "text",
    words: WordsOpt = 50_000,
    width: WidthOpt = 128,
    lang: LangOpt = "en",
    gpu_id: GpuOpt = -1,
) -> None:
    """Let a pretrained transformer make static vectors of the words of raw text, for a CNN to read.

    Then give OUTPUT to `init --vectors`, `compare --vectors` or `--paths.vectors`.
    """
    from tqdm import tqdm

    from spacy_nested_ner.files import written_folder
    from spacy_nested_ner.training.vectors import add_vectors

    with failing("Cannot make vectors. Nothing was written."):
        check_replaced(output_path, "meta.json", Path(encoder), texts_path / "texts")
        texts = file_texts(texts_path, text, output_path)
        use_gpu(gpu_id)
        nlp = blank_pipeline(lang)
        reading = UsableTexts(nlp.max_length)
        usable = tqdm(reading.usable(texts), unit=" texts", mininterval=1.0, disable=None)
        counts = count_words(blank_pipeline(lang), usable)
        if not counts:
            raise ValueError(f"{texts_path} has no words. {reading.left_out()}".strip())
        frequent = [word for word, _ in counts.most_common(words)]
        with written_folder(output_path, marker="meta.json") as draft:
            add_vectors(
                nlp,
                encoder,
                frequent,
                width,
                lambda parts: tqdm(parts, unit=" parts", mininterval=1.0, disable=None),
            )
            nlp.to_disk(draft)
    if reading.unusable:
        msg.warn(reading.left_out())
    read = sum(counts[nlp.vocab.strings[key]] for key in nlp.vocab.vectors)
    n_words, n_numbers = nlp.vocab.vectors.shape
    msg.good(
        f"{n_words:,} words with a vector of {n_numbers} numbers. They are "
        f"{read / counts.total():.1%} of the words of the texts."
    )
    typer.echo(str(output_path.resolve()))


def count_words(nlp: "Language", texts: Iterable[Tuple[str, str]]) -> "Counter[str]":
    """How often each token occurs in the texts, but for those of whitespace. texts: behind their
    ids. The words stay in the vocab of the pipeline."""
    from spacy_nested_ner.scale.inputs import batched
    from spacy_nested_ner.scale.pipelines import LoadedPipeline

    pipeline = LoadedPipeline(nlp)
    counts: Counter[str] = Counter()
    for batch in batched(texts, BATCH):
        batch_texts = [text for _, text in batch]
        with pipeline.zone(batch_texts):
            for doc in map(nlp.make_doc, batch_texts):
                counts.update(token.text for token in doc if not token.is_space)
    return counts
