"""Text, XML, JSON, archives and tags: what formats are made of. Knows no records."""
