"""Which config fits some data: the rules behind `nested-ner init`. docs/guide/training.md has them,
with the figures that they come from."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from spacy_nested_ner.systems import ADVERSARIAL_FROM_FEW, BEST_FIRST, System, get_system

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.vectors import Vectors
    from thinc.api import Config

CNN, LISTENER = "cnn", "listener"
SPANCAT = "spancat"
"""spaCy's own component for nested entities, as a yardstick."""
COMPONENT = "ner"  # in all shipped configs
ACCURACY, SPEED = "accuracy", "speed"  # what there is to optimize
ENGLISH_WORDS = "those of English words that come with the package"
# What few sentences are, see `ADVERSARIAL_FROM_FEW`.
FEW_SENTENCES = 500
# docs/tried.md has F1 for others.
PRETRAINED_RATE = 0.001
# Where passes over the data are many they gain nothing more.
FEWEST_STEPS, MOST_PASSES = 300, 60
TIMED_STEPS, TIMED_DOCS = 16, 200
# Of the time of a training, to time so many steps; no fewer than these are timed.
TIMING_SHARE, FEWEST_TIMED = 0.1, 4
# A step of more words takes gigabytes on a transformer: these are counted instead of docs.
LONG_STEP, WORDS_OF_STEP = 2_000, 1_000
# Words of a doc, from which a step over it takes gigabytes; docs/benchmarks.md has figures.
LONG_DOC, LONG_DOC_OF_TRANSFORMER = 20_000, 2_000
# Of the words: where fewer have a static vector, these are of other texts.
FEWEST_KNOWN = 0.5
# Each score on dev predicts it twice: to score it, and to choose the threshold that is saved.
PREDICTIONS = 2
# Of the time of a training, for scores on dev.
SCORING_SHARE = 0.2


@dataclass
class Recipe:
    """A config, and in words why it is as it is.

    batches: that the batcher makes of one pass over the training data. words: of these data.
    adversarial_steps: where there are fewer, adversarial training is left out. reasons: by subject.
    warnings: what deserves attention, entities that cannot be found first.
    """

    config: Config
    batches: int = 1
    words: int = 0
    adversarial_steps: int = 0
    reasons: Dict[str, str] = field(default_factory=dict)
    warnings: List[str] = field(default_factory=list)

    @property
    def training(self) -> Dict[str, Any]:
        """The section of that name."""
        return self.config["training"]

    def text(self) -> str:
        """The whole config, settings that are left at their defaults included."""
        return _pipeline(self.config).config.to_str()

    def set_steps(self, steps: int, note: str = "") -> None:
        """Set the length of the training; rates and scores on dev follow it."""
        self.training["max_steps"] = steps
        passes = steps / self.batches
        self.reasons["Training"] = f"{steps} steps, {passes:.1f} passes over the data{note}"

    def fit_time(self, minutes: float, gpu_id: int = -1) -> None:
        """Set the length of the training to a time on this machine, by running some of its steps.
        Adversarial training is left out where it leaves too few steps.

        Raises ValueError if the time is too short.
        """
        check_minutes(minutes)
        step, doc, docs = measure(self.config, gpu_id, 60 * minutes * TIMING_SHARE)
        scored = self.training["eval_frequency"]["evaluations"] * PREDICTIONS * doc
        dev_docs = min(docs, max(1, int(60 * minutes * SCORING_SHARE / scored)))
        steps = int((60 * minutes - dev_docs * scored) / step)
        component = self.config["components"][COMPONENT]
        if component.get("adversarial") and steps < self.adversarial_steps:
            component["adversarial"] = 0.0
            self.reasons["Encoder"] = transformer_in_words(self.config)
            return self.fit_time(minutes, gpu_id)
        note = f", {minutes:g} minutes at {step:.2g} s per step"
        if dev_docs < docs:
            self.config["corpora"]["dev"]["limit"] = dev_docs
            note += f", scored on the first {dev_docs} docs of dev"
        if steps < FEWEST_STEPS:
            least = math.ceil(FEWEST_STEPS * step / 6 / (1 - SCORING_SHARE)) / 10
            words = self.words // self.batches
            long = (
                f" A step reads {words:,} words: shorter docs, as `nested-ner convert --sentences "
                "rules` makes them, would make shorter steps."
            )
            raise ValueError(
                f"{minutes:g} minutes allow only {max(0, steps)} steps here. Give at least {least} "
                f"minutes, enough for {FEWEST_STEPS} steps.{long if words > LONG_STEP else ''}"
            )
        self.set_steps(steps, note)


