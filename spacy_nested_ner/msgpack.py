"""What srsly asks the installed packages for each time it packs or unpacks, asked once."""

from typing import Any, Iterable

from srsly.msgpack import msgpack_decoders, msgpack_encoders


def ask_packages_once(registries: Iterable[Any] = (msgpack_decoders, msgpack_encoders)) -> None:
    """Register now what packages offer as entry points, and let the registries look no further.

    Otherwise each doc of a `.spacy` file has all entry points of all packages searched three times
    or more, which takes longer than the rest of reading it.
    """
    for registry in registries:
        for name, function in registry.get_entry_points().items():
            registry.register(name, func=function)
        registry.entry_points = False
