"""docs/kips.md: each KIP that the wire and the settings know has a row, and what a row names is there."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from functools import cache

import pytest
from tests.protocol.values import SCHEMA, modules

import kadence
from kadence.config import AdminConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig
from kadence.protocol.registry import REQUESTS
from kadence_broker.settings import Settings
from kadence_broker.topic_configs import TOPIC_KEYS

ROOT = SCHEMA.parent
PAGE = (ROOT / "docs" / "kips.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| KIP")
]
SOURCES = (
    ROOT / "packages" / "kadence" / "src" / "kadence",
    *(ROOT / "packages" / each / "src" for each in ("kadence", "kadence-broker")),
)
MISSING = ("neither", "–")
REPLICAS_AND_METADATA = {"595"}
"""KIPs that schema/ mentions and that have nothing to do for a client, a group or a transaction."""


@cache
def settings() -> frozenset[str]:
    clients = (ConsumerConfig, ProducerConfig, AdminConfig, ShareConsumerConfig)
    keys = {field.name.replace("_", ".") for config in clients for field in fields(config)}
    return frozenset({*keys, *Settings.parse({}).describe(), *TOPIC_KEYS})


def numbers(row: tuple[str, ...]) -> set[str]:
    return set(re.findall(r"\d+", row[0]))


def listed() -> set[str]:
    return set().union(*map(numbers, ROWS))


def test_each_row_has_four_cells_and_says_who_has_it() -> None:
    for row in ROWS:
        assert len(row) == 4, row
        assert row[2] in {"both", "client", "broker", "only client", "only broker", "neither", "–"}, row
        assert row[3], row


def test_each_kip_of_the_schema_has_a_row() -> None:
    named = {number for path in SCHEMA.glob("*.txt") for number in re.findall(r"KIP-(\d+)", path.read_text())}
    assert named - listed() == REPLICAS_AND_METADATA


def test_each_kip_of_a_setting_has_a_row() -> None:
    files = (SOURCES[0] / "config").glob("*.py")
    named = {number for path in files for number in re.findall(r'since="KIP-(\d+)"', path.read_text())}
    assert named
    assert named <= listed()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_a_row_names_is_there(row: tuple[str, ...]) -> None:
    named = re.findall(r"`([^`]+)`", row[3])
    assert named or row[2] in MISSING, "a row of what is there names a place"
    for each in named:
        assert _exists(each), each


@pytest.mark.parametrize("row", [row for row in ROWS if row[2] in MISSING], ids=lambda row: row[0])
def test_what_nobody_has_is_not_in_the_schema(row: tuple[str, ...]) -> None:
    apis = {request.__name__.removesuffix("Request") for request in REQUESTS.values()}
    named = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", row[3]))
    assert not named & apis, "a row of what is missing names requests that are missing"


def test_versions_of_the_schema_that_are_beyond_a_client_are_none_of_the_newest() -> None:
    """The page is of Kafka 4.4.0: these are what it brought."""
    newest = {module.name: module.tops[0].versions.last for module in modules() if module.key is not None}
    assert (newest["ApiVersions"], newest["TxnOffsetCommit"], newest["DeleteGroups"]) == (5, 6, 3)
    assert {"1242", "1319"} <= listed()


def _exists(name: str) -> bool:
    if api := re.fullmatch(r"([A-Z]\w+) (\d+)", name):
        requests = {each.__name__.removesuffix("Request"): each for each in REQUESTS.values()}
        request = requests.get(api[1])
        # Versions below ours are in ours.
        return request is not None and int(api[2]) <= request.MAX_VERSION
    if call := re.fullmatch(r"([A-Z]\w+)(?:\.(\w+))?", name):
        found = getattr(kadence, call[1], None)
        return found is not None and (call[2] is None or hasattr(found, call[2]))
    if call := re.fullmatch(r"([A-Z]\w+)\((\w+)=\)", name):
        return call[2] in inspect.signature(getattr(kadence, call[1])).parameters
    if "/" in name:
        return any((source / name).exists() for source in SOURCES)
    return name in settings()
