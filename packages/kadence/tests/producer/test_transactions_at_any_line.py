"""Ctrl-C at each line that a call of a transaction runs on the application's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.patience import PATIENCE

from kadence import Consumer, Producer, TopicPartition
from kadence.errors import IllegalStateError
from kadence_broker import Broker


def committed_values(broker: Broker) -> set[bytes]:
    found: set[bytes] = set()
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        tp = TopicPartition("t", 0)
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            found |= {record.value or b"" for record in consumer.poll(PATIENCE)}
    return found


def is_refused(call: Callable[[], None]) -> bool:
    try:
        call()
    except IllegalStateError:
        return True
    return False


@pytest.mark.parametrize("call", ["begin", "commit", "abort"])
@pytest.mark.parametrize("then", ["commit", "abort"])
def test_ctrl_c_at_any_line(call: str, then: str) -> None:
    """The calls after it go on, and what they say is so: what was committed is there whole, and nothing else is."""
    kept: set[bytes] = set()
    with Broker(topics={"t": 1}) as broker:
        with Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="x", linger_ms=0
        ) as producer:
            producer.init_transactions()
            ends = {"commit": producer.commit_transaction, "abort": producer.abort_transaction}
            at, happened, unknown = 0, True, set[str]()
            while happened:
                at += 1
                interruption, came_to = Interruption(at), ""
                values = {b"%d-%d" % (at, number) for number in range(3)}
                if call == "begin":
                    with contextlib.suppress(KeyboardInterrupt), interruption:
                        producer.begin_transaction()
                    with contextlib.suppress(IllegalStateError):
                        producer.begin_transaction()
                else:
                    producer.begin_transaction()
                for value in values:
                    producer.send("t", value)
                if call in ends:
                    with contextlib.suppress(KeyboardInterrupt), interruption:
                        ends[call]()
                        came_to = call
                if not came_to:
                    # It may have ended although the call did not return. Then the same call says so.
                    other = {"commit": "abort", "abort": "commit"}[then]
                    came_to = next((end for end in (then, other) if not is_refused(ends[end])), "")
                if not came_to:
                    came_to = call
                    unknown.add(interruption.where)
                if came_to == "commit":
                    kept |= values
                happened = interruption.happened
        assert committed_values(broker) == kept
    # The last instants of a call, in which it has returned already.
    assert all("has_returned" in where for where in unknown)
    assert at > 10
