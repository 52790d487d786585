"""Pipelines and gold data that the commands are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Dict, List, Optional, Sequence, Tuple

from spacy_nested_ner.cli.output import lacks_memory

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.training import Example


def check_arguments(
    models: Optional[Sequence[str]], data_path: Optional[Path], predictions: bool = False
) -> Path:
    """The path of the data. Nothing is loaded.

    predictions: a .spacy file of predictions may stand in the place of a pipeline.
    Raises ValueError if MODEL... or DATA is missing, does not come last, or is not there.
    """
    from spacy_nested_ner.corpora.docbin import check_data

    order = "Give the pipelines first, the gold data last: MODEL... DATA."
    if data_path is None:
        raise ValueError(f"MODEL and DATA are missing. {order}")
    if not models:
        if is_data(data_path):
            raise ValueError(f"MODEL is missing, there is only {data_path}. {order}")
        what = "a .spacy file or folder with gold annotation"
        raise ValueError(f"DATA is missing, {what}; there is only {data_path}. {order}")
    is_pipeline = (data_path / "config.cfg").is_file()
    is_name = not data_path.suffix and not data_path.exists()  # of a package
    for model in filter(is_data, map(Path, models)):
        if not predictions or is_pipeline or is_name:
            raise ValueError(
                f"{model} is gold data, but a pipeline is expected in its place. {order}"
            )
        check_data(model, "predictions")
    if is_pipeline:
        raise ValueError(
            f"{data_path} is a pipeline, but gold data is expected in its place. {order}"
        )
    check_data(data_path)
    return data_path


def short_names(models: Sequence[str], least: int = 1) -> List[str]:
    """Short names: the last parts of the paths that tell the pipelines apart, `least` at least."""
    parts = [Path(model).parts or (model,) for model in models]
    for size in range(least, max(least, *map(len, parts)) + 1):
        names = ["/".join(part[-size:]) for part in parts]
        if len(set(names)) == len(set(models)):
            break
    return names


def is_data(path: Path) -> bool:
    """Whether it is meant as a file of docs, be it there or not, or a folder with such files."""
    if path.is_dir():
        return not (path / "config.cfg").is_file() and any(path.glob("*.spacy"))
    return path.suffix == ".spacy"


def read_as_one(data_path: Path) -> List[str]:
    """A warning if it is a folder with several splits of a corpus."""
    from spacy_nested_ner.corpora import SPLITS
    from spacy_nested_ner.corpora.docbin import spacy_files

    found = {path.stem for path in spacy_files(data_path)}
    splits = [f"{split}.spacy" for split in SPLITS if split in found]
    if len(splits) < 2:
        return []
    return [
        f"{data_path} contains {', '.join(splits)}; all are read together. To use only one, give "
        "that file."
    ]


def not_gold(docs: Sequence[Doc], data_path: Path, keys: Collection[str]) -> List[str]:
    """A warning if spans under these keys are those of `nested-ner teach`."""
    from spacy_nested_ner.pipeline.gold import is_taught

    taught = sum(any(is_taught(doc.spans.get(key, ())) for key in keys) for doc in docs)
    return made_by_teach(taught, len(docs), data_path)


def made_by_teach(taught: int, docs: int, data_path: Path) -> List[str]:
    """`not_gold` of so many docs among so many."""
    if not taught:
        return []
    return [
        f"In {taught} of {docs} docs of {data_path} the spans were made by 'nested-ner "
        "teach': they are predictions of a pipeline, not gold annotation."
    ]


def use_gpu(gpu_id: int) -> None:
    """Run pipelines on the GPU of this number and say so, or for -1 on the CPU in silence.

    Raises ValueError for Apple's GPU, for one that is not there, and where torch sees none.
    """
    import torch
    from spacy.cli._util import setup_gpu

    from spacy_nested_ner.device import device_in_use

    if gpu_id > 0 and 0 < (count := torch.cuda.device_count()) <= gpu_id:
        raise ValueError(
            f"--gpu-id {gpu_id}: there are {count} GPUs, counted from 0 (of those that "
            "CUDA_VISIBLE_DEVICES names, if it is set)."
        )
    setup_gpu(gpu_id, silent=gpu_id < 0)
    try:
        device_in_use()
    except AssertionError as err:  # torch was built without CUDA
        raise ValueError(
            f"--gpu-id {gpu_id}: cupy sees a GPU, but torch does not: {err}. Install torch for "
            "CUDA, or leave out --gpu-id."
        ) from err


def load_pipeline(model: str) -> Language:
    """Load a pipeline from a folder or a package.

    Raises ValueError that names the folder if there is none, and the file that cannot be read.
    """
    import spacy

    from spacy_nested_ner.files import settle

    folder = Path(model)
    settle(folder.parent)
    is_pipeline = any((folder / name).exists() for name in ("config.cfg", "meta.json"))
    for path in folder.rglob("*") if is_pipeline else ():  # a named pipe would wait for ever
        if not path.is_file() and not path.is_dir():
            raise ValueError(f"{path} is not a file. {REMEDY}")
    try:
        return spacy.load(model)
    except OSError as err:
        if is_pipeline:
            raise ValueError(_what_fails(folder, err)) from err
        remedy = (
            "Give the folder that `spacy train` wrote, such as model-best, or install the package."
        )
        raise ValueError(f"{model}: no trained pipeline there. {remedy} ({err})") from err
    except Exception as err:  # spaCy's readers of JSON, msgpack and arrays raise what they like
        if lacks_memory(err):
            raise
        raise ValueError(_what_fails(folder, err)) from err


def installed_pipelines() -> List[str]:
    """Names of the installed packages that are pipelines with a component of this package.

    Raises ValueError, with the remedy, if there are none.
    """
    from importlib.metadata import entry_points

    from spacy.util import get_package_path, load_config
    from wasabi import msg

    from spacy_nested_ner.pipeline.factories import known_systems

    ours = known_systems()
    found = []
    # Not by spaCy's `get_installed_models`, which imports all of them at once.
    for name in sorted({each.name for each in entry_points(group="spacy_models")}):
        try:
            configs = [*map(load_config, get_package_path(name).glob("*/config.cfg"))]
        except Exception as err:  # another pipeline may do
            msg.warn(f"The installed pipeline {name!r} is left out: it is damaged. ({err})")
            continue
        parts = [part for config in configs for part in config.get("components", {}).values()]
        if any(part.get("factory") in ours for part in parts):
            found.append(name)
    if not found:
        raise ValueError(
            "MODEL is missing, and no pipeline with a component for nested entities is installed. "
            "Install one with pip, or train one with `spacy train` and give its folder, such as "
            "training/model-best."
        )
    return found


REMEDY = "Copy the pipeline again, or install the packages it was made with."
NOT_REGISTERED = (
    "Install the packages that the pipeline was made with, or give its Python file with --code."
)
# spaCy's errors for a factory and for a registered function that it cannot find.
UNKNOWN = re.compile(r"\[E(002|893)\]")


def _what_fails(folder: Path, error: Exception) -> str:
    """Name the file of a pipeline that cannot be read, or at least the pipeline."""
    place = _failing_file(folder) if folder.is_dir() else None
    text = str(error).strip() or type(error).__name__
    if place is None or place in text:
        return text if str(folder) in text else f"{folder}: the pipeline cannot be loaded: {text}"
    if UNKNOWN.search(text):
        problem = "names a component or function that is not registered"
        return f"{place} {problem}. {NOT_REGISTERED} The error was: {text}"
    return f"{place} cannot be read: {text} {REMEDY}"


def _failing_file(folder: Path) -> Optional[str]:
    """Load what spaCy loads, one file after the other, to see which of them fails."""
    import srsly
    from spacy.util import load_config, load_meta, load_model_from_config
    from spacy.vocab import Vocab

    vocab = folder / "vocab"
    vectors = [vocab / "vectors", vocab / "vectors.cfg", vocab / "key2row"]
    places = {
        "strings": vocab / "strings.json",
        "lookups": vocab / "lookups.bin",
        "vectors": " or ".join(map(str, vectors)),
    }
    place: Any = folder / "meta.json"
    try:
        load_meta(place)
        place = folder / "config.cfg"
        nlp = load_model_from_config(load_config(place))  # as spacy.load: nothing is filled in
        nlp.config.from_disk(place, interpolate=False)
        for place, read in zip(vectors[1:], (srsly.read_json, srsly.read_msgpack)):
            if place.exists():
                read(place).items()
        for part in places:
            place = places[part]
            Vocab().from_disk(vocab, exclude=[name for name in places if name != part])
        names = ["meta", "vocab", "tokenizer", *nlp.component_names]
        for name in names:
            place = folder / ("meta.json" if name == "meta" else name)
            nlp.from_disk(folder, exclude=["config", *(other for other in names if other != name)])
    except Exception:
        return str(place)
    return None


def blank_pipeline(lang: str, config: Optional[Dict[str, Any]] = None) -> Language:
    """A pipeline with the tokenizer of a language alone.

    Raises ValueError if spaCy has no such language, ImportError if something is to be installed.
    """
    import spacy

    try:
        return spacy.blank(lang, config=config or {})
    except (AttributeError, TypeError) as err:  # a module of spacy.lang that is no language
        raise ValueError(f"spaCy has no language {lang!r}. ({err})") from err


def read_gold(nlp: Language, data_path: Path) -> List[Doc]:
    """The docs of a file or folder, without empty ones.

    Raises ValueError, with the path, if the file is missing or is no DocBin.
    """
    from spacy_nested_ner.corpora.docbin import read_docs

    return [doc for doc in read_docs(data_path, nlp.vocab) if len(doc)]


def read_examples(nlp: Language, data_path: Path) -> List[Example]:
    """The docs of a file or folder, see `as_examples`.

    Raises ValueError as `read_gold` and `as_examples`.
    """
    return as_examples(nlp, read_gold(nlp, data_path), data_path)


def raw_examples(nlp: Language, docs: Sequence[Doc], data_path: Path) -> Tuple[List[Example], int]:
    """Examples from the raw text of each doc; of docs of which the words alone are known, on these.
    And how many such docs there are.

    Raises ValueError, with the path, for docs that the pipeline cannot take.
    """
    from spacy.training import Example

    from spacy_nested_ner.evaluation.scores.raw_text import raw_text
    from spacy_nested_ner.pipeline.tokens import make_doc

    texts = [raw_text(doc) for doc in docs]
    known = [(doc, text) for doc, text in zip(docs, texts) if text is not None]
    unknown = [doc for doc, text in zip(docs, texts) if text is None]
    try:
        from_text = iter([Example(make_doc(nlp, text), doc) for doc, text in known])
    except ValueError as err:
        raise ValueError(f"{data_path}: {err}") from err
    on_words = iter(as_examples(nlp, unknown, data_path))
    return [next(on_words if text is None else from_text) for text in texts], len(unknown)


def as_examples(nlp: Language, docs: Sequence[Doc], data_path: Path) -> List[Example]:
    """Examples as `spacy evaluate` makes them: with gold tokens only if spaces are unknown.

    Raises ValueError, with the path, for docs that the pipeline cannot take.
    """
    from spacy.training import Corpus

    try:
        return list(Corpus(data_path).make_examples(nlp, docs))
    except ValueError as err:
        raise ValueError(f"{data_path}: {err}") from err
