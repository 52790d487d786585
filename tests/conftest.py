"""What tests of every system share."""

import contextlib
import signal
import string
import sys
import time
import zipfile
from functools import partial, wraps
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterable, Iterator, List, Optional, Tuple

import hypothesis
import numpy as np
import pytest
import spacy
import torch
from spacy.lang.en import English
from spacy.language import Language
from spacy.ml.models import build_hash_embed_cnn_tok2vec
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed
from thinc.api import Adam, Model, get_current_ops
from thinc.types import Floats2d
from thinc.util import to_numpy

# Tests of torch alone: they make tensors wherever torch does by default. With all others that is
# left to the package.
TORCH_ALONE = ["layers", "test_matching.py"] + [
    f"systems/test_{name}.py"
    for name in ("diffusion", "locate_and_label", "mrc", "piqn", "proposer_regressor")
]
TORCH_ALONE.append("systems/test_head_contract.py")

ODD_NAMES = pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode")
IN_PROC = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")

# spaCy starts its processes by a fork.
NOT_FORKED = pytest.mark.no_gpu("CUDA cannot be used in a forked process")


# What cupy says of a call of Thinc's, on a GPU alone.
CUPY_WARNS = "This function is deprecated and will be removed"


def but_cupys(caught: Iterable[Any]) -> List[Any]:
    """The warnings that `pytest.warns` has caught, without those of cupy."""
    return [each for each in caught if not str(each.message).startswith(CUPY_WARNS)]


def slack(tolerance: float, on_gpu: float = 10.0) -> float:
    """A tolerance, so many times as wide on a GPU, which adds in any order."""
    return tolerance * on_gpu if get_current_ops().name == "cupy" else tolerance


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="cpu, or cuda:0 to run on a GPU with cupy")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "no_gpu(reason): is not run with --device cuda:0")
    device = config.getoption("--device")
    if device == "cpu":
        return
    try:
        spacy.require_gpu(int(device.removeprefix("cuda:")))
    except ValueError as err:
        raise pytest.UsageError(f"--device {device}: {err}") from err
    # cuDNN would round inputs to 10 bits: what a text gives would depend on its batch.
    torch.backends.cudnn.allow_tf32 = False
    # The first call of a kernel takes long.
    too_slow = hypothesis.HealthCheck.too_slow
    hypothesis.settings.register_profile("gpu", deadline=None, suppress_health_check=[too_slow])
    hypothesis.settings.load_profile("gpu")
    for name in ("assert_allclose", "assert_array_equal"):
        setattr(np.testing, name, _of_host_arrays(getattr(np.testing, name)))


def _of_host_arrays(compare: Callable[..., None]) -> Callable[..., None]:
    """numpy compares its own arrays only."""

    def on_host(array: Any) -> Any:
        if torch.is_tensor(array):
            return array.detach().cpu()
        return to_numpy(array) if hasattr(array, "get") else array

    @wraps(compare)
    def call(*args: Any, **kwargs: Any) -> None:
        compare(*map(on_host, args), **kwargs)

    return call


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    if config.getoption("--device") != "cpu":
        for item in items:
            for mark in item.iter_markers("no_gpu"):
                item.add_marker(pytest.mark.skip(reason=mark.args[0]))


def _default_device(config: pytest.Config, path: Path) -> ContextManager[Any]:
    """Where the tests of a file make their tensors."""
    device, tests = config.getoption("--device"), Path(__file__).parent
    alone = any(path.is_relative_to(tests / each) for each in TORCH_ALONE)
    return torch.device(device) if alone and device != "cpu" else contextlib.nullcontext()


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    with _default_device(collector.config, collector.path):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with _default_device(item.config, item.path):
        yield


QUESTIONS = {
    "CELL": "Which kinds of cells ?",
    "DNA": "Which genes or promoters ?",
    "GPE": "Which cities or countries ?",
    "ORG": "Which organizations ?",
    "PER": "Who ?",
    "PROT": "Which proteins ?",
}

