"""Small trained pipelines of all systems, for the stress tests."""

from functools import cache

from spacy.language import Language

from tests.conftest import SENTENCES, SMALL_MODELS, make_pipeline, train

SYSTEMS = sorted(SMALL_MODELS)
WORDS = sorted({word for text, _ in SENTENCES for word in text.split(" ")})
# Updates until a system finds most entities of the ten sentences.
UPDATES = {
    "diffusion_ner": 120,
    "locate_and_label_ner": 60,
    "mrc_ner": 80,
    "piqn_ner": 50,
    "proposer_regressor_ner": 60,
}


@cache
def small_pipeline(system: str) -> Language:
    """A pipeline that has learned the ten nested sentences. Not to be changed by a test."""
    return train(make_pipeline(system), UPDATES[system])
