"""Choosing the thresholds of a trained pipeline on data that it was not trained on."""

from __future__ import annotations

import copy
from typing import Any, Collection, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from spacy.language import Language
from spacy.training import Example

from spacy_nested_ner.evaluation.scores.entities import (
    Entity,
    EntityTable,
    entity_table,
    is_annotated,
    read_entities,
)
from spacy_nested_ner.evaluation.scores.own_thresholds import LOWEST, changed, is_searchable
from spacy_nested_ner.evaluation.scores.remarks import FEW_ENTITIES, MANY_STRANGE, some
from spacy_nested_ner.evaluation.scores.report import each_with
from spacy_nested_ner.evaluation.scores.thresholds import (
    ThresholdChoice,
    best_of,
    best_threshold,
    f_at,
    rates_at,
    tolerance,
)
from spacy_nested_ner.settings import Setting
from spacy_nested_ner.warn import warn

PASSES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BETA = Setting(above=0, most=1000)
NOTHING_RIGHT = "it finds no right entity at any threshold; train it longer"


class Fit(NamedTuple):
    """A threshold for a component, and the strict micro F on the data at it, with precision and
    recall; the same of the threshold that it has now. F is F-beta where `beta` is not 1."""

    threshold: float
    f: float
    old_threshold: float
    old_f: float
    precision: Optional[float] = None
    recall: Optional[float] = None
    old_precision: Optional[float] = None
    old_recall: Optional[float] = None
    beta: float = 1.0


def describe(fit: Fit) -> str:
    """A fit in words, scores in percent."""
    new = _scores(fit.beta, fit.f, fit.precision, fit.recall)
    if fit.threshold == fit.old_threshold:
        return f"threshold {fit.threshold:.9g} is kept, none is better ({new})"
    old = _scores(fit.beta, fit.old_f, fit.old_precision, fit.old_recall)
    # Nine digits tell all float32 apart.
    return f"threshold {fit.threshold:.9g} ({new}; at {fit.old_threshold:.9g} {old})"


def _scores(beta: float, f: float, precision: Optional[float], recall: Optional[float]) -> str:
    """F or, with a beta of 2, F2; and the others, if known."""
    shown = [(f"F{'' if beta == 1 else f'{beta:g}'}", f), ("P", precision), ("R", recall)]
    return ", ".join(f"{name} {100 * value:.1f}" for name, value in shown if value is not None)


def fit_thresholds(
    nlp: Language, examples: Sequence[Example], skip: Collection[str] = (), beta: float = 1.0
) -> Tuple[Dict[str, Fit], Dict[str, str]]:
    """The best threshold of each component that scores spans: those of this package and spaCy's
    `spancat`. Nothing is changed.

    One prediction at a low threshold shows what all higher ones give, see `best_threshold`. Where
    that is not so, see `is_searchable`, or spans have no scores, a component predicts once at each
    of `PASSES`. A threshold that is as good as the best one stays.

    examples: with the docs to predict on as the pipeline will get them, as `spacy.training.Corpus`
        makes them.
    skip: names of components whose thresholds are not to be fitted.
    beta: the best threshold has the highest F-beta: recall weighs so many times as much.
    RETURNS: By component, the fits; and why there is none for the others, as the end of a sentence.
    RAISES (ValueError): If beta is out of its range.
    """
    check_beta("beta", beta)
    fits: Dict[str, Fit] = {}
    reasons = dict.fromkeys(nlp.pipe_names, "it has no threshold for scored spans")
    pipes = scored_pipes(nlp)
    writers = {pipe.key: name for name, pipe in pipes.items()}
    for name, pipe in pipes.items():
        if name in skip:
            del reasons[name]
            continue
        gold = [eg for eg in examples if is_annotated(eg.reference, pipe.key)]
        if writers[pipe.key] != name:
            reasons[name] = f"'{writers[pipe.key]}' writes to its key '{pipe.key}' after it"
        elif not any(len(eg.reference.spans[pipe.key]) for eg in gold):
            reasons[name] = f"the data has no entity under its key '{pipe.key}'"
            if any(eg.reference.ents for eg in examples):
                reasons[name] += f". Set doc.spans['{pipe.key}'] = list(doc.ents) in its docs"
        else:
            fit = _fit(nlp, pipe, gold, beta, by_passes=not is_searchable(nlp, name))
            if isinstance(fit, Fit):
                fits[name] = fit
                del reasons[name]
            else:
                reasons[name] = fit
    return fits, reasons


