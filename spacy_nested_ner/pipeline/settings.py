"""Settings that all components have."""

from dataclasses import dataclass
from typing import ClassVar, Optional

from spacy_nested_ner.systems.settings import Settings, setting


@dataclass(frozen=True)
class ComponentSettings(Settings):
    """Of the shared pipe."""

    owner: ClassVar[str] = "NestedNER"

    spans_key: str = setting("sc", "key of `doc.spans` to read gold from and to write to")
    overlap: str = setting(
        "any",
        '"no_crossing" allows nesting only, "flat" no overlap at all; lower scores give way',
        choices=("any", "no_crossing", "flat"),
    )
    labels_per_span: Optional[int] = setting(
        None, "how many labels one span may carry; null for any number", least=1
    )
    set_ents: Optional[str] = setting(
        None,
        "replace `doc.ents`, which cannot overlap, by these spans; null leaves it alone",
        choices=("outermost", "innermost", "highest"),
    )
    window: int = setting(128, "segments longer than so many tokens are read in windows", least=1)
    stride: int = setting(96, "tokens from the start of one window to the next", least=1)
    adversarial: float = setting(
        0.0,
        "training: each step also learns from embeddings perturbed by so much along their "
        "gradient, which doubles its time; 0 for none",
        least=0.0,
    )

    def conflict(self) -> Optional[str]:
        return None if self.stride <= self.window else "needs 0 < stride <= window"