# Name of the variant: factory, settings of its model beside those of SMALL_MODELS, updates that
# it needs to memorise the ten sentences.
VARIANTS: Dict[str, Tuple[str, Dict[str, Any], int]] = {
    "diffusion_ner": ("diffusion_ner", {}, 220),
    "piqn_ner": ("piqn_ner", {}, 60),
    "piqn_ner, learned queries": (
        "piqn_ner",
        {
            "query_source": "learned",
            "n_queries": 16,
            "variant": "paper",
            "quantity": 0.75,
        },
        200,
    ),
    "locate_and_label_ner": ("locate_and_label_ner", {}, 120),
    "locate_and_label_ner, long entities by regression": (
        "locate_and_label_ner",
        {"lengths": [1, 2, 3, 4], "seed_iou": 0.5, "span_filter": False},
        120,
    ),
    "piqn_ner, queries in the encoder": (
        "piqn_ner",
        {
            "tok2vec": {
                "@architectures": "spacy_nested_ner.QueryEncoder.v1",
                "name": "the directory of `tiny_bert`",
                "n_queries": 16,
            },
            "query_source": "encoder",
            "quantity": 0.75,
        },
        80,
    ),
    "mrc_ner": ("mrc_ner", {}, 120),
    "mrc_ner, question and sentence in the encoder": (
        "mrc_ner",
        {
            "tok2vec": {
                "@architectures": "spacy_nested_ner.PairEncoder.v1",
                "name": "the directory of `tiny_bert`",
            },
        },
        100,
    ),
    "proposer_regressor_ner": ("proposer_regressor_ner", {}, 100),
}
SMALL_CNN = {
    "@architectures": "spacy.HashEmbedCNN.v2",
    "pretrained_vectors": None,
    "width": 32,
    "depth": 2,
    "embed_size": 500,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": True,
}
HASH_EMBED = {
    "@architectures": "spacy.MultiHashEmbed.v2",
    "width": 12,
    "attrs": ["NORM", "SHAPE"],
    "rows": [50, 50],
    "include_static_vectors": False,
}
SMALL_MODELS: Dict[str, Dict[str, Any]] = {
    "diffusion_ner": {
        "@architectures": "spacy_nested_ner.Diffusion.v1",
        "hidden_width": 48,
        "attention_heads": 2,
        "n_spans": 20,
        "tok2vec": SMALL_CNN,
    },
    "piqn_ner": {
        "@architectures": "spacy_nested_ner.PIQN.v1",
        "hidden_width": 48,
        "depth": 2,
        "attention_heads": 2,
        "tok2vec": SMALL_CNN,
    },
    "locate_and_label_ner": {
        "@architectures": "spacy_nested_ner.LocateAndLabel.v1",
        "hidden_width": 48,
        "tok2vec": SMALL_CNN,
    },
    "mrc_ner": {
        "@architectures": "spacy_nested_ner.MRC.v1",
        "questions": QUESTIONS,
        "hidden_width": 48,
        "batch_words": 4096,
        "tok2vec": SMALL_CNN,
    },
    "proposer_regressor_ner": {
        "@architectures": "spacy_nested_ner.ProposerRegressor.v1",
        "hidden_width": 48,
        "attention_heads": 4,
        "regressor_layers": 2,
        "tok2vec": SMALL_CNN,
    },
}

# Text, then (first word, end word, label); words are split at spaces.
SENTENCES = [
    ("The US Supreme Court in Washington", [(0, 4, "ORG"), (1, 2, "GPE"), (5, 6, "GPE")]),
    (
        "IL-2 gene promoter binds NF-kappa B",
        [(0, 3, "DNA"), (0, 2, "DNA"), (0, 1, "PROT"), (4, 6, "PROT")],
    ),
    (
        "He joined Bank of China in New York City",
        [(2, 5, "ORG"), (4, 5, "GPE"), (6, 9, "GPE"), (6, 8, "GPE")],
    ),
    ("human T cells", [(0, 3, "CELL"), (1, 3, "CELL")]),
    ("nothing to see here .", []),
    (
        "University of California , Berkeley students",
        [(0, 5, "ORG"), (2, 3, "GPE"), (4, 5, "GPE"), (0, 6, "PER")],
    ),
    ("p53", [(0, 1, "PROT"), (0, 1, "DNA")]),
    ("the president of the University of Oslo", [(0, 7, "PER"), (3, 7, "ORG"), (6, 7, "GPE")]),
    (
        "CD28 surface receptor activates mouse B cells",
        [(0, 3, "PROT"), (0, 1, "PROT"), (4, 7, "CELL"), (5, 7, "CELL")],
    ),
    ("Paris and the mayor of Paris", [(0, 1, "GPE"), (2, 6, "PER"), (5, 6, "GPE")]),
]


