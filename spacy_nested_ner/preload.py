"""Imported by the process that others are forked from: what each of them would import anew.

`spacy.blank` brings what the component factories of all installed packages import, as every
pipeline does.
"""

import gc
from contextlib import suppress

import spacy

with suppress(Exception):  # a package that is broken: each process meets it again, and says so
    spacy.blank("xx")
gc.freeze()  # else the collector of each process writes to this memory, which copies it