def is_cnn(encoder: str) -> bool:
    """Whether it is the small CNN, alone or to be shared, not a pretrained transformer."""
    return encoder in (CNN, LISTENER)


def recipe_for(
    train_path: Path,
    dev_path: Path,
    encoder: str,
    spans_key: str,
    lang: str,
    optimize: Optional[str] = None,
    vectors: Optional[str] = None,
) -> Recipe:
    """Choose system, encoder and number of steps.

    encoder: `CNN`, `LISTENER`, or folder or hub name of a pretrained transformer. optimize:
    `ACCURACY`, `SPEED`, or None for what the number of sentences suggests. vectors: folder or
    package name of a pipeline with static vectors for a CNN; None for none.

    Raises ValueError if the data cannot be read or hold nothing to learn; ImportError if something
    is to be installed.
    """
    from spacy_nested_ner.cli.inspect import inspect

    known = None if vectors is None else known_words(vectors, encoder, train_path, lang)
    report = inspect(train_path, dev_path, spans_key, lang)
    if not report["dev"]["entities"]:
        raise ValueError(
            f"{dev_path} has no entities under spans key {spans_key!r}. Training needs a dev set "
            "with entities. Move about a tenth of the annotated docs there, at least one."
        )
    if not report["train"]["entities"]:
        raise ValueError(
            f"{train_path}: all entities are from 'nested-ner teach', and it is sure of none of "
            "them. Add gold data, or teach with a better pipeline."
        )
    check_learnable(report, lang)
    system, lost = choose_system(report["limits"])
    config = config_of(system.factory, train_path, dev_path, encoder, spans_key, lang)
    recipe = Recipe(config)
    recipe.reasons["System"] = f"{system.factory}, the best one in equal training time"
    recipe.reasons["Language"] = f"{lang}, that of the tokenizer; another with --lang"
    sentences, longest = sentences_and_longest(train_path, spans_key, lang)
    train = {**report["train"], "sentences": sentences}
    if optimize is None:
        optimize = goal_for(system.factory, encoder, train["sentences"])
        few = optimize is not None
        recipe.adversarial_steps = FEWEST_STEPS if few else recipe.training["max_steps"]
    words = use_words(config, encoder, lang, known)
    if not words and is_cnn(encoder) and sentences <= FEW_SENTENCES:
        words = "none; from few sentences a CNN learns more with `nested-ner vectors`"
    if words:
        recipe.reasons["Vectors"] = words
    fit_rate(config, sentences)
    recipe.reasons["Encoder"] = use_encoder(config, encoder, optimize)
    recipe.reasons["Data"] = described(train)
    recipe.words = train["tokens"]
    if batches := fit_batches(config, train):
        recipe.reasons["Batches"] = batches
    unknown = [] if known is None else known.warnings()
    recipe.warnings = [*lost, *unknown, *too_long(longest, encoder), *of_data(report)]
    recipe.batches = batches_of_a_pass(config)
    most = max(FEWEST_STEPS, MOST_PASSES * recipe.batches)
    recipe.set_steps(min(recipe.training["max_steps"], most))
    return recipe


def check_learnable(report: Mapping[str, Any], lang: str) -> None:
    """Raise ValueError for a split of which no entity can be learned. report: of `inspect`."""
    for split in ("train", "dev"):
        found = report[split]
        if 0 < found["entities"] <= sum(found["lost"].values()):
            raise ValueError(
                f"{report['data'][split]}: none of its {found['entities']} entities can be used "
                f"for training ({', '.join(found['lost'])}) with a pipeline of language {lang!r}. "
                "If the texts are in another language, set --lang. Otherwise see "
                "`nested-ner inspect`."
            )


def config_of(
    factory: str, train_path: Path, dev_path: Path, encoder: str, spans_key: str, lang: str
) -> Config:
    """The shipped config of a system or of `SPANCAT` for some data; see `use_encoder`."""
    from spacy.util import load_config

    from spacy_nested_ner.files import shipped

    kind = "cnn" if is_cnn(encoder) else "transformer"
    name = f"configs/{factory.removesuffix('_ner')}_{kind}.cfg"
    config = load_config(shipped(name, in_clone=name))
    config["paths"].update(train=_writable(str(train_path)), dev=_writable(str(dev_path)))
    config["nlp"]["lang"] = lang
    config["components"][COMPONENT]["spans_key"] = _writable(spans_key)
    if factory == SPANCAT:  # its scores are called by the key; spaCy would add those of "sc"
        own: Dict[str, Optional[float]] = {f"spans_sc_{part}": None for part in "fpr"}
        config["training"]["score_weights"] = {**own, f"spans_{spans_key}_f": 1.0}
    return config


