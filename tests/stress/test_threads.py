"""Four threads with one pipeline, for long."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, Tuple

import pytest
import spacy
from spacy.language import Language

from tests.conftest import found_in
from tests.stress.pipelines import SYSTEMS, WORDS, small_pipeline

THREADS = 4
ROUND = 50  # texts that every thread reads before they are compared
ROUNDS = 200


def round_of_texts(draw: random.Random) -> List[str]:
    """Some words of them are new."""
    new = [f"{draw.getrandbits(40):x}" for _ in range(20)]
    return [" ".join(draw.choices(WORDS + new, k=draw.randint(1, 25))) for _ in range(ROUND)]


Found = Dict[str, Tuple[List[tuple], List[float]]]


def found_of(nlp: Language, text: str) -> Tuple[List[tuple], List[float]]:
    """Spans and scores of a text."""
    (found,) = found_in(nlp, [nlp.make_doc(text)])
    return found


@pytest.mark.parametrize("system", SYSTEMS)
def test_threads(trial, tmp_path, system: str) -> None:
    """In an order of its own each thread finds what another pipeline finds in one thread."""
    nlp = small_pipeline(system)
    nlp.to_disk(tmp_path)
    alone = spacy.load(tmp_path)
    spans = 0
    with ThreadPoolExecutor(THREADS) as threads:
        for number in trial.inputs(ROUNDS):
            texts = round_of_texts(random.Random(f"{trial.seed} {number}"))
            expected = {text: found_of(alone, text) for text in texts}

            def read(thread: int, texts: List[str] = texts, number: int = number) -> Found:
                order = random.Random(f"{number} {thread}").sample(texts, len(texts))
                return {text: found_of(nlp, text) for text in order}

            for found in threads.map(read, range(THREADS)):
                for text, (places, scores) in expected.items():
                    where = f"seed {trial.seed}, round {number}: {text}"
                    assert found[text][0] == places, where
                    assert found[text][1] == pytest.approx(scores, abs=1e-5), where
            spans += sum(len(places) for places, _ in expected.values())
    assert spans > number
    trial.record(threads=THREADS, docs_per_thread=ROUND * (number + 1), spans=spans, differences=0)
