"""Ctrl-C at each line that a call of a transaction runs on the application's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.patience import PATIENCE, until

from kadence import Consumer, Producer, TopicPartition
from kadence.errors import IllegalStateError
from kadence.producer.transaction_states import ENDING
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
@pytest.mark.parametrize("when", ["at-once", "later", "twice"])
def test_ctrl_c_at_any_line(call: str, then: str, when: str) -> None:
    """The calls after it go on, and what they say is so: what was committed is there whole, and nothing else is.

    Args:
        when: the call is made again at once; or once the step has ended; or it was made again and interrupted, too.
    """
    kept: set[bytes] = set()
    with Broker(topics={"t": 1}) as broker:
        with Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="x", linger_ms=0
        ) as producer:
            producer.init_transactions()
            transactions = producer._send_checks.transactions
            assert transactions is not None
            ends = {"commit": producer.commit_transaction, "abort": producer.abort_transaction}
            at, happened, unknown = 0, True, list[list[str]]()
            while happened:
                at += 1
                interruptions = [Interruption(at) for _ in range(2 if when == "twice" else 1)]
                came_to = ""
                values = {b"%d-%d" % (at, number) for number in range(3)}
                if call == "begin":
                    for interruption in interruptions:
                        with contextlib.suppress(KeyboardInterrupt, IllegalStateError), interruption:
                            producer.begin_transaction()
                    with contextlib.suppress(IllegalStateError):
                        producer.begin_transaction()
                else:
                    producer.begin_transaction()
                for value in values:
                    producer.send("t", value)
                if call in ends:
                    for interruption in interruptions:
                        if not came_to:
                            with contextlib.suppress(KeyboardInterrupt, IllegalStateError), interruption:
                                ends[call]()
                                came_to = call
                if not came_to:
                    if when != "at-once":
                        until(lambda: transactions.state not in ENDING, every=0.001)
                    # It may have ended although the call did not return. Then the same call says so.
                    other = {"commit": "abort", "abort": "commit"}[then]
                    came_to = next((end for end in (then, other) if not is_refused(ends[end])), "")
                if not came_to:
                    came_to = call
                    unknown.append([interruption.where for interruption in interruptions])
                if came_to == "commit":
                    kept |= values
                happened = interruptions[0].happened
        assert committed_values(broker) == kept
    # The last instants of a call, in which it has returned already.
    assert all(any("has_returned" in place for place in places) for places in unknown), unknown
    assert at > 10