def _writable(value: str) -> str:
    """Raises ValueError for what a config would not give back."""
    if "$" in value:
        raise ValueError(f"{value}: a config cannot hold a '$'. Use another name.")
    return value


def of_data(report: Mapping[str, Any]) -> List[str]:
    """The warnings of `inspect` that are of no single system."""
    factories = tuple(get_system(name).factory for name in BEST_FIRST)
    return [warning for warning in report["warnings"] if not warning.startswith(factories)]


def not_suggested(config: Mapping[str, Any], report: Mapping[str, Any]) -> int:
    """How many gold entities have a length that a config of `SPANCAT` does not suggest."""
    from spacy_nested_ner.evaluation.data.limits import config_components, limits

    (component,) = config_components(config)
    counts = report["train"]["entities_by_length"].items()
    return sum(
        count
        for limit in limits(component)
        for words, count in counts
        if limit.lengths is not None and not limit.lengths(int(words))
    )


def out_of_reach(factory: str, limits: List[Mapping[str, Any]]) -> int:
    """How many gold entities a system cannot find. limits: rows of `inspect`."""
    rows = [row for row in limits if row["factory"] == factory]
    return sum(row.get("entities_over", 0) for row in rows)


def choose_system(limits: List[Mapping[str, Any]]) -> Tuple[System, List[str]]:
    """The best system of those that can find the most gold entities, and what it cannot find.

    limits: rows of `inspect`.
    """
    systems = [get_system(name) for name in BEST_FIRST]
    counts = [out_of_reach(each.factory, limits) for each in systems]
    lost = min(counts)
    system = systems[counts.index(lost)]  # of equals the first
    words = f"{system.factory} cannot find {lost} entities of the training data"
    return system, [f"{words}; no other system misses fewer."] if lost else []


def sentences_and_longest(path: Path, spans_key: str, lang: str) -> Tuple[int, int]:
    """Sentences of annotated docs, by rule where the docs have no boundaries: to `inspect` such a
    doc is one sentence, and few long texts would be few data. And words of the longest doc."""
    from spacy_nested_ner.cli.pipelines import blank_pipeline
    from spacy_nested_ner.corpora.docbin import read_docs
    from spacy_nested_ner.pipeline.sentences import has_sentences, rule_sentences, set_sentences

    sentences = longest = 0
    for doc in read_docs(path, blank_pipeline(lang).vocab):
        if spans_key in doc.spans:
            cut = set_sentences if has_sentences(doc) else rule_sentences
            sentences += len(cut(doc))
            longest = max(longest, len(doc))
    return sentences, longest


def fit_batches(config: Config, train: Mapping[str, Any]) -> str:
    """Count words instead of docs where docs are long. Returns in words what it changed. train: of
    `inspect`."""
    batcher = config["training"]["batcher"]
    if batcher["@batchers"] != "spacy.batch_by_sequence.v1":
        return ""
    docs = batcher["size"]
    words = docs * train["tokens"] // train["documents"]
    if words <= LONG_STEP:
        return ""
    config["training"]["batcher"] = {
        "@batchers": "spacy.batch_by_words.v1",
        "size": WORDS_OF_STEP,
        "tolerance": 0.2,
        "discard_oversize": False,
    }
    return f"{WORDS_OF_STEP:,} words or one longer doc, because {docs} docs have {words:,} words"


def too_long(longest: int, encoder: str) -> List[str]:
    """A warning where the longest doc of the training data has so many words that a step over it
    takes much memory."""
    if longest <= (LONG_DOC if is_cnn(encoder) else LONG_DOC_OF_TRANSFORMER):
        return []
    return [
        f"The longest doc of the training data has {longest:,} words. A step reads whole docs, "
        "which takes much memory here: see 'Long documents' in docs/guide/corpora.md. "
        "`nested-ner convert --sentences rules` makes short docs."
    ]


def check_minutes(minutes: float) -> None:
    """Raise ValueError for what is no length of a training."""
    if not 0 < minutes < math.inf:
        raise ValueError(f"--minutes must be a number above 0, got {minutes:g}.")


def goal_for(factory: str, encoder: str, sentences: int) -> Optional[str]:
    """What to optimize where nobody says; None for what the shipped config has. sentences: of
    train, see `sentences_and_longest`."""
    if sentences > FEW_SENTENCES or is_cnn(encoder):
        return None
    gaining = [get_system(name).factory for name in ADVERSARIAL_FROM_FEW]
    return ACCURACY if factory in gaining else SPEED


