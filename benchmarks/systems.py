"""What is measured: the systems of the package beside spaCy's spancat, with random weights or in a
trained pipeline, and the docs."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, List, Optional

import spacy
import typer
from spacy import util
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import fix_random_seed
from thinc.api import Config

from spacy_nested_ner.comparison.trainings import bare
from spacy_nested_ner.corpora.docbin import read_docs
from spacy_nested_ner.encoders.english_cnn import without_english
from spacy_nested_ner.settings import names_of
from spacy_nested_ner.systems import all_systems
from spacy_nested_ner.systems.mrc.questions import number_word

CONFIGS = Path(__file__).parents[1] / "configs"
NESTED = [system.factory for system in all_systems()]
SYSTEMS = [*NESTED, "spancat"]
# With these a system with random weights works on all that it looks at, more than a trained one.
UNFILTERED: Dict[str, Dict[str, Any]] = {
    "locate_and_label_ner": {"filter_threshold": 0.0},
}
# With these random weights find spans at some threshold; to them no word is a likely start.
FINDING: Dict[str, Dict[str, Any]] = {**UNFILTERED, "mrc_ner": {"boundary_threshold": 0.0}}

# spaCy's features of words beside the vectors of a transformer, as in docs/guide/encoders.md.
EMBED: Dict[str, Any] = {
    "@architectures": "spacy.MultiHashEmbed.v2",
    "width": 96,
    "attrs": ["NORM", "PREFIX", "SUFFIX", "SHAPE"],
    "rows": [2000, 1000, 1000, 1000],
    "include_static_vectors": False,
}


def known(names: Any) -> Any:
    """The name of a system, or a list of them; typer.BadParameter for one that is none."""
    given = [names] if isinstance(names, str) else names
    if unknown := set(given).difference(SYSTEMS):
        raise typer.BadParameter(f"No system is {unknown.pop()!r}: {', '.join(SYSTEMS)}.")
    return names


System = Annotated[str, typer.Option(help="Whose shipped config", callback=known)]
Systems = Annotated[List[str], typer.Option(help="Repeat for several", callback=known)]


def takes(factory: str, setting: str) -> bool:
    """Whether the model of a system has a setting."""
    found = (system.settings for system in all_systems() if system.factory == factory)
    return any(setting in names_of(settings) for settings in found)


def hashed_cnn() -> Dict[str, Any]:
    """A CNN that computes every word, for made-up docs of few words: `EnglishCNN` computes each of
    them once."""
    tok2vec: Dict[str, Any] = shipped_cnn("piqn_ner")["components"]["ner"]["model"]["tok2vec"]
    return tok2vec


def shipped_cnn(system: str, english_words: bool = False) -> Config:
    """The config of a system on a CNN from scratch; see `load_shipped`."""
    return load_shipped(f"{system.removesuffix('_ner')}_cnn", english_words)


def load_shipped(name: str, english_words: bool = False, pretrained: bool = False) -> Config:
    """A shipped config. Its CNN is pretrained, or reads English words, only if that is wanted,
    because most results are older than these."""
    config = util.load_config(CONFIGS / f"{name}.cfg")
    if not name.endswith("_cnn") or pretrained:
        return config
    tok2vec = config["components"]["ner"]["model"]["tok2vec"]
    if english_words:
        tok2vec["pretrained"] = False
    else:
        without_english(tok2vec)
    return config


def shipped_config(system: str, transformer: Optional[str]) -> Config:
    """The config on a transformer, or on a CNN from scratch without one; interpolated."""
    kind = "transformer" if transformer else "cnn"
    config = load_shipped(f"{system.removesuffix('_ner')}_{kind}")
    if transformer:
        config["paths"]["transformer"] = transformer
    return config.interpolate()


def shipped_optimizer(system: str, transformer: Optional[str]) -> Any:
    """The optimizer of that config."""
    settings = shipped_config(system, transformer)["training"]["optimizer"]
    return util.registry.resolve({"optimizer": settings})["optimizer"]


def use_transformer(config: Dict[str, Any], name: str, **settings: Any) -> None:
    """Which transformer a `*_transformer.cfg` reads, and further settings of it."""
    config["paths"]["transformer"] = name
    config["components"]["ner"]["model"]["tok2vec"].update(settings)


def use_vectors(config: Dict[str, Any], pipeline: str) -> None:
    """Let a shipped config for a CNN read static vectors, too."""
    config["paths"]["vectors"] = pipeline
    config["components"]["ner"]["model"]["tok2vec"]["pretrained_vectors"] = True


def add_embed(config: Dict[str, Any]) -> None:
    """Let a `*_transformer.cfg` read `EMBED` beside its transformer; mrc_ner, whose encoder reads
    questions, too, stays as it is."""
    model = config["components"]["ner"]["model"]
    if model["tok2vec"]["@architectures"] != "spacy_nested_ner.PairEncoder.v1":
        hybrid = {"@architectures": "spacy_nested_ner.HybridEncoder.v1", "embed": dict(EMBED)}
        model["tok2vec"] = {**hybrid, "tok2vec": model["tok2vec"]}


def untrained_system(
    system: str, docs: List[Doc], transformer: Optional[str] = None, **changes: Any
) -> Language:
    """A system of the shipped config with random weights, initialised on the docs, as component
    "ner". Nothing reaches its threshold of 1. Adversarial training, which doubles a step, only
    where it is among the changes.

    transformer: directory or hub name of the encoder; a CNN without it. changes: settings of the
    component that differ, those of its model under "model".
    """
    fix_random_seed(0)
    settings = shipped_config(system, transformer)["components"]["ner"]
    settings["model"].update(changes.pop("model", {}))
    settings.pop("adversarial", None)
    nlp = spacy.blank("en")
    config = {**settings, "threshold": 1.0, **changes}
    nlp.add_pipe(config.pop("factory"), name="ner", config=config)
    nlp.initialize(lambda: [Example(bare(nlp, doc), doc) for doc in docs])
    return nlp


def only_pipe(nlp: Language, kind: Callable[[str, Any], bool], wanted: str) -> Any:
    """The component of that kind, whatever its name.

    kind: says so of a component's factory and the component. wanted: what it is, for the error.

    Raises typer.BadParameter unless there is exactly one.
    """
    metas = {name: nlp.get_pipe_meta(name).factory for name in nlp.pipe_names}
    found = [name for name, factory in metas.items() if kind(factory, nlp.get_pipe(name))]
    if len(found) != 1:
        has = ", ".join(f"'{name}' ({factory})" for name, factory in metas.items()) or "none"
        raise typer.BadParameter(f"{len(found)} components are {wanted}; expected one of: {has}.")
    return nlp.get_pipe(found[0])


def read(nlp: Language, path: Path, limit: int) -> List[Doc]:
    """The first docs of a file; 0 for all."""
    return list(islice(read_docs(path, nlp.vocab), limit or None))


def check_number(wanted: int, docs: List[Doc], corpus: Path) -> None:
    """Raise typer.BadParameter if train has fewer docs than wanted."""
    if wanted > len(docs):
        has = f"{corpus / 'train.spacy'} has {len(docs)} docs"
        raise typer.BadParameter(f"{has}, not {wanted}.")


def questions_for(labels: List[str]) -> Dict[str, str]:
    """A question for each label, all of them different."""
    kinds = (number_word(i + 1) for i in range(len(labels)))
    return {
        label: f"Which things of kind {kind} are mentioned?" for label, kind in zip(labels, kinds)
    }
