"""Trainings in processes of their own, and the scores of what they leave."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import spacy
import srsly
import torch
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Corpus, Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop
from thinc.api import Config

from spacy_nested_ner.comparison.provenance import provenance
from spacy_nested_ner.evaluation.scores.fit_thresholds import (
    Fit,
    fit_thresholds,
    scored_pipes,
    scored_table,
    with_thresholds,
)
from spacy_nested_ner.evaluation.scores.own_thresholds import is_searchable
from spacy_nested_ner.evaluation.scores.thresholds import f_at
from spacy_nested_ner.files import writable, write_json
from spacy_nested_ner.forks import Child, forking_context
from spacy_nested_ner.training.budget import CLOCK

# Settings that say where the data of a result lay.
PATHS = ("train", "dev", "test", "corpus")
# Settings that came later, and what a result that does not know them was made with.
LATER = {
    "vectors": None,
    "english_words": False,
    "pretrained_cnn": False,
    "encoder_rate": None,
}


class Task(NamedTuple):
    """One training of a comparison.

    settings: all that its result depends on, ready for JSON. target: JSON file of the result; the
    folder of the same name is for the pipelines. config: as text, where `train_and_score` is to
    train.
    """

    settings: Dict[str, Any]
    target: Path
    config: str = ""

    @property
    def folder(self) -> Path:
        """Of its pipelines."""
        return self.target.with_suffix("")


class Trained(NamedTuple):
    """The better pipeline of a training, its name, and the threshold of its component that is best
    on dev."""

    nlp: Language
    name: str
    component: str
    fit: Fit


# Result of a training, or None, what to say of it, and where in the code it failed, which is empty
# if the words are enough.
Answer = Tuple[Optional[Dict[str, Any]], str, str]


class Unfinished(ChildProcessError):
    """Trainings failed, which the message names. results: of the others."""

    def __init__(self, problems: Sequence[str], results: List[Dict[str, Any]]):
        again = "Finished trainings are kept: run the same command again to continue."
        super().__init__(f"{' '.join(problems)} {again}")
        self.results = results


def train_each(
    tasks: Sequence[Task],
    one: Callable[[Task], Dict[str, Any]],
    say: Callable[[str], Any],
    **about: Any,
) -> List[Dict[str, Any]]:
    """The result of each task. Those that have none yet are trained, one after the other, each in a
    process of its own that imports `one` by its name. One that fails does not keep the next from
    being trained.

    one: makes the result. say: takes a line for each task. about: what else the file tells.

    Raises ValueError, before anything is trained, for a result of other settings; Unfinished, at
    the end, if a training failed or its process died.
    """
    for task in tasks:
        _check_settings(task)
    results, problems = [], []
    for task in tasks:
        if task.target.exists():
            say(f"{task.target}: done already")
        else:
            say(f"{task.target}: training")
            made, problem, trace = _in_process(one, task)
            if made is None:
                problems.append(f"{task.target}: {problem}")
                say(problems[-1])
                if trace:
                    say(trace)
                continue
            write_json(task.target, {"settings": task.settings, **provenance(), **about, **made})
        results.append(srsly.read_json(task.target))
    if problems:
        raise Unfinished(problems, results)
    return results


def _check_settings(task: Task) -> None:
    """Settings that a result does not know do not count, but for those of `LATER`."""
    if not task.target.exists():
        return
    found = srsly.read_json(task.target)["settings"]
    if problem := other_settings(task.target, found, task.settings):
        raise ValueError(problem)


def other_settings(where: object, found: Dict[str, Any], wanted: Dict[str, Any]) -> str:
    """What to say of a result whose settings differ from the wanted ones; empty if none does. Paths
    do not count beside a digest of the files, `data`.

    where: the file of the result.
    """
    read = srsly.json_loads(srsly.json_dumps(writable(wanted)))  # 0.30000000000000004 for 0.3
    ignored = PATHS if "data" in wanted and "data" in found else ()
    other = [
        key
        for key, value in read.items()
        if found.get(key, LATER.get(key, value)) != value
        and key not in ignored
        # Which of several GPUs it was does not matter.
        and not (key == "gpu_id" and min(found[key], value) >= 0)
    ]
    if not other:
        return ""
    found = {**LATER, **found}
    made, now = (", ".join(f"{key} {of[key]}" for key in other) for of in (found, wanted))
    why = " An update of this package can change the config, too." * ("config" in other)
    return f"{where} was made with other settings: {made}. Give another output (now: {now}).{why}"


def _in_process(one: Callable[[Task], Dict[str, Any]], task: Task) -> Answer:
    try:
        child = _started(one, task)
    except OSError as err:
        return None, f"no process for this training: {err}", ""
    try:
        wait(child.handles)
        return child.hear()
    except (EOFError, OSError):
        return None, "the process of this training died, perhaps because memory ran out.", ""
    except BaseException:
        child.process.terminate()
        raise
    finally:
        child.process.join()
        child.connection.close()


def _started(one: Callable[[Task], Dict[str, Any]], task: Task) -> Child:
    what = (_answer, one, task, torch.get_num_threads())
    try:
        return Child(forking_context(__name__), *what)
    except (EOFError, OSError):
        return Child(multiprocessing.get_context("spawn"), *what)


def _answer(
    connection: Connection, one: Callable[[Task], Dict[str, Any]], task: Task, threads: int
) -> None:
    # Not killed at once, it gives back the lock of its progress bar, which is the system's.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    torch.set_num_threads(threads)  # a forked process has one
    answer: Answer
    try:
        answer = one(task), "", ""
    except (ValueError, OSError) as err:  # whose words are enough
        answer = None, str(err), ""
    except Exception as err:  # whatever it is: other trainings have nothing to do with it
        answer = None, str(err), traceback.format_exc()
    connection.send(answer)


def train(config: Config, folder: Path, gpu_id: int = -1) -> Dict[str, Any]:
    """Train a pipeline into a folder. Returns minutes, CPU minutes, steps, and the curve of scores
    on dev.

    config: with steps or with `limit_time`; how it logs is set here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".jsonl")
    log.unlink(missing_ok=True)  # of a run that was broken off; the logger would not write
    config["training"]["logger"] = {
        "@loggers": "spacy.ConsoleLogger.v3",
        "progress_bar": "eval",
        "output_file": str(log),
    }
    nlp = init_nlp(config, use_gpu=gpu_id)
    CLOCK.steps = 0
    seconds, cpu = time.perf_counter(), time.process_time()
    train_loop(nlp, folder, use_gpu=gpu_id)
    curve = [(row["step"], row["score"]) for row in srsly.read_jsonl(log)]
    return {
        "minutes": (time.perf_counter() - seconds) / 60,
        "cpu_minutes": (time.process_time() - cpu) / 60,
        "steps": CLOCK.steps or nlp.config["training"]["max_steps"] or curve[-1][0],
        "curve": curve,
    }


