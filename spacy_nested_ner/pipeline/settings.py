"""Settings that all components have."""

from dataclasses import dataclass
from typing import Optional

from spacy_nested_ner.settings import Settings, setting


@dataclass(frozen=True)
class PipeSettings(Settings):
    """What all components share."""

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
        "replace `doc.ents`, which cannot overlap, by the outermost, innermost or highest scored "
        "spans; null leaves it alone",
        choices=("outermost", "innermost", "highest"),
    )
    split_sentences: bool = setting(
        True,
        "a component that learned from single sentences splits longer docs that have no sentence "
        "boundaries, for itself alone",
    )
    window: int = setting(
        128, "longest segment in tokens; what is longer is read in windows that overlap", least=1
    )
    stride: int = setting(96, "tokens from the start of one window to that of the next", least=1)
    adversarial: float = setting(
        0.0,
        "training: each update learns a second time, with the embeddings perturbed by so much "
        "along their gradient, and takes twice as long; 0 for none",
        least=0,
        source="Miyato et al. 2017, section 3",
    )

    def conflict(self) -> Optional[str]:
        if self.stride > self.window:
            return (
                f"stride ({self.stride}) must not be larger than window ({self.window}): the "
                "tokens between two windows would never be read"
            )
        return None
