"""The rows of `Producer.send_arrow` on their way to `Producer.send`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from kadence.errors import SerializationError
from kadence.producer.accumulator import estimated_size
from kadence.producer.arrow import Chunk, chunks_of
from kadence.producer.arrow_delivery import ArrowDelivery, Share
from kadence.producer.entrance import Entrance

if TYPE_CHECKING:
    from kadence.producer.producer import Producer

__all__ = ["send_arrow"]


def send_arrow(producer: Producer, entrance: Entrance, data: Any, topic: str | None) -> ArrowDelivery:
    """See `Producer.send_arrow`."""
    count, chunks = chunks_of(data, with_topic=topic is None)
    entrance.check()
    rows = [row for chunk in chunks for row in _rows(entrance, chunk, topic)]
    shares = []
    for number, (name, row) in enumerate(rows):
        future = producer.send(name, **row)
        shares.append(Share(future.delivery, future.index, 1, partial(list, (number,))))
    return ArrowDelivery(count, shares, entrance.gate)


def _rows(entrance: Entrance, chunk: Chunk, topic: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    for at in range(chunk.rows):
        number = chunk.first_row + at
        name = topic if chunk.topic is None else chunk.topic[at].as_py()
        if not name:
            raise SerializationError(f"row {number} has no topic: give send_arrow() one, or each row its own")
        value = chunk.value[at].as_py()
        key = None if chunk.key is None else chunk.key[at].as_py()
        headers = []
        if chunk.headers is not None and chunk.headers.lists[at].is_valid:
            begin, end = (chunk.headers.lists.offsets[at + each].as_py() for each in (0, 1))
            for place in range(begin, end):
                header = chunk.headers.names[place].as_py()
                if header is None:
                    raise SerializationError(f"row {number} has a header without a name")
                headers.append((header.decode(), chunk.headers.values[place].as_py()))
        partition = None if chunk.partition is None else chunk.partition[at].as_py()
        size = estimated_size(key, value, headers)
        if size > entrance.largest:
            raise entrance.too_large(name, size, f"row {number}")
        known = entrance.place_of(name)
        if partition is not None:
            entrance.with_partition(name, known, partition, f"row {number}: ")
        timestamp = None if chunk.timestamp is None else chunk.timestamp[at].as_py()
        yield (
            name,
            {
                "value": value,
                "key": key,
                "partition": partition,
                "timestamp": timestamp,
                "headers": headers,
            },
        )
