"""What each of the three brokers can, so that a behaviour test says what it needs instead of whom it avoids.

A test over the fixture `cluster` is marked ``@pytest.mark.needs("groups", ...)`` with names of `CAPABILITIES`; the
module's own ``pytestmark`` counts too. On a broker that lacks one of them the test is skipped with the table's
reason; a test that declares nothing, or a name that is not here, fails. The table stands at the end of a run. Where
a capability is a request of the protocol, `test_capabilities.py` asks each broker for its list of requests and
compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

__all__ = [
    "BROKERS",
    "CAPABILITIES",
    "Capability",
    "by_name",
    "declared",
    "mark",
    "summary",
    "unmet",
]

BROKERS: Final = {
    "embedded": "embedded broker",
    "kafka": "Apache Kafka",
    "mock": "librdkafka's mock",
}


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing a test may need."""

    name: str
    meaning: str
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Broker without it → why, or `NO_REQUEST` when it does not answer ``request``."""
    request: tuple[int, int] | None = None
    """API key and the version that every broker with the capability answers."""
    only_classic: bool = False
    """Needed by classic members only: a test whose parameter `protocol` is "consumer" does without."""


NO_REQUEST: Final = "has no such request"

_NO_ADMIN: Final = {"mock": NO_REQUEST}
_ONE_NODE: Final = "the fixture's Kafka is one node"
_NO_LISTENER: Final = {
    "embedded": "the fixture has plaintext listeners; see packages/kadence-broker/tests/broker/server",
    "mock": "has only plaintext listeners",
}

CAPABILITIES: Final = (
    Capability("reading", "produce, fetch, offsets of partitions, metadata", request=(1, 11)),
    Capability("groups", "a classic group with a member, its committed offsets", request=(11, 0)),
    Capability(
        "classic rebalances",
        "several classic members rebalance and keep their generations",
        {"mock": "takes generations away while it rebalances, and ends none before a session timeout"},
        only_classic=True,
    ),
    Capability("kip-848", "the consumer group protocol", request=(68, 1)),
    Capability(
        "reconciliation",
        "each member of such a group goes its own way to its target; assignors by name",
        {"mock": "assigns to nobody before everybody has given up, and has one assignor"},
        request=(68, 1),
    ),
    Capability(
        "broker regex",
        "subscriptions that the broker matches (KIP-848)",
        {"mock": "ignores the expression"},
        request=(68, 1),
    ),
    Capability(
        "migration",
        "a live group goes from classic to KIP-848 and back",
        {"mock": "keeps a group for each protocol"},
        request=(68, 1),
    ),
    Capability("static members", "group.instance.id (KIP-345)", {"mock": "knows no static members"}, (11, 5)),
    Capability("session bounds", "refuses sessions outside its bounds", {"mock": "has no bounds"}),
    Capability(
        "strict topics", "a topic exists only when it was made", {"mock": "makes every topic asked for"}
    ),
    Capability("admin", "create topics, list and describe groups", _NO_ADMIN, request=(16, 1)),
    Capability("topic deletion", "topics are deleted and made again", _NO_ADMIN, request=(20, 6)),
    Capability("topic ids", "fetches name topics by id (KIP-516)", request=(1, 13)),
    Capability("leader epochs", "end offsets of leader epochs (KIP-320)", request=(23, 2)),
    Capability(
        "stored epochs",
        "records and committed offsets keep their leader epochs",
        {"mock": "its records are all of epoch 0, its offsets of none"},
    ),
    Capability("offsets by time", "finds the first record since a time", {"mock": "finds none"}),
    Capability(
        "unclean elections",
        "a test lets a leader lose records",
        {"kafka": _ONE_NODE, "mock": "its logs are never cut"},
    ),
    Capability(
        "fetch sessions",
        "incremental fetches (KIP-227)",
        {"mock": "answers every fetch in full"},
    ),
    Capability(
        "read committed",
        "transactions: aborted data, control batches, the last stable offset",
        {"mock": "its logs have no control batches"},
        request=(26, 1),
    ),
    Capability("several brokers", "three nodes, leaders spread", {"kafka": _ONE_NODE}),
    Capability("leader moves", "a test moves a partition to another node", {"kafka": _ONE_NODE}),
    Capability(
        "leaderless partitions",
        "a test takes a partition's leader away",
        {"kafka": _ONE_NODE, "mock": "crashes when such a partition is fetched"},
    ),
    Capability(
        "faults",
        "a kind of request is delayed, refused, dropped or cut off at will",
        {"kafka": "does as it likes", "mock": "its faults are not wrapped here"},
    ),
    Capability("tls", "TLS listeners, client certificates", _NO_LISTENER),
    Capability(
        "sasl",
        "PLAIN, SCRAM and OAUTHBEARER listeners",
        _NO_LISTENER,
        request=(36, 2),
    ),
)


def by_name(name: str) -> Capability:
    """The row of that name.

    Raises:
        KeyError: there is none.
    """
    for each in CAPABILITIES:
        if each.name == name:
            return each
    raise KeyError(f"no capability {name!r}; known: {', '.join(each.name for each in CAPABILITIES)}")


def unmet(names: Sequence[str], broker: str, protocol: str | None = None) -> str | None:
    """Why a test that needs ``names`` cannot run on ``broker``, or None when it can."""
    for name in names:
        capability = by_name(name)
        if capability.only_classic and protocol == "consumer":
            continue
        if broker in capability.lacks:
            return f"{BROKERS[broker]} is without {name!r}: {capability.lacks[broker]}"
    return None


def mark(items: Sequence[pytest.Item]) -> Counter[str]:
    """Skip what a broker lacks, mark what needs real Kafka; how many tests ask for each capability.

    A test that declares nothing, or nonsense, is not stopped here but fails in its fixture (`declared`).
    """
    asked: Counter[str] = Counter()
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        broker = params.get("cluster")
        if broker == "virtual":  # the embedded broker, in virtual time
            broker = "embedded"
        if broker not in BROKERS:
            continue
        if broker == "kafka":
            item.add_marker(pytest.mark.kafka)
        try:
            names = declared(item)
        except ValueError:
            continue
        protocol = params.get("protocol")
        asked.update(dict.fromkeys(names, 1))
        if reason := unmet([*names, *(["kip-848"] if protocol == "consumer" else [])], broker, protocol):
            item.add_marker(pytest.mark.skip(reason=reason))
    return asked


def declared(item: Any) -> list[str]:
    """The names in a test's ``needs`` marks.

    Raises:
        ValueError: there are none, or one that is unknown.
    """
    names = [name for marker in item.iter_markers("needs") for name in marker.args]
    if not names:
        raise ValueError(
            "a test over `cluster` declares what it needs of a broker: @pytest.mark.needs('reading') for records, "
            "('groups') for a member; see tests/consumer/capabilities.py"
        )
    try:
        for name in names:
            by_name(name)
    except KeyError as error:
        raise ValueError(str(error)) from error
    return names


def summary(asked: Counter[str]) -> str:
    """The table for a terminal: a line for each capability that a test of this run asks for."""
    lines = [f"{'':20}" + "".join(f"{broker:>10}" for broker in BROKERS) + f"{'asked':>10}"]
    for each in CAPABILITIES:
        has = "".join(f"{'-' if broker in each.lacks else 'yes':>10}" for broker in BROKERS)
        if each.name in asked:
            lines.append(f"{each.name:20}{has}{asked[each.name]:>10}")
    return "\n".join(lines)
