"""``${NAME}`` in a file of settings: the environment's values, filled in late and hidden from everything that is shown.

``${NAME:-text}`` has a default for a variable that is not set. A value that came from the environment is taken for a
secret: `Environment.hide` puts its name back wherever the value turns up in a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kadence.errors import ConfigError

__all__ = [
    "DEFAULT_SERVERS",
    "REACHED_S",
    "REGISTRY",
    "SERVERS",
    "Environment",
    "malformed",
    "missing",
    "servers_of",
]

SERVERS: Final = "KADENCE_BOOTSTRAP_SERVERS"
"""The variable that names brokers for the command line, for `read` and for the examples."""

DEFAULT_SERVERS: Final = "localhost:9092"

REACHED_S: Final = 4.0
"""How long a connection is tried where a person waits for it: by the command line, and by `read`."""

REGISTRY: Final = "schema.registry."
"""Settings that begin so are those of a schema registry: `read` passes them on, with the rest to the consumer."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

# A value so short would hide parts of words.
_SHORTEST: Final = 4


def servers_of(variables: Mapping[str, str]) -> str:
    """The brokers where nobody names any."""
    return variables.get(SERVERS) or DEFAULT_SERVERS


class Environment:
    """The variables of a process, as far as a file asks for them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._used: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Environment({', '.join(sorted(set(self._used.values())))})"

    def fill(self, text: str) -> str:
        """The text with the variables' values.

        Raises:
            ConfigError: a variable is not set and has no default.
        """
        names = missing(text, self._variables)
        if names:
            raise ConfigError(f"the environment has no variable {names[0]}, which {text!r} asks for")
        return _VARIABLE.sub(self._value, text)

    def fill_all(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The same for each value; keys stay as they are."""
        return {key: self.fill(text) for key, text in texts.items()}

    def hide(self, text: str) -> str:
        """The text with ``${NAME}`` in place of each value that was filled in."""
        for value in sorted(self._used, key=len, reverse=True):
            text = text.replace(value, f"${{{self._used[value]}}}")
        return text

    def _value(self, match: re.Match[str]) -> str:
        name, default = match.groups()
        value = self._variables.get(name)
        if value is None:
            return default or ""
        if len(value) >= _SHORTEST:
            self._used[value] = name
        return value


def missing(text: str, variables: Mapping[str, str]) -> list[str]:
    """Names that a text asks for, that are not set and have no default."""
    return [
        name
        for name, default in _VARIABLE.findall(text)
        if name not in variables and not _has_default(text, name, default)
    ]


def malformed(text: str) -> bool:
    """Whether a ``${`` begins something that is no variable, and so would be taken for a part of the text."""
    return "${" in _VARIABLE.sub("", text)


def _has_default(text: str, name: str, default: str) -> bool:
    return bool(default) or f"${{{name}:-}}" in text
