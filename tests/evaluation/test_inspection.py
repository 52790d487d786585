from __future__ import annotations

import pytest
import spacy
import torch
from evaluated import NLP, make_doc
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import load_config_from_str

from spacy_nested_ner.evaluation.data.inspection import (
    inspect_limits,
    inspect_split,
    inspection,
    overlap,
)
from spacy_nested_ner.evaluation.data.limits import (
    config_components,
    default_components,
    limits,
)
from spacy_nested_ner.systems import all_systems, get_system
from spacy_nested_ner.systems.base import Limit

WORDS = ["human", "IL-2", "gene", "in", "T", "cells", "."]


FACTORIES = [system.factory for system in all_systems()]


def example(words, spans, sent_starts=None) -> Example:
    doc = Doc(NLP.vocab, words=words, sent_starts=sent_starts)
    doc.spans["sc"] = [Span(doc, start, end, label) for start, end, label in spans]
    return Example(Doc(NLP.vocab, words=words, sent_starts=sent_starts), doc)


@pytest.fixture
def train():
    """Two sentences in one doc, one doc without entities, one without annotation."""
    first = example(
        [*WORDS, *WORDS],
        [(0, 3, "DNA"), (1, 2, "protein"), (1, 2, "RNA"), (4, 6, "cell"), (7, 10, "DNA")],
        [True, *[False] * 6, True, *[False] * 6],
    )
    unknown = example(WORDS, [])
    del unknown.reference.spans["sc"]
    return [first, example(["nothing", "."], []), unknown]


def test_counts_of_a_split(train):
    found = inspect_split(train, "sc")
    report = found.to_dict()
    assert (report["documents"], report["documents_without_annotation"]) == (2, 1)
    assert report["labels"] == {"DNA": 2, "protein": 1, "RNA": 1, "cell": 1}
    assert report["sentences_by_entities"] == {"0": 1, "1": 1, "4": 1}
    assert report["entities_by_length"] == {"1": 2, "2": 1, "3": 2}
    assert report["entities_by_depth"] == {"1": 3, "2": 2}
    assert report["same_span_labels"] == {"RNA + protein": 1}
    assert report["length_by_label"]["DNA"] == {
        "mean": 3.0, "50%": 3, "90%": 3, "95%": 3, "99%": 3, "100%": 3
    }  # fmt: skip
    assert found.sentences == {"human IL-2 gene in T cells .": 2, "nothing .": 1}


def test_overlap_of_train_and_dev(train):
    dev = [
        example(WORDS, [(0, 3, "DNA"), (4, 6, "tissue")]),
        example(["IL-2", "again"], [(0, 1, "protein"), (1, 2, "DNA")]),
    ]
    common = overlap(inspect_split(train, "sc"), inspect_split(dev, "sc"))
    assert common == {
        "sentences": 1,
        "sentences_percent": 50.0,
        "document_ids": 0,
        "document_ids_of_dev": 0,
        "examples": ["human IL-2 gene in T cells ."],
        "entities_seen": 2,
        "entities_seen_percent": 50.0,
        "labels_not_in_train": ["tissue"],
        "labels_not_in_dev": ["RNA", "cell"],
    }


def config(factory, component="", model="", architecture=""):
    lines = [f'[components]\n[components.x]\nfactory = "{factory}"', component]
    if architecture:
        lines.append(f'[components.x.model]\n@architectures = "spacy_nested_ner.{architecture}.v1"')
    return load_config_from_str("\n".join([*lines, model]))


def test_texts_with_two_annotations():
    texts = [(WORDS, [(0, 3, "DNA")]), (WORDS, [(0, 3, "DNA")]), (WORDS, [(0, 3, "gene")])]
    found = inspect_split([example(words, spans) for words, spans in texts], "sc")
    (warning,) = [w for w in inspection(found, None, [], 0)["warnings"] if "other entities" in w]
    assert warning.startswith("1 docs of train have the text of another")


def one_limit(words, spans, text):
    rows, _ = inspect_limits([example(words, spans)], config_components(text), "sc")
    return rows


FIVE = [(0, 1, "A"), (0, 2, "A"), (0, 3, "A"), (1, 3, "A"), (2, 3, "A")]


def test_queries():
    learned = 'query_source = "learned"\nn_queries = 3'
    (row,) = one_limit(
        ["a", "b", "c"], FIVE, config("piqn_ner", model=learned, architecture="PIQN")
    )
    assert row["component"] == "x" and row["settings"] == {"n_queries": 3}
    assert (row["sentences_over"], row["entities_over"]) == (1, 2)
    assert row["worst"] == {"text": "a b c", "entities": 5, "room": 3}
    words = "queries_per_word = 2"
    (row,) = one_limit(["a", "b", "c"], FIVE, config("piqn_ner", model=words, architecture="PIQN"))
    assert row["entities_over"] == 0 and row["fullest_percent"] == pytest.approx(500 / 6)
    encoded = "\n".join(
        [
            'query_source = "encoder"',
            "[components.x.model.tok2vec]",
            '@architectures = "spacy_nested_ner.QueryEncoder.v1"',
            "n_queries = 4",
        ]
    )
    (row,) = one_limit(
        ["a", "b", "c"], FIVE, config("piqn_ner", model=encoded, architecture="PIQN")
    )
    assert row["entities_over"] == 1 and "tok2vec" in row["remedy"]


