"""Configuration keys and calls of other clients beside ours, for the pages that bring people over.

Their keys are the installed packages' own: librdkafka prints its table, kafka-python and aiokafka have theirs as
values. Ours for each of them is what `kadence.config` says, so page and refusal cannot differ.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from kadence import Admin
from kadence.config import ClientConfig, ConsumerConfig, ProducerConfig, foreign, keys
from kadence.errors import ConfigError

__all__ = ["VERSIONS", "admin_calls", "calls_of", "calls_of_admin", "key_tables", "keys_of", "names"]

VERSIONS: Final = {"confluent-kafka": "2.16.1", "kafka-python": "3.0.12", "aiokafka": "0.14.0"}
"""The versions that the pages speak of. With another one installed a page stays as it is."""


_OTHER_MEANING: Final = {
    "interceptors": "theirs are set in C; here it takes Python objects",
    "ssl.keystore.location": "theirs is PKCS#12; here it is a PEM file with ssl.keystore.type=PEM, or see below",
    "ssl.keystore.password": (
        "`openssl pkcs12 -in client.p12 -out client.pem` makes a PEM file of a store: give it as "
        "ssl.certificate.location, its password as ssl.key.password"
    ),
}
"""Keys of librdkafka that are not what ours of the same name are."""

_DEFAULTS: Final = {
    ("aiokafka", "acks"): "1",
    ("kafka-python", "partitioner"): "its DefaultPartitioner: murmur2",
}
"""Defaults that are objects, in words."""

_REMARKS: Final = {
    "queued.max.messages.kbytes": " (bytes of everything held; a single batch may exceed it)",
    "rebalance_timeout_ms": " (it bounds both)",
}


def keys_of(client: str, kind: str = "consumer") -> dict[str, Any]:
    """Keys of a client's consumer or producer, as its users write them, with the defaults."""
    if client == "confluent-kafka":
        return dict(_librdkafka(kind))
    if client == "kafka-python":
        with warnings.catch_warnings(action="ignore"):
            import kafka
        theirs = kafka.KafkaConsumer if kind == "consumer" else kafka.KafkaProducer
        return dict(theirs.DEFAULT_CONFIG)
    import aiokafka

    of = aiokafka.AIOKafkaConsumer if kind == "consumer" else aiokafka.AIOKafkaProducer
    parameters = inspect.signature(of).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is not each.VAR_POSITIONAL}


def calls_of(client: type) -> set[str]:
    """The public methods of a class."""
    return {name for name in dir(client) if name[0].islower() and callable(getattr(client, name))}


def names(text: str) -> list[str]:
    """What Markdown names in code: of `a(b, c)` the a."""
    return [re.split(r"\W", code, maxsplit=1)[0] for code in re.findall(r"`([^`]+)`", text)]


def calls_of_admin(client: str) -> set[str]:
    """The calls of a client's admin client."""
    if client == "confluent-kafka":
        import confluent_kafka.admin

        return calls_of(confluent_kafka.admin.AdminClient)
    if client == "kafka-python":
        with warnings.catch_warnings(action="ignore"):
            import kafka
        return calls_of(kafka.KafkaAdminClient)
    import aiokafka.admin

    return calls_of(aiokafka.admin.AIOKafkaAdminClient)


def admin_calls(client: str, section: str) -> str:
    """The calls of an admin client that have no row in its page: those of the same name here, and the rest."""
    rows = [line for line in section.splitlines() if line.startswith("|")]
    others = calls_of_admin(client) - {name for row in rows for name in names(row.split(" | ")[0])}
    same = sorted(name for name in others if hasattr(Admin, name))
    return "\n\n".join(
        f"{words}: {', '.join(f'`{name}`' for name in found)}."
        for words, found in (("The same name here", same), ("Not here", sorted(others - set(same))))
        if found
    )


