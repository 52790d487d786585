"""What `spacy train` does beside learning: thresholds of what it saves, and a word at the end.

spaCy loads this module with any pipeline, as it looks for its own logger among those of all
packages: what needs torch or scipy is imported where it is used.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import ExitStack
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from subprocess import list2cmdline
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Set,
    Tuple,
    Union,
)

import srsly
from spacy.language import Language
from spacy.training import Example
from spacy.training.loggers import console_logger_v3
from spacy.util import SimpleFrozenList, registry, resolve_dot_names
from wasabi import Printer

from spacy_nested_ner.files import ended_tidily, written_folder
from spacy_nested_ner.training.budget import LINEAR_OVER_TIME, UNTIL_TIME_IS_UP
from spacy_nested_ner.warn import warn

if TYPE_CHECKING:
    from spacy_nested_ner.evaluation.scores.fit_thresholds import Fit

RATES = ("learn_rate", "head_learn_rate")
IN_CMD_EXE = os.name == "nt"
"""Which knows no quotes but double ones."""
WHOLE = 0.9
"""Share of max_steps from which on a training counts as a whole one."""


def make_fit_threshold(beta: float = 1.0) -> Callable[[Language], Language]:
    """`spacy_nested_ner.fit_threshold.v1`, for `[training.before_to_disk]`: pipelines are saved
    with the thresholds that are best on `training.dev_corpus`, see `fit_thresholds`, and their
    folder is written whole or not at all.

    beta: the best threshold has the highest F-beta; with 2, recall weighs twice as much as
        precision.

    It costs one prediction on that corpus for each pipeline that is saved, nine or ten where a
    later component may change the spans, as a `span_ruler` with the same key does and components of
    other packages might. Training itself goes on with the thresholds of the config. What was chosen
    stands in the pipeline's `meta["thresholds"]`. Where it fails, it warns, and the pipeline is
    saved as it is. A training that is interrupted is saved at once, with the thresholds that were
    chosen last.
    """
    from spacy_nested_ner.evaluation.scores.fit_thresholds import (
        NOTHING_RIGHT,
        check_beta,
        scored_pipes,
        with_thresholds,
    )

    check_beta("beta of spacy_nested_ner.fit_threshold.v1", beta)
    saved: Dict[bytes, Dict[str, Fit]] = {}
    warned: set = set()

    def report(name: str, reason: str) -> None:
        # That nothing is right yet is to be expected of the first checkpoints.
        if reason != NOTHING_RIGHT and name not in warned:
            warn(f"Component '{name}': its threshold is kept: {reason}.")
            warned.add(name)

    def fit_threshold(nlp: Language) -> Language:
        if _is_interrupted():
            (last,) = saved.values() or [{}]
            return _whole_on_disk(with_thresholds(nlp, last))
        weights = blake2b(nlp.to_bytes(exclude=["vocab", "tokenizer", "meta", "config"])).digest()
        if weights not in saved:  # the last model is saved twice
            fits, reasons = _fit_on_dev(nlp, beta)
            for name in scored_pipes(nlp):
                if name in reasons:
                    report(name, reasons[name])
            saved.clear()
            saved[weights] = fits
        return _whole_on_disk(with_thresholds(nlp, saved[weights]))

    return fit_threshold


def _is_interrupted() -> bool:
    """Whether Ctrl-C (or SIGTERM) ends the training: spaCy then saves and logs for a last time."""
    return isinstance(sys.exc_info()[1], (KeyboardInterrupt, SystemExit))


def _whole_on_disk(nlp: Language) -> Language:
    """The copy of a pipeline that is to be saved. spaCy writes its files one by one over those of
    the last save: who kills it would leave weights of two steps."""

    def to_disk(path: Union[str, Path], *, exclude: Iterable[str] = SimpleFrozenList()) -> None:
        with written_folder(Path(path), marker="meta.json") as draft:
            type(nlp).to_disk(nlp, draft, exclude=exclude)

    nlp.to_disk = to_disk  # type: ignore[method-assign]
    return nlp


def _fit_on_dev(
    nlp: Language, beta: float, known: Iterable[str] = ()
) -> Tuple[Dict[str, Fit], Dict[str, str]]:
    """See `fit_thresholds`. known: components that need no other prediction."""
    from spacy_nested_ner.evaluation.scores.fit_thresholds import fit_thresholds

    try:
        frozen = nlp.config.interpolate()["training"]["frozen_components"]
        return fit_thresholds(nlp, _dev_examples(nlp), {*frozen, *known}, beta)
    except Exception as err:  # training is not to be lost by what comes after it
        return {}, {name: f"choosing it failed: {err}" for name in nlp.pipe_names}


def _dev_examples(nlp: Language) -> List[Example]:
    config = nlp.config.interpolate()
    (dev_corpus,) = resolve_dot_names(config, [config["training"]["dev_corpus"]])
    return list(dev_corpus(nlp))


def _dev_is_empty(nlp: Language) -> bool:
    """Whether the dev data is there, but holds no entity under the key of any component."""
    from spacy_nested_ner.evaluation.scores.fit_thresholds import scored_pipes

    keys = {pipe.key for pipe in scored_pipes(nlp).values()}
    try:
        examples = _dev_examples(nlp)
    except (OSError, ValueError):  # there is none, which the training has told of
        return False
    return bool(keys) and not any(eg.reference.spans.get(key) for eg in examples for key in keys)


def make_console_logger(
    progress_bar: Optional[str] = "train",
    output_file: Optional[Union[str, Path]] = None,
    console_output: bool = True,
) -> Callable:
    """`spacy_nested_ner.ConsoleLogger.v1`: spaCy's ConsoleLogger.v3, which at the end says which
    step `model-best` is of, and warns of a training that came to nothing. SIGTERM, which a cluster
    sends before it ends a job, ends a training as Ctrl-C does: it is saved, and this says how to go
    on.

    progress_bar: "train", which counts all steps, "eval", those to the next score, or null.
    output_file: JSON lines, one per score. console_output: false for nothing but that file.

    Raises ValueError for another progress bar.
    """
    from spacy_nested_ner.evaluation.scores.fit_thresholds import Fit, describe

    if progress_bar not in ("train", "eval", None):
        raise ValueError(f'progress_bar must be "train", "eval" or null, not {progress_bar!r}.')
    make_table = console_logger_v3(
        progress_bar=progress_bar, console_output=console_output, output_file=output_file
    )

    def setup(
        nlp: Language, stdout: IO = sys.stdout, stderr: IO = sys.stderr
    ) -> Tuple[Callable[[Optional[Dict[str, Any]]], None], Callable[[], None]]:
        log_row, end_table = make_table(nlp, stdout, stderr)
        signals = ExitStack()
        signals.enter_context(ended_tidily())
        scores: List[Tuple[float, int]] = []
        thresholds: Dict[int, Dict[str, Any]] = {}
        given: Set[str] = set()
        steps = 0
        saved_to = ""

        def log_step(info: Optional[Dict[str, Any]]) -> None:
            nonlocal steps, saved_to
            steps += 1
            if info is not None:
                saved_to = info.get("output_path", "")
                scores.append((info["score"], info["step"]))
                thresholds[info["step"]] = nlp.meta.get("thresholds", {})
                given.update(info["other_scores"])
            log_row(info)

        def finalize() -> None:
            signals.close()  # what is saved then has the same handling
            end_table()
            if not console_output:
                return
            msg = Printer(no_print=True)
            on_terminal = stdout.isatty() and not os.environ.get("NO_COLOR")
            msg.show_color = msg.show_color and on_terminal
            if scores:
                best, step = max(scores)
                name = "model-best" if saved_to else "Best"
                print(msg.info(f"{name}: step {step}, score {best:.2f}"), file=stdout)
                for name, fit in thresholds[step].items():
                    print(msg.info(f"'{name}': {describe(Fit(**fit))}"), file=stdout)
            if _is_interrupted():
                print(msg.warn(f"Interrupted after {steps} steps."), file=stdout)
                print(_how_to_go_on(nlp, saved_to, bool(scores)), file=stdout)
            elif scores and sys.exc_info()[1] is None:  # else spaCy has told of the error
                gain = max((fit["f"] for fit in thresholds[step].values()), default=0)
                problems = _problems(nlp, scores, given, steps - 1, gain)
                idle = _idle(nlp, thresholds[step])
                for problem in (*problems, *idle, *_unlearned(nlp, steps - 1)):
                    print(msg.warn(problem), file=stdout)

        return log_step, finalize

    return setup


def _how_to_go_on(nlp: Language, saved_to: str, is_scored: bool) -> str:
    if not saved_to:
        why = "There was no --output" if is_scored else "That was before the first evaluation"
        return f"{why}: nothing was saved to continue from."
    block = srsly.json_dumps({"source": Path(saved_to).as_posix()})
    source = list2cmdline([block]) if IN_CMD_EXE else shlex.quote(block)  # cmd.exe, or a shell
    learning = [name for name, pipe in nlp.pipeline if getattr(pipe, "is_trainable", False)]
    again = " ".join(f"--components.{name} {source}" for name in learning)
    return f"To continue from {saved_to}, train again with another --output and\n{again}"


def _problems(
    nlp: Language,
    scores: List[Tuple[float, int]],
    given: Set[str],
    last_step: int,
    fitted: float,
) -> List[str]:
    """What is wrong with a training, each with the remedy. scores: with their steps. given: names
    of scores that components give. fitted: F at the best threshold."""
    found = []
    best, best_step = max(scores)
    training = nlp.config.interpolate()["training"]
    weights = training["score_weights"].items()
    missing = [key for key, weight in weights if weight and key not in given]
    is_empty = bool(missing or not best) and _dev_is_empty(nlp)
    if missing and not is_empty:  # data without gold have no scores either
        for_ents = "set set_ents"
        if any((getattr(pipe, "cfg", None) or {}).get("set_ents") for _, pipe in nlp.pipeline):
            for_ents = "the dev data need entities in doc.ents"
        found.append(
            f"[training.score_weights] names {', '.join(missing)}, but no component computes this, "
            "so it counts as 0. For nested_f, remove a [components.NAME.scorer] that comes from "
            f"another factory; for ents_f, {for_ents}; or name other scores."
        )
        if not best:
            return found
    by_time = training["batcher"]["@batchers"] == UNTIL_TIME_IS_UP
    length = "--training.batcher.minutes" if by_time else "--training.max_steps"
    first_best = min(step for score, step in scores if score == best)
    rising = _still_rising(training["optimizer"], last_step)
    cut = _cut_short(training, last_step, last_step - first_best)
    if cut == "patience" and best:
        rising = ""  # it is there to end a training that gains nothing more
    elif cut and (rising or not best):
        return [
            *found,
            f"{cut} ended the training at step {last_step} of {training['max_steps']}. The "
            "schedules of learning rate and evaluation follow max_steps: set --training.max_steps "
            f"{last_step} or more, and --training.{cut} 0.",
        ]
    if len(scores) == 1 and last_step and not is_empty:
        found.append(
            f"Only step 0 was scored, and the training ended at step {last_step}: model-best is "
            "the pipeline before the training, model-last the one after it. Set "
            f"--training.eval_frequency to {last_step} or less."
        )
    elif not best and fitted:
        found.append(
            "The score is 0: no right entity in the dev data reaches the threshold of the config. "
            f"The saved pipeline has a lower threshold. Train longer ({length})."
        )
    elif not best and is_empty:
        found.append(
            "The score is 0: the dev data has no entity under the key of a component. Give other "
            "data with --paths.dev, or set spans_key to the key of the annotation."
        )
    elif not best:
        found.append(
            "The score is 0: the pipeline finds no right entity in the dev data. Train longer "
            f"({length}), and check the data with `nested-ner inspect`."
        )
    elif best_step == 0 < last_step:
        found.append(
            f"model-best is from step 0 of {last_step}: no later score was better. Evaluate more "
            "often (--training.eval_frequency) or lower the learning rate."
        )
    if rising:
        found.append(
            f"Training ended at step {last_step}, while the learning rate was still rising. Train "
            f"longer, or set warmup_steps of [training.optimizer.{rising}] to a share of the "
            "steps, such as 0.08 with spacy_nested_ner.warmup_linear.v1."
        )
    return found


def _idle(nlp: Language, fits: Dict[str, Any]) -> Iterator[str]:
    """Components that find nothing right beside others that do, which alone the score does not
    show. fits: by component, those of the best step."""
    from spacy_nested_ner.evaluation.scores.fit_thresholds import NOTHING_RIGHT, scored_pipes

    missing = {name: pipe.key for name, pipe in scored_pipes(nlp).items() if name not in fits}
    if fits and missing:  # else there is one, or the score is 0
        _, reasons = _fit_on_dev(nlp, 1.0, known=fits)
        for name, key in missing.items():
            if reasons.get(name) == NOTHING_RIGHT:
                yield (
                    f"'{name}': {NOTHING_RIGHT}, and check its data with `nested-ner inspect "
                    f"--spans-key {key}`."
                )


def _unlearned(nlp: Language, last_step: int) -> Iterator[str]:
    """Labels that a component has, of which it got no gold."""
    from spacy_nested_ner.evaluation.scores.remarks import some

    for name, pipe in nlp.pipeline:
        if missing := getattr(pipe, "unpractised", ()):
            yield (
                f"'{name}': in {last_step} steps it has learned from no entity with the labels "
                f"{some(missing)}. The training data have none, or none that can be used, or the "
                "training was shorter than a pass over them. Texts without such entities teach "
                "that there are none: to keep what was known of them, see 'Continue training' in "
                "docs/guide/pipelines.md."
            )


def _cut_short(training: Dict[str, Any], last_step: int, without_gain: int) -> str:
    """The setting that ended a training well before max_steps, "" if none did."""
    if last_step >= WHOLE * training["max_steps"]:
        return ""
    if 0 < training["patience"] <= without_gain:
        return "patience"
    return "max_epochs" if training["max_epochs"] > 0 else ""


def _still_rising(optimizer: Dict[str, Any], last_step: int) -> str:
    """The learning rate that has risen from the first step to the last one, "" for none."""
    for name in RATES:
        rate = optimizer.get(name)
        if isinstance(rate, dict) and rate.get("@schedules") != LINEAR_OVER_TIME and last_step > 0:
            schedule = registry.resolve({"rate": rate})["rate"]
            rates = list(islice(schedule, last_step + 1))
            # Some schedules go up and down all the time.
            if len(rates) > 1 and rates == sorted(rates) and rates[-2] < rates[-1]:
                return name
    return ""
