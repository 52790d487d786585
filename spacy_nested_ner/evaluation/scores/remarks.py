"""What deserves attention in the scores of a pipeline, each in a sentence with the remedy."""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence

from spacy.language import Language

from spacy_nested_ner.evaluation.scores.metrics import PRF

WORTH_A_REMARK = 0.01
"""Difference of F between raw text and gold tokens."""
A_CAUSE = 0.1
"""Other tokens, or other sentences, in fewer docs than this share of the other explain little."""
SHOWN = 5
"""Names in a remark, at most."""
FEW_ENTITIES, LITTLE = 20, 0.05
"""From so many gold entities on, an F below this is no accident."""
MANY_STRANGE = 0.05
"""Share of the predictions that may have labels which the gold data lack, without a remark."""
LONGER = "Train it longer: more steps, and a warm-up that ends long before the last step."


def known_labels(nlp: Language, spans_key: str) -> List[str]:
    """Labels of the components that write under a spans key, as far as they tell."""
    pipes = (pipe for _, pipe in nlp.pipeline if getattr(pipe, "key", None) == spans_key)
    return [label for pipe in pipes for label in getattr(pipe, "labels", ())]


def sets_sentences(nlp: Language) -> bool:
    """Whether a component sets sentence boundaries, as a sentencizer does."""
    return any("token.is_sent_start" in nlp.get_pipe_meta(name).assigns for name in nlp.pipe_names)


def remark(
    by_label: Mapping[str, PRF],
    threshold: Optional[Mapping[str, Any]] = None,
    known: Collection[str] = (),
) -> Optional[str]:
    """What is wrong with a pipeline that finds nothing, or next to nothing, and what helps; or that
    it lacks labels of the gold data, or many predictions have labels that these lack.

    by_label: strict scores. threshold: of the component that predicts, if known, see
        `threshold_facts`. known: see `known_labels`.
    """
    counts = [(score.right, score.predicted, score.gold) for score in by_label.values()]
    score = PRF(*map(sum, zip(*counts or [(0, 0, 0)])))
    labels = {label for label, each in by_label.items() if each.gold}
    predicted = {label for label, each in by_label.items() if each.predicted}
    own = predicted or set(known)
    if labels and own and not labels & own:
        whose = "predicted labels" if predicted else "labels of the pipeline"
        return (
            f"None of the {whose} ({some(sorted(own))}) occurs in the gold data "
            f"({some(sorted(labels))}), so no prediction can be right. Use a pipeline trained on "
            "data with the same labels."
        )
    if not score.predicted:
        return _nothing_predicted(score.gold, threshold)
    if not score.right or (score.gold >= FEW_ENTITIES and (score.f or 0.0) < LITTLE):
        return (
            f"Next to nothing is right: {score.right} of {score.predicted} predictions, with "
            f"{score.gold} gold entities. The pipeline has hardly learned anything. {LONGER}"
        )
    if known and (unknown := labels - predicted - set(known)):
        lost = sum(by_label[label].gold for label in unknown)
        return (
            f"The pipeline cannot find {lost} of {score.gold} gold entities, because it does not "
            f"have their labels ({some(sorted(unknown))})."
        )
    return _strange(by_label)


def _strange(by_label: Mapping[str, PRF]) -> Optional[str]:
    """That many predictions have labels that the gold data lack."""
    predicted, gold = (sum(getattr(s, n) for s in by_label.values()) for n in ("predicted", "gold"))
    strange = {label: score.predicted for label, score in by_label.items() if not score.gold}
    wrong = sum(strange.values())
    if gold < FEW_ENTITIES or wrong <= MANY_STRANGE * predicted:
        return None
    return (
        f"{wrong} of {predicted} predictions have labels that the gold data lack "
        f"({some(sorted(strange))}), so they count as wrong. If such entities are there, but not "
        "annotated, annotate them."
    )


def _nothing_predicted(gold: int, threshold: Optional[Mapping[str, Any]]) -> str:
    nothing = f"The pipeline predicts no entity at all, although there are {gold}"
    if threshold is None:
        return (
            f"{nothing}. It has learned too little, its threshold is too high, or its rules do not "
            f"fit. {LONGER} Or lower the `threshold` of its component, or check its rules."
        )
    name = threshold["component"]
    if threshold["highest_score"] is None:
        lowest = threshold["lowest"]
        reach = "" if lowest is None else f", not even at a threshold of {lowest:g}"
        return f"{nothing}{reach}: component {name!r} has learned nothing yet. {LONGER}"
    best = threshold["best"]
    gain = f"F is {100 * best['f']:.2f} at {best['threshold']:.9g}" if best else ""
    remedy = (
        f" Or set a lower threshold: {gain}."
        if best
        else " The predictions below the threshold are wrong."
    )
    highest = f"{threshold['highest_score']:.2f}"
    if float(highest) >= threshold["threshold"]:
        highest = f"{threshold['highest_score']:.9g}"
    return (
        f"{nothing}: no score reaches the threshold of {threshold['threshold']:.9g} of component "
        f"{name!r}, the highest is {highest}. {LONGER}{remedy}"
    )


