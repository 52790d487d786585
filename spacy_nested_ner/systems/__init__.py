"""The systems: one paper, one folder, one line here."""

from typing import Dict, List, Union

from spacy_nested_ner.systems.base import System, locate

# Where each system is: it is imported when it is asked for.
TABLE: Dict[str, Union[str, System]] = {
    "piqn": "spacy_nested_ner.systems.piqn:SYSTEM",
    "locate_and_label": "spacy_nested_ner.systems.locate_and_label:SYSTEM",
    "diffusion": "spacy_nested_ner.systems.diffusion:SYSTEM",
    "proposer_regressor": "spacy_nested_ner.systems.proposer_regressor:SYSTEM",
    "mrc": "spacy_nested_ner.systems.mrc:SYSTEM",
}

# By the F1 that they reach in equal time, see docs/benchmarks.md: which one `init` takes first. The
# one that wants a question for each label is last.
BEST_FIRST = ("locate_and_label", "proposer_regressor", "piqn", "diffusion", "mrc")
# Those that learn more from few sentences by adversarial training, in half of the steps, see
# docs/benchmarks.md.
ADVERSARIAL_FROM_FEW = ("locate_and_label", "piqn", "mrc")


def get_system(name: str) -> System:
    """A system by the name of its folder.

    RAISES (ValueError): If there is none of that name.
    """
    if name not in TABLE:
        raise ValueError(f"There is no system '{name}', only {', '.join(TABLE)}.")
    place = TABLE[name]
    return locate(place) if isinstance(place, str) else place


def all_systems() -> List[System]:
    """All systems, in the order of the table."""
    return [get_system(name) for name in TABLE]
