"""Kafka's ``sticky`` (KIP-54): balanced, and a partition goes back to whoever had it where balance allows.

Eager: members give everything up before they join, so what they had travels in the user data, with the
generation in which they got it (KIP-341). Its bytes have no version: an array of topics with their partitions,
then the generation, which members before Kafka 2.3 leave out.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kadence.consumer.assignors.base import Assignment, Assignor, LastAssignment, MemberSubscription
from kadence.consumer.assignors.plan import Plan
from kadence.types import TopicPartition
from kadence.wire import Reader, WireError, Writer

__all__ = ["StickyAssignor"]

_INT32 = struct.Struct(">i")


class StickyAssignor(Assignor):
    """Kafka's ``sticky`` assignor, eager and balanced: members keep partitions where balance allows."""

    name = "sticky"

    def user_data(self, last: LastAssignment) -> bytes | None:
        return None if last.generation < 0 else _encode(last)

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        claims = {name: _decode(said.user_data) for name, said in members.items()}
        return Plan(partitions, members, claims).made()


def _encode(last: LastAssignment) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(last.partitions):
        topics.setdefault(topic, []).append(number)
    writer = Writer()
    writer.put(_INT32.pack(len(topics)))
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.int32s(numbers)
    writer.put(_INT32.pack(last.generation))
    return writer.getvalue()


def _decode(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """What a member had. Bytes that cannot be read claim nothing: stickiness is no reason to refuse a member."""
    if not data:
        return [], -1
    reader = Reader(data)
    found = []
    try:
        for _ in range(reader.count()):
            topic = reader.string()
            found += [TopicPartition(topic, number) for number in reader.int32s()]
        generation = reader.int32() if reader.remaining else -1
    except WireError:
        return [], -1
    return found, generation
