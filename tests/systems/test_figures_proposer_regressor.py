from __future__ import annotations

from spacy_nested_ner.systems.proposer_regressor.figures import refinement_paths
from tests.systems.views import predicted, view_of, views_of_docs


def test_refinement_ends_with_the_entities():
    for view in views_of_docs(view_of("proposer_regressor_ner"))[:4]:
        paths = refinement_paths(view)
        assert {path.stages.shape for path in paths} == {(4, 2)}  # proposer, 2 layers, entity
        ends = {(int(p.stages[-1, 0]), int(p.stages[-1, 1]) + 1, p.label) for p in paths}
        assert ends == predicted(view)
