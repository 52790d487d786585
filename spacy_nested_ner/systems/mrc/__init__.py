"""A Unified MRC Framework for Named Entity Recognition (Li et al. 2020)."""

from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_nested_ner.systems.base import ModelSettings, Options, System
from spacy_nested_ner.systems.mrc.questions import (
    answered_and_share,
    collect_questions,
    from_template,
    questions_of,
    read_questions,
    report_alike,
    report_templates,
    set_question,
)
from spacy_nested_ner.systems.mrc.settings import ATTENTION_HEADS, MRCOptions, MRCSettings

# Inner width of each layer over a tok2vec, times hidden_width.
FEEDFORWARD = 2


class MRCSystem(System):
    """Reads pairs of segment and question. Its questions are attributes of the model."""

    def encoder(
        self, tok2vec: Any, submodels: Mapping[str, Any], settings: ModelSettings
    ) -> Tuple[Any, ModelSettings]:
        from spacy_nested_ner.encoders.protocol import PairEncoderModel, check_encoder, listens

        assert isinstance(settings, MRCSettings)
        own = submodels["question_tok2vec"]
        if isinstance(tok2vec, PairEncoderModel):
            if own is not None:
                raise ValueError(
                    "a PairEncoder reads the questions itself, question_tok2vec must be null"
                )
            return tok2vec, replace(settings, two_sided=tok2vec.two_sided)
        check_encoder(tok2vec)
        check_encoder(own, "the question_tok2vec")
        if listens(own or tok2vec):
            name = "tok2vec" if own is None else "question_tok2vec"
            raise ValueError(
                f"the {name} is a listener, which reads the docs of the pipeline and no questions. "
                "Give question_tok2vec an encoder of its own, e.g. a spacy.HashEmbedCNN.v2"
            )
        from spacy_nested_ner.encoders.cross_encoder import build_cross_encoder

        encoder = build_cross_encoder(
            tok2vec, own, settings.hidden_width, settings.joint_layers, ATTENTION_HEADS, FEEDFORWARD
        )
        return encoder, settings

    def keeps_spans(self, settings: ModelSettings, options: Options) -> bool:
        """Not where a start goes with the nearest end, which may be another one."""
        assert isinstance(settings, MRCSettings) and isinstance(options, MRCOptions)
        return settings.pairing != "nearest" and options.decoding != "flat"

    def attributes(self, settings: ModelSettings) -> Dict[str, Any]:
        assert isinstance(settings, MRCSettings)
        names = ("questions", "question_source", "query_kind", "unanswered_share")
        return {"questions_read": {}, **{name: getattr(settings, name) for name in names}}

    def prepare(self, model: Any) -> None:
        collect_questions(model)

    def questions(self, model: Any) -> List[str]:
        return questions_of(model)

    def questions_from(
        self, source: Optional[str]
    ) -> Tuple[Mapping[str, str], Callable[[str], str]]:
        return read_questions(source), from_template

    def training_pairs(self, model: Any, pairs: Any, gold: Any) -> Any:
        share = model.attrs["unanswered_share"]
        return slice(None) if share == 1 else answered_and_share(pairs, gold, share)

    def describe_label(self, model: Any, label: str, **details: Any) -> None:
        question = details.pop("question", None)
        if details:
            raise ValueError(f"a label has a 'question' beside its name, no {', '.join(details)}")
        if question is not None:
            set_question(model, label, question)
            report_alike(model, [label])

    def labels_added(self, model: Any, labels: List[str]) -> None:
        report_templates(model, labels)
        report_alike(model, labels)


SUBMODELS = (("question_tok2vec", Optional[Model[List[Doc], List[Floats2d]]]),)
TITLE = "A Unified MRC Framework for Named Entity Recognition"
SYSTEM = MRCSystem("mrc", "MRC", TITLE, MRCSettings, MRCOptions, SUBMODELS)