def some(names: Sequence[str]) -> str:
    """The first ones, and how many there are beside them."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def of_all(lost: Mapping[str, int], kept: Mapping[str, int]) -> str:
    """The labels that lost entities, those that lost the largest share first, with how many of all
    they had."""
    ordered = sorted(lost, key=lambda label: (kept.get(label, 0) / lost[label], -lost[label]))
    return some(
        [f"{label} ({lost[label]} of {lost[label] + kept.get(label, 0)})" for label in ordered]
    )


def left_out(lost: Mapping[str, int], kept: Mapping[str, int]) -> Optional[str]:
    """That gold entities are missing from the data, if some are. kept: those that are there."""
    if not lost:
        return None
    return (
        f"{sum(lost.values())} gold entities begin or end inside a token, so convert left them out "
        f"and they are missing from these scores: {of_all(lost, kept)}. A pipeline with these "
        "tokens cannot find them: its true recall is lower."
    )


def remarks(
    found: Dict[str, Any],
    spans_key: str,
    known: Collection[str] = (),
    own_sentences: bool = False,
) -> Iterator[str]:
    """On the numbers of `Evaluation.to_dict`. known: see `known_labels`. own_sentences: see
    `sets_sentences`."""
    own = next((each for each in found["thresholds"] if each["spans_key"] == spans_key), None)
    counts = {
        label: PRF(each["right"], each["predicted"], each["gold"])
        for label, each in found["strict"]["by_label"].items()
    }
    if found["scored_on"] == "predictions":
        yield from _of_predictions(found, counts)
        return
    little = remark(counts, own, known)
    if little is not None:
        yield little
    if found["raw_text"] is None:
        return
    raw, gold = found["raw_text"]["f"], found["gold_tokens"]["f"]
    if abs(gold - raw) < WORTH_A_REMARK:
        return
    text = "words joined by spaces" if found["documents_without_text"] else "raw text"
    yield (
        f"F is {100 * raw:.2f} on {text} and {100 * gold:.2f} with gold tokens and sentences. "
        + " ".join(_remedies(found, raw > gold, own_sentences))
    )


def _of_predictions(found: Mapping[str, Any], by_label: Mapping[str, PRF]) -> Iterator[str]:
    """On those that were given: nothing was trained, so nothing is to be trained longer."""
    if not any(score.right for score in by_label.values()):
        predicted = sorted(label for label, score in by_label.items() if score.predicted)
        gold = sorted(label for label, score in by_label.items() if score.gold)
        yield (
            f"No prediction is right. Labels of the predictions: {some(predicted) or 'none'}; of "
            f"the gold data: {some(gold)}."
        )
    elif strange := _strange(by_label):
        yield strange
    if missing := found["documents_without_prediction"]:
        yield f"{missing} annotated docs are left out: no prediction is left with their text."
    if unasked := found["predicted_documents_left_out"]:
        yield f"{unasked} predicted docs are left out: no annotated doc is left with their text."
    if lost := found["misaligned_in_predictions"]:
        yield (
            f"{sum(lost.values())} predicted entities begin or end inside a token, so convert left "
            f"them out and they are missing from these scores: {some(sorted(lost))}. With --tokens "
            "cut or character it keeps them."
        )


def _remedies(found: Dict[str, Any], better_raw: bool, own_sentences: bool) -> Iterator[str]:
    tokens, sentences = (found[f"documents_with_other_{what}"] for what in ("tokens", "sentences"))
    few = A_CAUSE * max(tokens, sentences)
    unknown = "; it did not learn from such"
    if tokens > few:
        remedy = (
            ": train in the language of the data, or convert the training data with --tokens "
            "spacy and train again."
        )
        if better_raw:
            remedy = (
                f"{unknown} tokens: train in the language of the data, or convert this data with "
                "--tokens spacy to compare."
            )
        yield f"In {tokens} docs the tokens of the data differ from the pipeline's{remedy}"
    if sentences > few:
        remedy = (
            ": add a sentencizer or senter before the component, or train on docs as long as those "
            "it will read."
        )
        if better_raw:
            remedy = f"{unknown} sentences."
        elif own_sentences:
            remedy = ": use another component for sentences, such as a trained senter."
        yield f"In {sentences} docs the sentences of the data differ from the pipeline's{remedy}"
    if better_raw and not found["documents_without_text"]:
        yield "The score on raw text is what users get."
