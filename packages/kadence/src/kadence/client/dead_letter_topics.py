"""Dead letter topics of share groups (KIP-1191): the settings about them, and what is wrong with one.

A broker takes any name of a topic. It looks at the topic when it writes a first dead letter; if it then does not take
it, it archives the record all the same and tells no client. It does take a topic that the group itself reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kadence.printable import printable

__all__ = [
    "BROKER_KEYS",
    "COPIES",
    "GROUP_KEYS",
    "TOPIC",
    "TOPIC_KEYS",
    "Settings",
    "comes_back",
    "faults_of",
    "is_legal",
    "warning",
]

TOPIC: Final = "errors.deadletterqueue.topic.name"
COPIES: Final = "errors.deadletterqueue.copy.record.enable"
_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
_CREATES: Final = "errors.deadletterqueue.auto.create.topics.enable"
_ENABLED: Final = "errors.deadletterqueue.group.enable"
_CLEANUP: Final = "cleanup.policy"

GROUP_KEYS: Final = (TOPIC, COPIES)
BROKER_KEYS: Final = (_PREFIX, _CREATES)
TOPIC_KEYS: Final = (_ENABLED, _CLEANUP)
"""The settings that count, of each."""

_LEGAL: Final = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")

Settings = Mapping[str, str]
"""The values of settings by name. What is not set is empty, or missing."""


def is_legal(topic: str) -> bool:
    """Whether a topic can have this name."""
    return _LEGAL.fullmatch(topic) is not None


def faults_of(topic: str, broker: Settings, settings: Settings | None, *, copies: bool) -> Iterator[str]:
    """Why brokers would not write to the topic, in a sentence each.

    Args:
        broker, settings: of a broker, and of the topic; None: it does not exist. copies: whether dead letters have the
            key and value of their record.
    """
    prefix = broker.get(_PREFIX, "")
    if not topic.startswith(prefix):
        yield f"its name does not begin with {prefix!r}, the brokers' {_PREFIX}"
    if not is_legal(topic):
        yield "no topic can have this name"
    elif settings is None:
        if broker.get(_CREATES) != "true":
            yield f"it does not exist, and the brokers do not create it ({_CREATES}=false)"
    else:
        if settings.get(_ENABLED) != "true":
            yield f"it takes no dead letters: set its {_ENABLED}=true"
        if "compact" in settings.get(_CLEANUP, ""):
            refused = "records without a key" if copies else "dead letters, which have no key"
            yield f"it is compacted, so it refuses {refused}"


def comes_back(topic: str) -> str:
    """What a group meets that reads its own dead letter topic."""
    return (
        f"the group reads its own dead letter topic {printable(topic)}: "
        "what fails there is written there again, without end"
    )


def warning(group: str, topic: str, faults: Collection[str], *, is_read: bool) -> str | None:
    """The line of a log about what is wrong with a topic; None: nothing is.

    Args:
        faults: why brokers would not write to it. is_read: the group itself reads it.
    """
    if not faults and not is_read:
        return None
    says = []
    if faults:
        says.append(
            f"brokers would not write dead letters to {printable(topic)}, and rejected records are lost: "
            + "; ".join(faults)
        )
    if is_read:
        says.append(comes_back(topic))
    return f"group {printable(group)}: {'. Also, '.join(says)}"
