"""Systems trained alike, in equal time, and what they reach: behind `nested-ner compare`."""