def make_example(nlp: Language, text: str, entities: List[tuple], spans_key: str = "sc") -> Example:
    """An example whose words are split at spaces."""
    words = text.split(" ")
    reference = Doc(nlp.vocab, words=words)
    reference.spans[spans_key] = [Span(reference, s, e, label=label) for s, e, label in entities]
    return Example(Doc(nlp.vocab, words=words), reference)


def add_own_ner(nlp: Language) -> None:
    """spaCy's own component for entities that do not overlap, with random weights."""
    own = nlp.add_pipe("ner", name="own")
    own.add_label("PERSON")
    own.initialize(lambda: make_examples(nlp), nlp=nlp)


def make_examples(nlp: Language, spans_key: str = "sc") -> List[Example]:
    """The ten nested sentences."""
    return [make_example(nlp, text, entities, spans_key) for text, entities in SENTENCES]


def make_pipeline(
    factory: str = "piqn_ner",
    model: Optional[Dict[str, Any]] = None,
    examples: Optional[Callable[[Language], List[Example]]] = make_examples,
    **settings: Any,
) -> Language:
    """A blank pipeline with one small component, initialised unless `examples` is None."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    config = {"model": {**SMALL_MODELS[factory], **(model or {})}, **settings}
    nlp.add_pipe(factory, name="ner", config=config)
    if examples is not None:
        data = examples(nlp)
        nlp.initialize(lambda: data)
    return nlp


def make_optimizer() -> Adam:
    return Adam(0.003, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0)


def train(
    nlp: Language, steps: int, examples: Callable[[Language], List[Example]] = make_examples
) -> Language:
    """Plain updates on all examples at once."""
    optimizer = make_optimizer()
    for _ in range(steps):
        nlp.update(examples(nlp), sgd=optimizer)
    return nlp


def memorise(
    nlp: Language, most: int, examples: Callable[[Language], List[Example]] = make_examples
) -> Language:
    """Updates as those of `train` until all examples are known by heart, at most so many."""
    optimizer = make_optimizer()
    for _ in range(most // 20):
        for _ in range(20):
            nlp.update(examples(nlp), sgd=optimizer)
        if nlp.evaluate(examples(nlp))["nested_f"] == 1.0:
            break
    assert nlp.evaluate(examples(nlp))["nested_f"] == 1.0
    return nlp


def spans_of(doc: Doc, key: str = "sc") -> List[tuple]:
    """Spans as plain tuples in their order."""
    return [(s.start, s.end, s.label_) for s in doc.spans[key]]


def scores_of(doc: Doc, key: str = "sc") -> List[float]:
    return doc.spans[key].attrs["scores"].tolist()


def small_cnn(width: int, vectors: bool = False) -> Model[List[Doc], List[Floats2d]]:
    """spaCy's own encoder of one layer."""
    return build_hash_embed_cnn_tok2vec(
        width=width,
        depth=1,
        embed_size=100,
        window_size=1,
        maxout_pieces=2,
        subword_features=True,
        pretrained_vectors=vectors or None,
    )


def found_in(nlp: Language, docs: List[Doc]) -> List[Tuple[List[tuple], List[float]]]:
    """Spans and scores of each doc."""
    return [(spans_of(doc), scores_of(doc)) for doc in nlp.pipe(docs)]