def test_noisy_spans_of_training_and_prediction():
    text = config(
        "diffusion_ner",
        component="spans_per_word = 0.15",
        model="n_spans = 3",
        architecture="Diffusion",
    )
    training, prediction = one_limit(["a", "b", "c"], FIVE, text)
    assert (training["entities_over"], prediction["entities_over"]) == (2, 0)
    assert prediction["settings"] == {"n_spans": None, "spans_per_word": 0.15}
    assert training["remedy"] == "raise n_spans of the model"


def test_proposals():
    text = config(
        "proposer_regressor_ner", model="min_proposals = 4", architecture="ProposerRegressor"
    )
    (row,) = one_limit(["a", "b", "c"], FIVE, text)
    assert row["entities_over"] == 1


def test_seed_lengths():
    seeds = "lengths = [1, 3]\nseed_iou = 0.75"
    text = config("locate_and_label_ner", model=seeds, architecture="LocateAndLabel")
    spans = [(0, 1, "A"), (0, 2, "A"), (0, 4, "A"), (0, 5, "A")]
    (row,) = one_limit(list("abcde"), spans, text)
    assert row["other_lengths"] == {"2": 1, "4": 1, "5": 1}
    assert row["reach"] == 4.0 and row["entities_over"] == 1
    text = config(
        "locate_and_label_ner", model=f"{seeds}\nregressor = null", architecture="LocateAndLabel"
    )
    (row,) = one_limit(list("abcde"), spans, text)
    assert row["reach"] == 3 and row["entities_over"] == 2


def test_lengths_without_a_longest_reach(monkeypatch, train):
    """Of a system that is shown single words and can correct them to any length."""
    system = type(get_system("piqn"))
    limit = Limit("words", {"size": 1}, "use another", lengths={1}.__contains__)
    monkeypatch.setattr(system, "limits", lambda self, settings, options: [limit])
    rows = one_limit(list("abc"), [(0, 1, "A"), (0, 2, "A"), (0, 3, "A")], config("piqn_ner"))
    assert rows[0]["entities_of_other_length"] == 2 and rows[0]["entities_over"] == 0
    split = inspect_split(train, "sc")
    (warning,) = (w for w in inspection(split, None, rows, 50)["warnings"] if "use another" in w)
    assert "among the words (size = 1); use another." in warning


def test_suggester_of_spancat():
    text = config("spancat", component="spans_key = 'sc'".replace("'", '"'))
    (row,) = one_limit(list("abcde"), [(0, 1, "A"), (0, 4, "A")], text)
    assert row["settings"] == {"sizes": [1, 2, 3]}  # spaCy's default
    assert row["entities_over"] == 1


def test_defaults_of_all_systems():
    """The limits are those of the factories and architectures, whatever they are."""
    for component in default_components():
        assert component.factory in FACTORIES
        for limit in limits(component):
            for name, value in limit.settings.items():
                own = {**component.settings, **component.model}
                assert value in (own[name], component.settings.get(name), component.model.get(name))
    limited = {c.factory for c in default_components() if limits(c)}
    assert limited == set(FACTORIES) - {"mrc_ner", "locate_and_label_ner"}


def test_config_without_a_known_component():
    with pytest.raises(ValueError, match="none of the components piqn_ner"):
        config_components(config("ner"))


@pytest.mark.parametrize(
    "setting, problem",
    [
        ('window = "x"', "window must be a whole number"),
        ("stride = 500", "stride .500. must not be larger than window"),
        ("treshold = 0.3", "no setting 'treshold' .did you mean threshold"),
    ],
)
def test_settings_that_all_components_share_are_checked(setting, problem):
    with pytest.raises(ValueError, match=f"Component 'x': .*{problem}"):
        config_components(config("piqn_ner", setting))


def test_entities_lost_to_tokenisation_and_windows():
    words = ["NF-kappaB", "binds", "DNA", "x"]
    reference = make_doc(words, [(0, 1, "A"), (1, 4, "A"), (2, 3, "A")])
    parts = ["NF", "-", "kappaB", "binds", "DN", "A", "x"]
    spaces = [False, False, True, True, False, True, True]
    split = Example(Doc(NLP.vocab, words=parts, spaces=spaces), reference)
    joined = Example(Doc(NLP.vocab, words=["NF-kappaB binds", "DNA", "x"]), reference)
    text = config("piqn_ner", component="window = 3\nstride = 3")
    assert inspect_limits([split], config_components(text), "sc")[1]["across segments"] == 1
    text = config("piqn_ner")
    assert not any(inspect_limits([split], config_components(text), "sc")[1].values())
    assert inspect_limits([joined], config_components(text), "sc")[1]["misaligned"] == 2