class KnownWords(NamedTuple):
    """Which words of the training data have a static vector.

    name: of the pipeline with the vectors. shape: rows and width of these. share: of the words.
    """

    name: str
    shape: Tuple[int, int]
    share: float

    def in_words(self) -> str:
        """For whoever reads the config."""
        rows, width = self.shape
        return (
            f"{self.name}: {rows:,} of width {width}; they cover {self.share:.1%} of the words of "
            "the training data"
        )

    def warnings(self) -> List[str]:
        """One where most words have none."""
        if self.share >= FEWEST_KNOWN:
            return []
        return [
            f"{self.name} has no vector for {1 - self.share:.1%} of the words of the training "
            "data. Give `nested-ner vectors` texts such as these, the annotated ones included."
        ]


def load_vectors(name: str, encoder: str, lang: str) -> Vectors:
    """The static vectors of a pipeline. name: folder or package. encoder, lang: see `recipe_for`.

    Raises ValueError if there are none, if they are of another language, which spaCy does not take,
    or if the encoder is no CNN, which alone reads them.
    """
    from spacy_nested_ner.cli.pipelines import load_pipeline
    from spacy_nested_ner.encoders.word_features import vectors_width

    if not is_cnn(encoder):
        raise ValueError("--vectors applies only to a CNN. With a transformer, leave it out.")
    if not name:
        raise ValueError("--vectors is empty. Give a folder or a package, or leave it out.")
    nlp = load_pipeline(name)
    if not vectors_width(nlp.vocab):
        raise ValueError(
            f"{name} has no static vectors. `nested-ner vectors` and `spacy init vectors` make a "
            "pipeline that has some."
        )
    if nlp.lang != lang:
        raise ValueError(
            f"{name} has vectors for language {nlp.lang!r}, and the data are of {lang!r}. Set "
            "--lang here, or when you make the vectors."
        )
    return nlp.vocab.vectors


def known_words(name: str, encoder: str, train_path: Path, lang: str) -> KnownWords:
    """Look up the words that a pipeline learns from. name, encoder, errors: see `load_vectors`."""
    import torch
    from thinc.api import NumpyOps

    from spacy_nested_ner.cli.pipelines import blank_pipeline, read_examples
    from spacy_nested_ner.encoders.word_features import static_rows

    nlp, ops = blank_pipeline(lang), NumpyOps()
    nlp.vocab.vectors = vectors = load_vectors(name, encoder, lang)
    words = known = 0
    for doc in (eg.predicted for eg in read_examples(nlp, train_path)):
        is_word = [not token.is_space for token in doc]
        words += sum(is_word)
        has_vector = static_rows([doc], ops).any(dim=1)
        known += int(has_vector[torch.tensor(is_word)].sum())
    return KnownWords(name, vectors.shape, known / max(1, words))


def use_words(config: Config, encoder: str, lang: str, vectors: Optional[KnownWords]) -> str:
    """Choose what the CNN of a shipped config reads of words beside its own features; before
    `use_encoder`. Returns it in words; "" for nothing.

    encoder, lang: see `recipe_for`. vectors: static ones to read; None for those of English words,
    where they are for this language, or nothing.
    """
    from spacy_nested_ner.encoders.english_cnn import without_english

    if not is_cnn(encoder):
        return ""
    if vectors is None and lang == "en":
        return ENGLISH_WORDS
    without_english(
        config["components"][COMPONENT]["model"]["tok2vec"], static_vectors=vectors is not None
    )
    if vectors is None:
        return ""
    config["paths"]["vectors"] = _writable(vectors.name)
    return vectors.in_words()


def fit_rate(config: Config, sentences: int) -> None:
    """Let the pretrained CNN of a shipped config learn from few sentences at a rate at which it
    keeps more of what it knows; before `use_encoder`."""
    tok2vec = config["components"][COMPONENT]["model"]["tok2vec"]
    rate = config["training"]["optimizer"]["learn_rate"]
    if tok2vec.get("pretrained") and sentences <= FEW_SENTENCES and isinstance(rate, dict):
        rate["initial_rate"] = PRETRAINED_RATE


