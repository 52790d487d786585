"""Settings that all components have."""

from dataclasses import dataclass
from typing import Optional

from spacy_nested_ner.settings import Settings, setting


@dataclass(frozen=True)
class PipeSettings(Settings):
    """What all components share.

    spans_key: key of `doc.spans` from which gold is read and to which predictions are written.
    overlap: which entities may overlap: "any"; "no_crossing", nested ones only; "flat", none,
        though one span may have several labels. Of entities that may not overlap, the one with the
        lower score is dropped.
    labels_per_span: maximum number of labels of one span; null for no limit.
    set_ents: replace `doc.ents`, which cannot overlap, with the outermost, innermost or highest
        scored spans; null leaves `doc.ents` unchanged.
    split_sentences: a component that learned from single sentences splits longer docs without
        sentence boundaries into sentences, without changing the docs, and its pretrained encoder
        reads docs sentence by sentence, too.
    window: longest segment in tokens; a longer one is read in windows that overlap.
    stride: tokens from the start of one window to the start of the next.
    adversarial: adversarial training: in each step, a second pass perturbs the embeddings along
        their gradient, by a vector of this norm. A step takes twice as long; 0 turns it off.
    """

    spans_key: str = setting("sc")
    overlap: str = setting("any", choices=("any", "no_crossing", "flat"))
    labels_per_span: Optional[int] = setting(None, least=1)
    set_ents: Optional[str] = setting(None, choices=("outermost", "innermost", "highest"))
    split_sentences: bool = setting(True)
    window: int = setting(192, least=1)
    stride: int = setting(128, least=1)
    adversarial: float = setting(0.0, least=0, source="Miyato et al. 2017, section 3")

    def conflict(self) -> Optional[str]:
        if self.stride > self.window:
            return (
                f"stride ({self.stride}) must not be larger than window ({self.window}): the "
                "tokens between two windows would never be read"
            )
        return None