def assert_same_found(got: List[tuple], expected: List[tuple], more_than: int = 20) -> None:
    """What `found_in` gives, and more than so many spans in all."""
    assert [spans for spans, _ in got] == [spans for spans, _ in expected]
    for (_, a), (_, b) in zip(got, expected):
        assert a == pytest.approx(b, abs=1e-4)
    assert sum(len(spans) for spans, _ in got) > more_than


def heed_interrupts() -> None:
    """For a process that is to get SIGINT: a shell's background jobs, and what they start, ignore
    it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(happens: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def save_bert(path: Path, layers: int = 2) -> None:
    """A tiny BERT with random weights whose word pieces are single characters.

    Skips the test where transformers is not installed.
    """
    transformers = pytest.importorskip("transformers")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = string.ascii_letters + string.digits + string.punctuation
    pieces += [*characters, *("##" + character for character in characters)]
    fix_random_seed(0)
    path.mkdir(parents=True)
    (path / "vocab.txt").write_text("\n".join(pieces), encoding="utf8")
    tokenizer = transformers.BertTokenizerFast(
        vocab_file=str(path / "vocab.txt"), do_lower_case=False, model_max_length=128
    )
    tokenizer.save_pretrained(path)
    config = transformers.BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    transformers.BertModel(config).save_pretrained(path)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> Path:
    """Directory of the encoder of `save_bert`. Not to be changed by a test."""
    path = tmp_path_factory.mktemp("encoder") / "bert"
    save_bert(path)
    return path


@pytest.fixture(scope="session")
def raw_texts(tmp_path_factory) -> Path:
    """The ten sentences, one a line. Not to be changed by a test."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(text for text, _ in SENTENCES), encoding="utf8")
    return path


@pytest.fixture(scope="session")
def ready_pipelines(tmp_path_factory) -> Path:
    """A folder into which the wheels of `assets/pipelines` are unpacked, as pip does."""
    folder = tmp_path_factory.mktemp("site")
    for wheel in (Path(__file__).parents[1] / "assets" / "pipelines").glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


# Of the tokenizer of spaCy's English. Each pipeline makes 1,347, which takes four times as long as
# all the rest of it, and the tests make thousands of pipelines.
SPECIAL_CASES = ("can't", "don't", "gonna", "Mr.", "Dr.", "e.g.", "i.e.", "Inc.", "St.")


@pytest.fixture(scope="session", autouse=True)
def few_special_cases() -> Iterator[None]:
    """Pipelines of this process are made quickly; those of a command in its own are spaCy's."""
    with pytest.MonkeyPatch.context() as patch:
        every = English.Defaults.tokenizer_exceptions
        few = {text: every[text] for text in SPECIAL_CASES}
        patch.setattr(English.Defaults, "tokenizer_exceptions", few)
        yield


@pytest.fixture(scope="session")
def trained_variants() -> Dict[str, Language]:
    """What `trained` has made: pytest keeps the fixture of one parameter alone."""
    return {}


@pytest.fixture(scope="session", params=VARIANTS)
def trained(request, trained_variants) -> Language:
    """A pipeline that has memorised the ten sentences. Not to be changed by a test."""
    if request.param not in trained_variants:
        trained_variants[request.param] = _train_variant(request, *VARIANTS[request.param])
    return trained_variants[request.param]


def _train_variant(request: Any, factory: str, model: Dict[str, Any], steps: int) -> Language:
    if "name" in model.get("tok2vec", {}):
        name = str(request.getfixturevalue("tiny_bert"))
        model = {**model, "tok2vec": {**model["tok2vec"], "name": name}}
    nlp = train(make_pipeline(factory, model), steps)
    if request.config.getoption("--device") != "cpu":  # which draws other random numbers
        for _ in range(3):
            if nlp.evaluate(make_examples(nlp))["nested_f"] < 1.0:
                train(nlp, steps)
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0
    return nlp


@pytest.fixture(params=SMALL_MODELS)
def make(request) -> Callable[..., Language]:
    """`make_pipeline` for each factory."""
    return partial(make_pipeline, request.param)
