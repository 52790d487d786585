"""Imported by the process that workers are forked from: what each of them would import anew.

`spacy.blank` brings what the component factories of all installed packages import, as every
pipeline does. pyarrow is left out: it starts a thread, which a fork would not have.
"""

import gc
from contextlib import suppress

import spacy

import spacy_nested_ner.scale.workers  # noqa: F401

with suppress(Exception):  # a package that is broken: each worker meets it again, and says so
    spacy.blank("xx")
gc.freeze()  # else the collector of each worker writes to this memory, which copies it