def examples_of(nlp: Language, path: Path, limit: int = 0, gold_tokens: bool = False) -> List:
    """The first examples of a file, 0 for all, to be predicted from raw text as `spacy train` does,
    or on the tokens of the file."""
    examples = list(islice(Corpus(path)(nlp), limit or None))
    if not gold_tokens:
        return examples
    return [Example(bare(nlp, eg.reference), eg.reference) for eg in examples]


def bare(nlp: Language, doc: Doc) -> Doc:
    """The words of a doc, without what is known of them."""
    return Doc(nlp.vocab, words=[token.text for token in doc])


def better(folder: Path, dev: Path, limit: int = 0, gold_tokens: bool = False) -> Trained:
    """Whichever of the best and the last model of a training scores higher on dev at its best
    threshold: the best of many scores on a few docs may be the luckiest.

    limit: first docs of dev, 0 for all. gold_tokens: see `examples_of`.
    """
    choices = []
    for name in ("model-best", "model-last"):
        nlp = spacy.load(folder / name)
        fits, _ = fit_thresholds(nlp, examples_of(nlp, dev, limit, gold_tokens))
        ((component, pipe),) = scored_pipes(nlp).items()
        own = pipe.cfg["threshold"]
        # Where nothing is right there is none.
        fit = fits.get(component, Fit(own, 0.0, own, 0.0))
        choices.append(Trained(nlp, name, component, fit))
    return max(reversed(choices), key=lambda each: each.fit.f)  # of equals the last


def scores_of(trained: Trained, test: Path, limit: int = 0, gold_tokens: bool = False) -> Dict:
    """Strict micro F1 on test at the config's own threshold and at that from dev, and speed."""
    nlp, name, component, fit = trained
    pipe = nlp.get_pipe(component)
    examples = examples_of(nlp, test, limit, gold_tokens)
    own, tuned = fit.old_threshold, fit.threshold
    searchable = is_searchable(nlp, component)
    seconds = time.perf_counter()
    table = scored_table(nlp, pipe, examples, min(own, tuned) if searchable else own)
    seconds = time.perf_counter() - seconds
    other = table if searchable else scored_table(nlp, pipe, examples, tuned)
    return {
        "model": name,
        "f1": f_at(table, own),
        "f1_tuned": f_at(other, tuned),
        "threshold": own,
        "threshold_tuned": tuned,
        "words_per_second": table.words / seconds,
    }


def save(trained: Trained, folder: Path) -> None:
    """Save the pipeline with its best threshold."""
    with_thresholds(trained.nlp, {trained.component: trained.fit}).to_disk(folder)


def train_and_score(task: Task) -> Dict[str, Any]:
    """One training and its scores, from the config and the settings "dev", "test", "gpu_id". The
    better pipeline stays in the folder `model`."""
    settings = task.settings
    config = Config().from_str(task.config, interpolate=False)
    if settings["gpu_id"] >= 0:
        spacy.require_gpu(settings["gpu_id"])
    training = train(config, task.folder, settings["gpu_id"])
    trained = better(task.folder, Path(settings["dev"]))
    scores = scores_of(trained, Path(settings["test"]))
    save(trained, task.folder / "model")
    return {"training": training, **scores}
