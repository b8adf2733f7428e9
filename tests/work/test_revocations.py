"""Partitions go while records of theirs are at every other point of their way."""

from __future__ import annotations

import threading
from typing import Any, Final

import pytest
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE, until
from tests.work.test_process import GROUP, committed, member, read

from kadence import Producer, Record
from kadence.protocol.error_codes import TOPIC_AUTHORIZATION_FAILED
from kadence.protocol.produce import ProduceRequest
from kadence.work import Context, ProducerRecord, Retry

_VALUES: Final = [b"0", b"1", b"2", b"3"]
"""A record for each partition."""


def produce_to_each(cluster: Cluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition, value in enumerate(_VALUES):
            producer.send("orders", value, partition=partition)


def is_going(context: Context) -> bool:
    """Whether a partition goes. `Context.lost` would count as being told so."""
    return "lost=True" in repr(context)


def test_an_output_that_is_refused_while_its_partition_goes_is_for_the_next_owner(cluster: Cluster) -> None:
    """The transaction that is the last one of the partition fails by it. The record is no longer this member's."""
    assert cluster.broker is not None
    produce_to_each(cluster)
    shell = Shell("threads")
    first = member(cluster, shell, isolation_level="read_committed")
    second = member(cluster, shell, isolation_level="read_committed")
    have_begun, is_shared = threading.Barrier(len(_VALUES) + 1), threading.Event()
    problems: list[BaseException] = []

    def of_first(record: Record[Any, Any], context: Context) -> ProducerRecord:
        if not is_shared.is_set():
            have_begun.wait(PATIENCE)
            until(lambda: is_going(context) or is_shared.is_set())
        return ProducerRecord("out", record.value)

    def of_second(record: Record[Any, Any]) -> ProducerRecord:
        is_shared.set()
        return ProducerRecord("out", record.value)

    def work_on_first() -> None:
        try:
            first.process(of_first, workers=4, drain=PATIENCE, dead_letter="dead", transactional_id="first")
        except BaseException as error:  # noqa: BLE001 - asserted below
            problems.append(error)

    def watch() -> None:
        until(lambda: len(read(cluster, "out")) >= len(_VALUES) or problems)
        first.stop()
        second.stop()

    running = threading.Thread(target=work_on_first)
    watching = threading.Thread(target=watch)
    running.start()
    have_begun.wait(PATIENCE)
    watching.start()
    with cluster.broker.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED, topic="out", times=1):
        second.process(of_second, transactional_id="second")
    running.join(PATIENCE)
    watching.join(PATIENCE)
    first.close()
    second.close()
    assert problems == []
    assert sorted(record.value for record in read(cluster, "out")) == _VALUES
    assert read(cluster, "dead") == []


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_retry_record_is_read_whatever_auto_offset_reset_says(
    cluster: Cluster, shell: Shell, transactional_id: str | None
) -> None:
    """Nothing is committed of its partition yet, and by default a group begins at the end then."""
    cluster.produce("one", 1, partitions=1)
    settings = {"isolation_level": "read_committed"} if transactional_id else {}
    consumer = member(cluster, shell, "one", **settings)

    def fails(record: Record[Any, Any]) -> None:
        # What is written to the retry topic is not read any more.
        consumer.stop()
        raise ValueError("not now")

    shell.do(
        lambda: consumer.process(
            fails, retry=Retry(attempts=2, backoff=0, topic="again"), transactional_id=transactional_id
        )
    )
    shell.do(consumer.close)
    assert committed(cluster, "one")[0][0] == 1
    later = shell.make(bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, **settings)
    shell.do(lambda: later.subscribe("one"))
    seen = threading.Event()

    def works(record: Record[Any, Any], context: Context) -> None:
        assert (record.topic, context.attempt) == ("again", 2)
        seen.set()
        later.stop()

    def give_up() -> None:
        seen.wait(PATIENCE)
        later.stop()

    waiting = threading.Thread(target=give_up)
    waiting.start()
    shell.do(
        lambda: later.process(
            works, retry=Retry(attempts=2, backoff=0, topic="again"), transactional_id=transactional_id
        )
    )
    waiting.join(PATIENCE)
    shell.do(later.close)
    assert seen.is_set()
