"""The names of the ready serialisers and deserialisers: ours, and Java's class names of the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

__all__ = ["find"]

T = TypeVar("T")

_JAVA: Final = "org.apache.kafka.common.serialization."
_JAVA_NAMES: Final = {
    "ByteArray": "bytes",
    "ByteBuffer": "bytes",
    "Bytes": "bytes",
    "String": "string",
    "Short": "short",
    "Integer": "integer",
    "Long": "long",
    "Float": "float32",
    "Double": "double",
    "Boolean": "boolean",
    "UUID": "uuid",
}


def find(name: str, ready: Mapping[str, T], *, java: str, called: str, otherwise: str) -> T:
    """The ready one of a name.

    Args:
        java: how Java's class names end. called: what the error calls a ready one. otherwise: what the error says may
            be given instead.

    Raises:
        ValueError: there is none; the message says what there is.
    """
    ours = _JAVA_NAMES.get(name.removeprefix(_JAVA).removesuffix(java), name)
    if ours in ready:
        return ready[ours]
    is_java = name.startswith(_JAVA) or ("." in name and name.endswith(java))
    reason = "a Java class cannot run here" if is_java else f"there is no such ready {called}"
    raise ValueError(f"{reason}; give {otherwise}, or one of {', '.join(ready)}")
