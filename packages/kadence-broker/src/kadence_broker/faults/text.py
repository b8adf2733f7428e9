"""Faults as text, for the command line.

    fetch delay=200ms                        every Fetch is served 200 ms late
    produce error=NOT_LEADER_OR_FOLLOWER times=3
    join_group drop group=orders             no answer; the connection waits
    heartbeat disconnect probability=0.1 seed=7
    fetch truncate=100 client=reader-1       the first 100 bytes of the answer, then the end (truncate: half of it)
    any delay=1s node=2 topic=orders
    freeze                                   every node stops reading and writing, sockets stay open
    freeze node=2

First the API under Kafka's name (`any` for all), then what happens, then which requests: times=, probability=, seed=,
client=, group=, topic=, node=.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, cast

from kadence.errors import ConfigError
from kadence.protocol.error_codes import NAMES
from kadence.protocol.tables import API_NAMES, REQUESTS
from kadence_broker.faults.choice import Only

if TYPE_CHECKING:
    from kadence_broker.faults.faults import Faults

__all__ = ["put_in_force"]

_ACTIONS: Final = ("delay", "error", "drop", "disconnect", "truncate")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_CODES: Final = {name: code for code, name in NAMES.items()}
_APIS: Final = {name.lower(): REQUESTS[key] for key, name in API_NAMES.items() if key in REQUESTS}
_OPTIONS: Final[dict[str, tuple[str, Any]]] = {
    "times": ("times", int),
    "probability": ("probability", float),
    "seed": ("seed", int),
    "client": ("client_id", str),
    "group": ("group", str),
    "topic": ("topic", str),
    "node": ("node_id", int),
}


def put_in_force(faults: Faults, text: str) -> None:
    """Read one fault and put it in force for good.

    Raises:
        ConfigError: it cannot be read; says which part.
    """
    words = text.split()
    if not words:
        raise ConfigError("a fault is empty; e.g. 'fetch delay=200ms'")
    if words[0] == "freeze":
        only = _only(words[1:], text)
        if set(only) - {"node_id"}:
            raise ConfigError(f"fault {text!r}: freeze takes node= only")
        node_id = only.get("node_id")
        faults.freeze(*(() if node_id is None else (node_id,)))
        return
    if len(words) < 2:
        raise ConfigError(
            f"fault {text!r}: after the API comes one of {', '.join(_ACTIONS)}, e.g. 'fetch delay=200ms'"
        )
    request = _api(words[0], text)
    action, _, value = words[1].partition("=")
    only = _only(words[2:], text)
    if action == "delay":
        faults.delay(request, _seconds(value, text), **only)
    elif action == "error":
        faults.error(request, _code(value, text), **only)
    elif action == "drop":
        faults.drop(request, **only)
    elif action == "disconnect":
        faults.disconnect(request, **only)
    elif action == "truncate":
        faults.truncate(request, _number(int, value, text) if value else None, **only)
    else:
        raise ConfigError(f"fault {text!r}: {action!r} is none of {', '.join(_ACTIONS)}")


def _api(word: str, text: str) -> type[Any] | None:
    name = word.replace("_", "").replace("-", "").lower()
    if name == "any":
        return None
    found = _APIS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, _APIS, n=1)
        hint = f"did you mean {near[0]}?" if near else "e.g. fetch, produce, heartbeat, any"
        raise ConfigError(f"fault {text!r}: there is no API {word!r}; {hint}")
    return found


def _seconds(value: str, text: str) -> float:
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ConfigError(f"fault {text!r}: {value!r} is no time; e.g. 200ms, 1.5s, 2m")
    return float(found[1]) * _UNITS[found[2]]


def _code(value: str, text: str) -> int:
    found = _CODES.get(value.upper())
    if found is None:
        near = difflib.get_close_matches(value.upper(), _CODES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"fault {text!r}: Kafka has no error code {value!r}{hint}")
    return found


def _number(kind: Any, value: str, text: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"fault {text!r}: {value!r} is no number") from None


def _only(words: list[str], text: str) -> Only:
    only: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in _OPTIONS or not equals:
            raise ConfigError(
                f"fault {text!r}: {word!r} is none of {', '.join(f'{each}=' for each in _OPTIONS)}"
            )
        keyword, kind = _OPTIONS[name]
        only[keyword] = value if kind is str else _number(kind, value, text)
    return cast(Only, only)