def use_encoder(config: Config, encoder: str, optimize: Optional[str] = None) -> str:
    """Put the encoder in place. Returns what it is, in words.

    Raises ValueError if there is no such transformer, or if there is nothing to optimize;
    ImportError if something is to be installed.
    """
    component = config["components"][COMPONENT]
    if not is_cnn(encoder):
        return _use_transformer(config, encoder, optimize)
    if optimize is not None:
        raise ValueError(
            "--optimize applies only to a pretrained transformer. For a CNN, leave it out."
        )
    shared = component["model"]["tok2vec"]
    how = "that knows English" if shared.get("pretrained") else "trained from scratch"
    kind = f"a small CNN {how}"
    if encoder == CNN:
        return f"{kind}: nothing to download"
    component["model"]["tok2vec"] = {
        "@architectures": "spacy.Tok2VecListener.v1",
        "width": shared["width"],
        "upstream": "*",
    }
    config["components"] = {
        "tok2vec": {"factory": "tok2vec", "model": shared},
        **config["components"],
    }
    config["nlp"]["pipeline"] = ["tok2vec", *config["nlp"]["pipeline"]]
    return f"{kind}, as component 'tok2vec', which other components can share"


def _use_transformer(config: Config, name: str, optimize: Optional[str]) -> str:
    from spacy_nested_ner.encoders.pretrained import read_config

    component = config["components"][COMPONENT]
    read_config(component["model"]["tok2vec"]["@architectures"], name)
    config["paths"]["transformer"] = _writable(name)
    if optimize is not None and component["factory"] != SPANCAT:
        component["adversarial"] = float(optimize == ACCURACY)
    return transformer_in_words(config)


def transformer_in_words(config: Config) -> str:
    """What the pretrained transformer of a config is, and how it learns."""
    name = config["paths"]["transformer"]
    how = "with" if config["components"][COMPONENT].get("adversarial") else "without"
    words = f"the pretrained transformer {name}, fine-tuned with its own learning rate"
    return f"{words}, {how} adversarial training"


def described(split: Mapping[str, Any]) -> str:
    """What `inspect` counted, in words. Sentences are those of `sentences_and_longest`."""
    return (
        f"{split['sentences']} sentences, {split['entities']} entities of up to "
        f"{split['max_length']} words, nested up to {split['max_depth']} deep"
    )


def _pipeline(config: Config) -> Language:
    from spacy.util import load_model_from_config

    return load_model_from_config(config, auto_fill=True)


def _resolved(nlp: Language) -> Tuple[Dict[str, Any], Any, Any]:
    """The training section with functions for names, and the readers of train and dev."""
    from spacy.schemas import ConfigSchemaTraining
    from spacy.util import registry, resolve_dot_names

    config = nlp.config.interpolate()
    training = registry.resolve(config["training"], schema=ConfigSchemaTraining)
    corpora = resolve_dot_names(config, [training["train_corpus"], training["dev_corpus"]])
    return (training, *corpora)


def batches_of_a_pass(config: Config) -> int:
    """Into how many batches the training data fall."""
    nlp = _pipeline(config)
    training, train, _ = _resolved(nlp)
    return max(1, sum(1 for _ in training["batcher"](list(train(nlp)))))


def measure(config: Config, gpu_id: int = -1, most: float = math.inf) -> Tuple[float, float, int]:
    """Seconds of a training step, seconds of predicting a doc of dev, and docs of dev.

    most: seconds for steps; `FEWEST_TIMED` are taken in any case.
    """
    import spacy
    from spacy.training.initialize import init_nlp
    from spacy.training.loop import create_train_batches, train_while_improving

    if gpu_id >= 0:
        spacy.require_gpu(gpu_id)
    nlp = init_nlp(config, use_gpu=gpu_id)
    training, train, dev = _resolved(nlp)
    steps = train_while_improving(
        nlp,
        training["optimizer"],
        create_train_batches(nlp, train, training["batcher"], 0),
        evaluate=lambda: (0.0, {}),
        dropout=training["dropout"],
        eval_frequency=TIMED_STEPS + 1,
        accumulate_gradient=training["accumulate_gradient"],
        patience=0,
        max_steps=0,
        exclude=[],
        annotating_components=[],
        before_update=None,
    )
    times: List[float] = []
    while len(times) < TIMED_STEPS and (len(times) < FEWEST_TIMED or sum(times) < most):
        times.append(_seconds(lambda: next(steps)))
    docs = list(dev(nlp))
    sample = docs[:TIMED_DOCS]
    nlp.evaluate(sample[:1])  # what the first prediction makes is made once
    seconds = _seconds(lambda: nlp.evaluate(sample)) / len(sample)
    # The first steps are slower: memory is taken, products of each shape are compiled.
    return statistics.mean(times[len(times) // 2 :]), seconds, len(docs)


def _seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
