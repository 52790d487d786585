"""`nested-ner vectors`: what a pretrained encoder knows of words, for a CNN to read."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import sys
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
MARKER = "meta.json"  # of a pipeline
WordsOpt = Annotated[int, typer.Option(min=2, help="Number of words, the most frequent ones")]
WidthOpt = Annotated[int, typer.Option(min=1, help="Width of the vectors")]


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

    from spacy_nested_ner.encoders.pretrained import read_config
    from spacy_nested_ner.files import written_folder
    from spacy_nested_ner.training.vectors import VECTORS, add_vectors

    with failing("Cannot make vectors. Nothing was written."):
        check_replaced(output_path, MARKER, Path(encoder), texts_path / "texts")
        check_no_components(output_path)
        read_config(VECTORS, encoder)  # there may be many texts to read before it is loaded
        texts = file_texts(texts_path, text, output_path)
        use_gpu(gpu_id)
        nlp = blank_pipeline(lang)
        reading = UsableTexts()
        usable = tqdm(reading.usable(texts), unit=" texts", mininterval=1.0, disable=None)
        # The words of the texts stay in the vocab of the pipeline that reads them.
        counts = count_words(blank_pipeline(lang), usable)
        if not counts:
            raise ValueError(f"{texts_path} has no words. {reading.left_out()}".strip())
        frequent = [word for word, _ in counts.most_common(words)]
        with written_folder(output_path, marker=MARKER) as draft:
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
    n_vectors, n_dims = nlp.vocab.vectors.shape
    msg.good(
        f"{n_vectors:,} vectors of width {n_dims}. They cover {read / counts.total():.1%} of the "
        "words of the texts."
    )
    typer.echo(str(output_path.resolve()))


def check_no_components(path: Path) -> None:
    """Raises ValueError for a folder with a pipeline of components: a trained one would be lost."""
    from spacy_nested_ner.files import read_object

    if (path / MARKER).is_file() and read_object(path / MARKER).get("pipeline"):
        raise ValueError(f"{path} has a pipeline with components. Give another folder.")


def count_words(nlp: "Language", texts: Iterable[Tuple[str, str]]) -> "Counter[str]":
    """How often each token occurs in texts of any length, but for those of whitespace. texts:
    behind their ids."""
    from spacy_nested_ner.pipeline.tokens import make_doc
    from spacy_nested_ner.scale.inputs import batched
    from spacy_nested_ner.scale.pipelines import LoadedPipeline

    nlp.max_length = sys.maxsize  # a limit for parsers, and this is a tokenizer alone
    pipeline = LoadedPipeline(nlp)
    counts: Counter[str] = Counter()
    for batch in batched(texts, BATCH):
        batch_texts = [text for _, text in batch]
        with pipeline.zone(batch_texts):
            for each in batch_texts:
                counts.update(token.text for token in make_doc(nlp, each) if not token.is_space)
    return counts
