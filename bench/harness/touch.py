"""Taking records in hand: key, value and offset of each one are read, as an application would."""

from __future__ import annotations

from typing import Any

from harness.timing import spin


def attributes(records: Any, turns: int = 0) -> int:
    """Records of Kadence, aiokafka and kafka-python; ``turns`` of work on each. Returns how many there were."""
    touched = 0
    for record in records:
        key, value, offset = record.key, record.value, record.offset  # noqa: F841  (touching is the point)
        if turns:
            spin(turns)
        touched += 1
    return touched


def methods(messages: Any, turns: int = 0) -> int:
    """confluent-kafka's messages: fields are method calls, and errors come as messages."""
    touched = 0
    for message in messages:
        if message.error():
            raise SystemExit(str(message.error()))
        key, value, offset = message.key(), message.value(), message.offset()  # noqa: F841
        if turns:
            spin(turns)
        touched += 1
    return touched


def by_partition(batches: Any, turns: int = 0) -> int:
    """A dictionary of lists, as kafka-python and aiokafka give."""
    return sum(attributes(records, turns) for records in batches.values())


def table(arrow: Any) -> int:
    """An Arrow table: each column is read by one vector operation, as its users do."""
    import pyarrow.compute as pc

    if arrow.num_rows:
        for column in ("key", "value"):
            pc.sum(pc.binary_length(arrow.column(column)))
        pc.max(arrow.column("offset"))
    return int(arrow.num_rows)
