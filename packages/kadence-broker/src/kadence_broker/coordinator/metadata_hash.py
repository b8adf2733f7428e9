"""One number for all properties of topics that an assignment depends on: ids, partitions, racks (KIP-1101).

If it differs from the one of the group's epoch, the group needs a new target. Only this coordinator
compares it, so it need not be Kafka's number, but it must be the same in the next process: a record has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from kadence_broker.coordinator.topics import TopicImages

__all__ = ["metadata_hash"]


def metadata_hash(names: Iterable[str], topics: TopicImages) -> int:
    """The hash of the topics that exist; 0 if none does."""
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = topics.by_name(name)
        if topic is not None:
            found = True
            racks = [sorted(partition) for partition in topic.racks]
            digest.update(repr((topic.name, topic.topic_id, topic.partitions, racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
