"""Docs as a pipeline gets them from raw text, and with the tokens and sentences of the reference.

A user hands over text; published figures are on gold tokens, which can give boundaries away.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_nested_ner.pipeline.scorer import solid_offsets
from spacy_nested_ner.pipeline.sentences import has_sentences, set_sentences
from spacy_nested_ner.pipeline.tokens import make_doc

EXAMPLES = 3
NEAR = 80
"""Characters before and behind a difference that an example shows; a doc may be one sentence."""


def raw_text(reference: Doc) -> Optional[str]:
    """The text of a reference, None where only its words are known.

    `nested-ner convert` keeps the text of a corpus in `user_data["text"]` where the corpus has
    tokens of its own, with which a doc cannot say where its spaces are.
    """
    if not reference.has_unknown_spaces:
        return reference.text
    text = reference.user_data.get("text")
    if isinstance(text, str) and "".join(text.split()) == "".join(reference.text.split()):
        return text
    return None


def raw_doc(nlp: Language, reference: Doc) -> Doc:
    """What the tokenizer makes of the text; where it is not known, of the words with blanks."""
    text = raw_text(reference)
    return make_doc(nlp, " ".join(t.text for t in reference) if text is None else text)


def gold_doc(vocab: Vocab, reference: Doc) -> Doc:
    """A doc with the tokens and sentences of a reference, and nothing else of it."""
    starts: Optional[List[Union[bool, int, None]]] = None
    if has_sentences(reference):
        starts = [bool(token.is_sent_start) for token in reference]
    return Doc(
        vocab,
        words=[token.text for token in reference],
        spaces=[bool(token.whitespace_) for token in reference],
        sent_starts=starts,
    )


def same_sentences(a: Doc, b: Doc) -> bool:
    """Whether sentences start at the same characters; a doc without boundaries is one sentence."""
    return _sentence_starts(a) == _sentence_starts(b)


def _sentence_starts(doc: Doc) -> Set[int]:
    """Characters at which sentences but the first start, whitespace not counted."""
    starts = [doc[start].idx for start, _ in set_sentences(doc)[1:]]
    return set(solid_offsets(doc.text)[starts].tolist()) - {0} if starts else set()


def compare_tokens(nlp: Language, references: Iterable[Doc]) -> Dict[str, Any]:
    """How far the tokens that a pipeline is trained on are those that it makes of raw text.

    Where a reference knows its spaces, spaCy trains on the tokens that the pipeline makes.

    RETURNS: "sentences"; "differing", those with other tokens, and "differing_percent"; "examples",
        up to three of them, with the tokens of the "data" and of the "pipeline" near the first
        difference.
    """
    sentences, differing = 0, 0
    examples: List[Dict[str, str]] = []
    for reference in references:
        parts = [reference[start:end] for start, end in set_sentences(reference)]
        sentences += len(parts)
        if not reference.has_unknown_spaces:
            continue
        made = raw_doc(nlp, reference)
        gold, found = _places(reference), _places(made)
        other = [place[0] for place in set(gold) ^ set(found)]
        for part in parts if other else ():
            first, last = gold[part.start][0], gold[part.end - 1][1]
            here = [start for start in other if first <= start < last]
            if not here:
                continue
            differing += 1
            if len(examples) < EXAMPLES:
                begin, end = max(first, min(here) - NEAR), min(last, min(here) + NEAR)
                cut = ("... " if begin > first else "", " ..." if end < last else "")
                shown = (_spaced(reference, gold, begin, end), _spaced(made, found, begin, end))
                data, pipeline = (text.join(cut) for text in shown)
                examples.append({"data": data, "pipeline": pipeline})
    return {
        "sentences": sentences,
        "differing": differing,
        "differing_percent": 100 * differing / max(1, sentences),
        "examples": examples,
    }


def _places(doc: Doc) -> List[Tuple[int, int]]:
    """First character and the one after the last of each token, whitespace not counted."""
    solid = solid_offsets(doc.text)
    return [(int(solid[token.idx]), int(solid[token.idx + len(token)])) for token in doc]


def _spaced(doc: Doc, places: Sequence[Tuple[int, int]], begin: int, end: int) -> str:
    """The tokens that begin between two characters, see `_places`."""
    inside = (token for token, (start, _) in zip(doc, places) if begin <= start < end)
    return " ".join(token.text for token in inside if not token.is_space)
