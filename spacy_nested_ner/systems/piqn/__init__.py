"""Parallel Instance Query Network (Shen et al. 2022)."""

from dataclasses import replace
from typing import Any, List, Mapping, Tuple

from spacy_nested_ner.systems.base import Limit, ModelSettings, System
from spacy_nested_ner.systems.piqn.settings import MIN_QUERIES, PIQNOptions, PIQNSettings


class PIQNSystem(System):
    """Reads queries from the encoder where it has them."""

    def encoder(
        self, tok2vec: Any, submodels: Mapping[str, Any], settings: ModelSettings
    ) -> Tuple[Any, ModelSettings]:
        from spacy_nested_ner.encoders.protocol import QueryEncoderModel, check_encoder

        assert isinstance(settings, PIQNSettings)
        has_queries = isinstance(tok2vec, QueryEncoderModel)
        if has_queries != (settings.query_source == "encoder"):
            raise ValueError(
                "query_source 'encoder' and the tok2vec 'spacy_nested_ner.QueryEncoder.v1' can "
                f"only be used together; got query_source '{settings.query_source}' with "
                f"{'that' if has_queries else 'another'} tok2vec"
            )
        if has_queries:
            settings = replace(settings, n_queries=tok2vec.n_queries)
            if tok2vec.query_interaction != settings.query_interaction:
                raise ValueError(
                    f"query_interaction is {settings.query_interaction} here and "
                    f"{tok2vec.query_interaction} in the tok2vec, so that queries would see each "
                    "other in one half of the model only. Set both to the same value"
                )
        else:
            check_encoder(tok2vec)
        return tok2vec, settings

    def limits(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> List[Limit]:
        if settings["query_source"] == "words":
            per_word = settings["queries_per_word"]
            return [
                Limit(
                    "queries",
                    {"queries_per_word": per_word},
                    "raise queries_per_word",
                    entities=lambda words: max(per_word * words, MIN_QUERIES),
                )
            ]
        in_encoder = settings["query_source"] == "encoder"
        count = (settings["tok2vec"] if in_encoder else settings)["n_queries"]
        remedy = "raise n_queries" + (" of the tok2vec" if in_encoder else "")
        return [Limit("queries", {"n_queries": count}, remedy, entities=lambda words: count)]


TITLE = "Parallel Instance Query Network for Named Entity Recognition"
SYSTEM = PIQNSystem("piqn", "PIQN", TITLE, PIQNSettings, PIQNOptions)