def test_warnings(train):
    dev = [example(WORDS, [(0, 3, "tissue")])]
    crossing = example(["a", "b", "c"], [(0, 2, "DNA"), (1, 3, "DNA")])
    data = [*train, crossing]
    rows, lost = inspect_limits(data, default_components(), "sc")
    found = inspect_split(data, "sc")
    found.lost = lost
    report = inspection(found, inspect_split(dev, "sc"), rows, rare=2)
    text = "\n".join(report["warnings"])
    assert "Label 'protein' has 1 entities in train, fewer than 2." in text
    assert "'DNA'" not in text
    assert "1 docs of train have no annotation" in text
    assert "1 pairs of spans in train cross" in text
    assert "1 pairs of labels in train share a span" in text
    assert "Labels in dev but not in train: tissue." in text
    assert "1 sentences of dev (100.0 %) are also in train" in text
    assert report["rare_labels"] == {"protein": 1, "RNA": 1, "cell": 1}


def test_many_rare_labels_are_one_warning():
    names = [f"L{i}" for i in range(7)]
    data = [example(["a"], [(0, 1, name) for name in names])]
    dev = inspect_split([example(["a"], [(0, 1, f"D{i}") for i in range(6)])], "sc")
    found = inspection(inspect_split(data, "sc"), dev, [], rare=50)
    text = "\n".join(found["warnings"])
    listed = "'L0' (1), 'L1' (1), 'L2' (1), 'L3' (1), 'L4' (1) and 2 more."
    assert f"7 labels have fewer than 50 entities in train: {listed}" in text
    assert "Labels in dev but not in train: D0, D1, D2, D3, D4 and 1 more." in text
    assert "Label '" not in text and len(found["rare_labels"]) == 7


def test_repeated_spans_count_once():
    spans = [(0, 3, "DNA"), (1, 2, "protein"), (1, 2, "protein")]
    data = [example(WORDS, spans)]
    rows, _ = inspect_limits(data, config_components(config("spancat")), "sc")
    found = inspect_split(data, "sc")
    report = inspection(found, None, rows, rare=50)
    train = report["train"]
    assert (train["entities"], train["repeated_entities"]) == (2, 1)
    assert train["labels"] == {"DNA": 1, "protein": 1} and not train["same_span_labels"]
    assert sum(found.mentions.values()) == 2 and found.lengths["protein"] == [1]
    (repeated,) = (text for text in report["warnings"] if "repeated" in text)
    assert repeated.startswith("1 entities of train are repeated")
    assert not any("labels_per_span" in text for text in report["warnings"])
    reach = [(0, 4, "A"), (0, 4, "A")]
    (row,) = one_limit(list("abcde"), reach, config("spancat"))
    assert row["entities_over"] == 1


def test_numbers_agree_with_the_installed_settings():
    """What the pipe would say of its data is what the report says: no drift between the two."""
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("diffusion_ner")
    component = next(c for c in default_components() if c.factory == "diffusion_ner")
    _, prediction = limits(component)
    assert prediction.settings == {k: pipe.cfg[k] for k in ("n_spans", "spans_per_word")}


def test_limits_are_those_of_the_heads():
    """As many queries, noisy spans and proposals as the heads make for sentences of each length."""
    from spacy_nested_ner.layers.rounds import word_rounds
    from spacy_nested_ner.systems.diffusion.head import span_counts
    from spacy_nested_ner.systems.piqn.settings import MIN_QUERIES

    lengths = torch.arange(1, 40)
    mask = torch.arange(40) < lengths.unsqueeze(1)
    for component in default_components():
        model = component.model
        for limit in limits(component):
            if limit.entities is None:
                continue
            if limit.what == "queries":
                made = word_rounds(mask, model["queries_per_word"], MIN_QUERIES)[0].sum(1)
            elif limit.what == "proposals":
                made = word_rounds(mask, 1, model["min_proposals"])[0].sum(1)
            else:
                settings = limit.settings
                made = span_counts(lengths, settings["n_spans"], settings["spans_per_word"])
            assert [limit.entities(n) for n in lengths.tolist()] == made.tolist()


def test_blank_sentences_are_not_shared():
    blank = inspect_split([example(["\n"], [])], "sc")
    common = overlap(blank, blank)
    assert common["sentences"] == 0 and common["examples"] == []


def test_limits_are_warned_of(train):
    split = inspect_split(train, "sc")
    few = config("piqn_ner", model='query_source = "learned"\nn_queries = 3', architecture="PIQN")
    suggester = '[components.x.suggester]\n@misc = "spacy.ngram_range_suggester.v1"'
    short = config("spancat", f"{suggester}\nmin_size = 1\nmax_size = 3")
    spans = [(0, 3, "A"), (0, 4, "A")]
    rows = [*one_limit(list("abc"), FIVE, few), *one_limit(list("abcde"), spans, short)]
    assert rows[-1]["other_lengths"] == {"4": 1} and rows[-1]["reach"] == 3
    text = "\n".join(inspection(split, None, rows, 0)["warnings"])
    assert (
        "1 sentences hold more entities than queries (n_queries = 3), 2 entities too many;" in text
    )
    assert "1 of them longer than it can reach (3.0 words); add the lengths" in text
