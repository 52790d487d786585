"""The corpus formats, one module each. A module registers its reader and, if there is one, its
writer; the registry imports all of them when it is first asked."""