def _librdkafka(kind: str) -> Iterator[tuple[str, str]]:
    """librdkafka's table as it prints it: those of one kind and of all clients; and what the Python package adds."""
    import confluent_kafka

    wheel = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library, libc = ctypes.CDLL(str(next(wheel.glob("librdkafka*.so*")))), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "properties"
        file = libc.fopen(bytes(page), b"w")
        library.rd_kafka_conf_properties_show(file)
        libc.fclose(file)
        lines = page.read_text().splitlines()
    for line in lines:
        row = [cell.strip() for cell in line.split("|")]
        if len(row) > 5 and row[1] in ("*", "C" if kind == "consumer" else "P"):
            yield row[0], row[3]
    yield from (("logger", ""), ("oauth_cb", ""))
    yield ("on_commit", "") if kind == "consumer" else ("on_delivery", "")


def key_tables(client: str, kind: str = "consumer") -> str | None:
    """What becomes of each key of a consumer or producer, as Markdown; None for another version of the client."""
    if version(client) != VERSIONS[client]:
        return None
    configs: dict[str, type[ClientConfig]] = {"consumer": ConsumerConfig, "producer": ProducerConfig}
    config = configs.pop(kind)
    [(other, other_config)] = configs.items()
    ours = {row.name: row for row in keys(config)}
    theirs = {row.name for row in keys(other_config)}
    same: list[str] = []
    otherwise: list[str] = []
    renamed: list[str] = []
    instead: dict[str, list[str]] = {}
    for name, default in sorted(keys_of(client, kind).items()):
        dotted = name.replace("_", ".")
        row = ours.get(dotted)
        if client == "confluent-kafka" and name in _OTHER_MEANING:
            instead.setdefault(_OTHER_MEANING[name], []).append(f"`{name}`")
            continue
        if row is not None:
            there, here = _text(_DEFAULTS.get((client, name), default)), _text(row.default)
            if there.lower().replace("largest", "latest") == here.lower():
                same.append(f"`{name}`")
            else:
                otherwise.append(f"| `{name}` | {_code(there)} | {_code(here)} |")
            continue
        called, why = foreign.advice(dotted, kind)
        if called in ours:
            renamed.append(f"| `{name}` | `{called}`{_REMARKS.get(name, '')} |")
        elif why is not None:
            instead.setdefault(why, []).append(f"`{name}`")
        elif dotted in theirs or called in theirs:
            instead.setdefault(f"it is a key of the {other}", []).append(f"`{name}`")
        else:
            instead.setdefault(_refusal(dotted, config), []).append(f"`{name}`")
    return "\n\n".join(
        [
            "The same, with the same default: " + ", ".join(same) + ".",
            _rows("the same, with another default", ("there", "here"), otherwise),
            _rows("another name there", ("here",), renamed),
            _rows(
                "not here",
                ("because, or instead",),
                [f"| {', '.join(names)} | {_cell(why)} |" for why, names in instead.items()],
            ),
        ]
    )


def _refusal(name: str, config: type[ClientConfig]) -> str:
    """What a client says of a key.

    Raises:
        SystemExit: it takes it, or knows nothing of it.
    """
    try:
        config.parse({"bootstrap.servers": "localhost:9092", name: "/a/file"})
    except ConfigError as error:
        if "unknown" not in str(error):
            return str(error)
    raise SystemExit(f"kadence.config.foreign has no advice for {name!r}")


def _rows(first: str, others: tuple[str, ...], lines: list[str]) -> str:
    return "\n".join([f"| {' | '.join((first, *others))} |", "|---" * (1 + len(others)) + "|", *lines])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _code(text: str) -> str:
    return f"`{text}`" if text else "–"


def _text(value: object) -> str:
    """A default as people write it; nothing, none and empty are the same."""
    if value is None or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(_text(each) for each in value)
    if isinstance(value, type):
        with contextlib.suppress(AttributeError):
            return str(value.name)  # type: ignore[attr-defined]
    if isinstance(value, Mapping) or callable(value):
        return ""
    return str(value)