def check_beta(name: str, beta: float) -> None:
    """Raises ValueError for what is not a number in the range of `BETA`."""
    if not BETA.holds(beta, float):
        raise ValueError(f"{name} must be {BETA.expected(float)}, not {beta!r}.")


def scored_pipes(nlp: Language) -> Dict[str, Any]:
    """The components that have a threshold and a key of `doc.spans`, by name."""
    found: Dict[str, Any] = {}
    for name, pipe in nlp.pipeline:
        cfg = getattr(pipe, "cfg", None)
        threshold = cfg.get("threshold") if isinstance(cfg, dict) else None
        if isinstance(threshold, (int, float)) and isinstance(getattr(pipe, "key", None), str):
            found[name] = pipe
    return found


def with_thresholds(nlp: Language, fits: Dict[str, Fit]) -> Language:
    """The pipeline with these thresholds, to be saved.

    It shares everything else with the pipeline given, whose components keep their own thresholds,
    so that training goes on with those of the config. `meta["thresholds"]` tells of them.
    """
    nlp.meta["thresholds"] = {name: fit._asdict() for name, fit in fits.items()}
    fitted = copy.copy(nlp)
    fitted._components = [
        (name, _copy_at(pipe, fits[name].threshold) if name in fits else pipe)
        for name, pipe in nlp.components
    ]
    return fitted


def _copy_at(pipe: Any, threshold: float) -> Any:
    copied = copy.copy(pipe)
    copied.cfg = {**pipe.cfg, "threshold": threshold}
    return copied


def _fit(
    nlp: Language, pipe: Any, examples: List[Example], beta: float, by_passes: bool
) -> Fit | str:
    old = pipe.cfg["threshold"]
    low = min(LOWEST, old)
    values = sorted({*PASSES, old}) if by_passes else [low]
    tables = {value: scored_table(nlp, pipe, examples, value) for value in values}
    at = {value: tables.get(value, tables[values[0]]) for value in (*values, old)}
    same = tolerance(at[old])
    if by_passes:
        choice = best_of(values, [f_at(at[value], value, beta) for value in values], same)
    else:
        choice = best_threshold(at[old], low, beta)
        if choice is None and np.isnan(at[old].score[at[old].predicted]).any():
            return _fit(nlp, pipe, examples, beta, by_passes=True)
    if choice is None:
        return NOTHING_RIGHT
    present = ThresholdChoice(old, f_at(at[old], old, beta))
    chosen = present if choice.f - present.f <= same else choice
    _tell_of_strange_labels(pipe, at[old], chosen)
    new = at.get(chosen.threshold, at[old])
    rates = (*rates_at(new, chosen.threshold), *rates_at(at[old], old))
    return Fit(*chosen, *present, *rates, beta)


def _tell_of_strange_labels(pipe: Any, table: EntityTable, chosen: ThresholdChoice) -> None:
    """Warn of a higher threshold if many predictions have labels without gold: they count as wrong,
    so that it seems better."""
    least = pipe.cfg["threshold"]
    if chosen.threshold <= least or table.gold.sum() < FEW_ENTITIES:
        return
    with_gold = np.unique(table.label[table.gold])
    predicted = table.label[table.predicted & ~(table.score < least)]
    strange = ~np.isin(predicted, with_gold)
    if strange.sum() > MANY_STRANGE * len(predicted):
        known = {table.labels[i] for i in with_gold}
        missing = some([label for label in pipe.labels if label not in known])
        warn(
            f"Component '{pipe.name}': the data that its threshold is chosen on have no entity "
            f"with the labels {missing}. Such predictions count as wrong there, so that the "
            "threshold becomes higher than it should be. Annotate these labels there, too, or set "
            f"nlp.get_pipe('{pipe.name}').cfg['threshold'] afterwards."
        )


def scored_table(
    nlp: Language, pipe: Any, examples: Sequence[Example], threshold: float
) -> EntityTable:
    """Gold and predicted entities under a component's key, with the component at a threshold."""
    found: List[Dict[Entity, float]] = []
    with changed(pipe, threshold=threshold):
        docs = nlp.pipe(eg.predicted.copy() for eg in examples)
        for _, doc in each_with(examples, docs):
            found.append(read_entities(doc, pipe.key) or {})
    return entity_table((eg.reference for eg in examples), found, pipe.key, False)
