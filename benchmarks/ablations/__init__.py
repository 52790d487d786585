"""One table of variants for each system, in the module of its name, and one for any system on a
pretrained encoder, "transformer".

CONFIG: name of the shipped config that they start from. VARIANTS: by name, the settings of the
model that differ from it, those of its encoder under "tok2vec"; those of the component itself under
"component"; those that change predictions alone under "run_time": a variant that has no others than
the one before it is not trained.
"""

from importlib import import_module
from typing import Any, Dict, Tuple

import typer

from spacy_nested_ner.systems import all_systems

Variants = Dict[str, Dict[str, Any]]


def table_of(system: str) -> Tuple[str, Variants]:
    """`CONFIG` and `VARIANTS` of a table.

    Raises typer.BadParameter for one that is not known.
    """
    names = [*(each.name for each in all_systems()), "transformer"]
    if system not in names:
        raise typer.BadParameter(f"There is no table '{system}', only {', '.join(names)}.")
    module = import_module(f"{__name__}.{system}")
    return module.CONFIG, module.VARIANTS
