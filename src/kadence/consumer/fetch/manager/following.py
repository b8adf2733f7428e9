"""Records that go to the application before the network thread hears of them, while the session goes on by itself.

The compiled poller passes small plain answers on without the interpreter, wakes the application, and sends the fetch
that follows (`kadence.net`, following.h). The application's thread makes of such an answer what it takes out of the
buffer (`read`). The network thread counts it when it comes by, before it does anything else (`FetchRequestManager`).
Both know what the session asked for, and nothing of that changes meanwhile, so they come to the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from kadence.connection.request import Part
from kadence.consumer.fetch.manager.session import Wanted
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import CompletedFetch, Copies
from kadence.records import scan
from kadence.types import TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["MOST_FOLLOWED", "SessionFollow", "table_of"]

MOST_FOLLOWED: Final = 256
"""Partitions of a session that goes on by itself. Each new request of it costs a look at all of them."""

_ASKED: Final = struct.Struct(">16siii")
"""Topic id, partition, leader epoch and size, as they stand in a request."""


def table_of(asked: Mapping[TopicPartition, Wanted]) -> bytes | None:
    """What a session holds of each partition, for the poller; None: it cannot go on by itself."""
    if len(asked) > MOST_FOLLOWED or any(wanted.topic_id == ZERO_UUID for wanted in asked.values()):
        return None
    return b"".join(
        _ASKED.pack(wanted.topic_id, partition.partition, wanted.leader_epoch, wanted.max_bytes)
        for partition, wanted in asked.items()
    )


class SessionFollow:
    """One fetch of a session, and those that follow it by themselves.

    Args:
        shared: the partitions of ``asked``. room: how many bytes may come before the network thread counts them.

    Attributes:
        table: see `table_of`. asked: what the next answer that is read was asked for; replaced by whoever takes the
            answer out.
    """

    __slots__ = ("_copies", "_names", "_shared", "asked", "room", "table")

    def __init__(
        self,
        table: bytes,
        asked: dict[TopicPartition, Wanted],
        names: Mapping[bytes, str],
        shared: Mapping[TopicPartition, SharedPartition],
        copies: Copies,
        room: Callable[[], int],
    ) -> None:
        self.table = table
        self.asked = asked
        self._names = names
        self._shared = shared
        self._copies = copies
        self.room = room

    def read(self, parts: list[Part]) -> tuple[list[CompletedFetch], dict[TopicPartition, Wanted]] | None:
        """What the next answer brought, and ``asked`` after it; None: it does not fit to that. Any thread."""
        asked = self.asked.copy()
        fetches: list[CompletedFetch] = []
        for topic_id, number, high_watermark, last_stable, log_start, records in parts:
            partition = TopicPartition(self._names[topic_id], number)
            shared_partition, wanted = self._shared[partition], asked[partition]
            if shared_partition.fetch_epoch == wanted.fetch_epoch:
                shared_partition.high_watermark = high_watermark
                shared_partition.last_stable_offset = last_stable
                shared_partition.log_start = log_start
            if records is None:
                continue
            next_offset, count, complete = scan(records, wanted.offset)
            if next_offset == wanted.offset or complete != len(records):
                return None
            loan = self._copies.arrival(len(records))
            fetches.append(
                CompletedFetch(
                    shared_partition, wanted.fetch_epoch, wanted.offset, records, loan, None, count
                )
            )
            # `_replace` would be two calls more, for each record that is awaited.
            asked[partition] = Wanted(
                wanted.fetch_epoch,
                next_offset,
                wanted.leader_epoch,
                wanted.topic_id,
                wanted.max_bytes,
                wanted.last_epoch,
            )
        return fetches, asked
