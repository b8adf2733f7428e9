"""Advice in errors of `process`, of transactions and of a loop that does not end: a program that follows it goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kadence import (
    Admin,
    AsyncConsumer,
    Broker,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    Retry,
    TopicPartition,
)
from kadence.errors import ConcurrentAccessError, ConfigError, ForkedError, IllegalStateError, KafkaError

PARTITION = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(topics={"t": 1}, config={"auto.create.topics.enable": False}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(3):
                producer.send("t", str(number).encode())
        yield broker.bootstrap_servers


class Row(NamedTuple):
    wrong: Callable[[Any], object]
    error: type[Exception]
    advice: str
    right: tuple[Callable[[Any], object], ...]


def handle(_: Any) -> None:
    pass


async def coroutine(_: Any) -> None:
    pass


def work(**settings: Any) -> Callable[[Consumer[Any, Any]], object]:
    """`process` of one record, which is handled."""

    def run(consumer: Consumer[Any, Any]) -> None:
        consumer.assign({PARTITION: (0, 1)})
        assert consumer.process(handle, **settings).done == 1

    return run


def subscribed(consumer: Consumer[Any, Any], retries: str = "t.retry") -> None:
    """`process` of all records, with a retry topic."""
    seen: list[Any] = []

    def last(record: Any) -> None:
        seen.append(record)
        if len(seen) == 3:
            consumer.stop()

    consumer.unsubscribe()
    consumer.subscribe("t")
    assert consumer.process(last, retry=Retry(topic=retries)).done == 3


def created(consumer: Consumer[Any, Any], topic: str) -> None:
    with Admin(bootstrap_servers=list(consumer._config.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic(topic, 1)])


ROWS = {
    "a number of attempts": Row(
        work(retry=5),
        TypeError,
        "a Retry, such as Retry(attempts=5), or None",
        (work(retry=Retry(attempts=5)), work()),
    ),
    "an error's text": Row(
        lambda c: Retry(on="TimeoutError"),  # type: ignore[arg-type]
        TypeError,
        "a class of exceptions or a tuple of them, such as (TimeoutError,)",
        (work(retry=Retry(on=(TimeoutError,))), lambda c: Retry(on=TimeoutError)),
    ),
    "an executor": Row(
        work(executor="thread"),
        ValueError,
        "executor is 'threads', 'loop' or 'processes'",
        (work(executor="threads"),),
    ),
    "a format of batches": Row(
        work(batch_format="table", batch=(10, 0.01)),
        ValueError,
        "batch_format is 'records' or 'arrow'",
        (
            work(batch_format="records", batch=(10, 0.01)),
            work(batch_format="arrow", batch=(10, 0.01)),
        ),
    ),
    "a batch of records": Row(
        work(batch=500),
        ValueError,
        "(records, seconds), such as (500, 1.0)",
        (work(batch=(500, 1.0)),),
    ),
    "a transactional id that is empty": Row(
        work(transactional_id=""),
        ValueError,
        "a name that no other member has, or None for no transactions",
        (work(transactional_id=None),),
    ),
    "dead letters by a truth": Row(
        work(dead_letter=False),
        TypeError,
        "dead_letter=False: a name (str), or None",
        (work(dead_letter=None), lambda c: created(c, "named"), work(dead_letter="named")),
    ),
    "a number of workers": Row(
        work(workers=0),
        ValueError,
        "workers=0: at least 1",
        (work(workers=1),),
    ),
    "an order by values": Row(
        work(order="value"),
        ValueError,
        "order is 'key', 'partition' or 'none'",
        tuple(work(order=each) for each in ("key", "partition", "none")),
    ),
    "halves of single records": Row(
        work(halve=True),
        ConfigError,
        "needs a batch=(records, seconds)",
        (work(halve=True, batch=(10, 0.01)),),
    ),
    "tables of single records": Row(
        work(batch_format="arrow"),
        ConfigError,
        "needs a batch=(records, seconds)",
        (work(batch_format="arrow", batch=(10, 0.01)),),
    ),
    "a topic for dead letters": Row(
        work(dead_letter="dead"),
        ConfigError,
        "the cluster has no topic 'dead'; create it first",
        (lambda c: created(c, "dead"), work(dead_letter="dead")),
    ),
    "a retry topic of partitions": Row(
        work(retry=Retry(topic="t.retry")),
        ConfigError,
        "needs a subscription by names, to which this topic is added",
        (lambda c: created(c, "t.retry"), subscribed),
    ),
    "dead letters in a topic that is read": Row(
        lambda c: (c.subscribe("t"), c.process(handle, dead_letter="t")),
        ConfigError,
        "for later attempts use Retry(topic=...)",
        (lambda c: created(c, "later"), lambda c: subscribed(c, "later")),
    ),
    "a handler of nothing": Row(
        lambda c: (c.assign({PARTITION: (0, 1)}), c.process(lambda: None)),
        TypeError,
        "a handler takes a record (with batch, a list of records), or a record and a Context",
        (work(), lambda c: (c.assign({PARTITION: (1, 2)}), c.process(lambda record, context: None))),
    ),
    "a coroutine function on threads": Row(
        lambda c: (c.assign({PARTITION: (0, 1)}), c.process(coroutine, executor="threads")),
        ConfigError,
        "the event loop runs coroutine functions, and threads and processes run plain ones",
        (
            lambda c: (c.assign({PARTITION: (0, 1)}), c.process(coroutine, executor="loop")),
            lambda c: (c.assign({PARTITION: (1, 2)}), c.process(coroutine)),
        ),
    ),
    "a plain function on the event loop": Row(
        work(executor="loop"),
        ConfigError,
        "the event loop runs coroutine functions, and threads and processes run plain ones",
        (work(executor="threads"), work()),
    ),
    "transactions of committed and other records": Row(
        work(transactional_id="x"),
        ConfigError,
        "isolation.level=read_committed",
        (),
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_call_of_process_that_follows_the_advice_works(
    row: Row, servers: str, request: pytest.FixtureRequest
) -> None:
    group = re.sub(r"\W", "-", request.node.name)
    with Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
        with pytest.raises(row.error, match=re.escape(row.advice)):
            row.wrong(consumer)
        for right in row.right:
            right(consumer)


def test_transactions_of_process_read_committed_records(servers: str) -> None:
    with Consumer(
        bootstrap_servers=servers, group_id="committed", isolation_level="read_committed"
    ) as consumer:
        work(transactional_id="advice-work")(consumer)


def test_transactions_of_process_are_those_of_a_group(servers: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": servers, "isolation_level": "read_committed"}
    with (
        Consumer(**settings) as consumer,
        pytest.raises(ConfigError, match=re.escape("transactional_id needs a group.id")),
    ):
        work(transactional_id="advice-group")(consumer)
    with Consumer(**settings, group_id="of-transactions") as consumer:
        work(transactional_id="advice-group")(consumer)


def test_a_loop_ends_where_stopping_is_true(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    with Consumer(bootstrap_servers=servers) as consumer, caplog.at_level(logging.WARNING, "kadence"):
        consumer.assign([PARTITION])
        consumer.stop()
        while "End the loop when consumer.stopping is true" not in caplog.text:
            consumer.poll(0)
        while not consumer.stopping:
            consumer.poll(0)


def test_a_transaction_that_must_be_aborted(servers: str) -> None:
    with Producer(
        bootstrap_servers=servers, transactional_id="aborted", max_request_size=2_000_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v" * 1_500_000)
        with pytest.raises(KafkaError) as caught:
            producer.commit_transaction()
        assert "call abort_transaction(), then begin a new one" in caught.value.__notes__[-1]
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"v")
        producer.commit_transaction()


def test_a_producer_that_was_fenced(servers: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id="fenced") as old:
        old.init_transactions()
        old.begin_transaction()
        with Producer(bootstrap_servers=servers, transactional_id="fenced") as new:
            new.init_transactions()
            with pytest.raises(KafkaError) as caught:
                old.send("t", b"v").result(10)
            with pytest.raises(KafkaError) as caught:
                old.commit_transaction()
            assert "close it, and create another one" in caught.value.__notes__[-1]
        old.close()
    with Producer(bootstrap_servers=servers, transactional_id="fenced") as another:
        another.init_transactions()
        another.begin_transaction()
        another.commit_transaction()


def test_transactions_begin_with_init_transactions(servers: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id="begun") as producer:
        with pytest.raises(IllegalStateError, match=r"init_transactions\(\) was not called"):
            producer.begin_transaction()
        producer.init_transactions()
        producer.begin_transaction()
        producer.abort_transaction()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork()")
def test_records_are_done_in_the_process_that_has_read_them(servers: str) -> None:
    with Consumer(
        bootstrap_servers=servers, group_id="forked", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign([PARTITION])
        records = consumer.poll(10)
        assert records
        work = consumer.track(records)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work.done(records[0])
            except ForkedError as error:
                code = 0 if "call done() in the process that has read them" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert work.unfinished == len(records)
        for record in records:
            work.done(record)
        assert work.unfinished == 0
        consumer.commit()
        committed = consumer.committed([PARTITION])[PARTITION]
        assert committed is not None
        assert committed.offset == consumer.position(PARTITION) > records[-1].offset


def test_a_commit_beside_process_says_which_offsets(servers: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=servers,
            group_id="beside",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=60_000,
        ) as consumer:
            told: list[str] = []

            async def handle(record: Any) -> None:
                with pytest.raises(IllegalStateError) as caught:
                    await consumer.commit()
                told.append(str(caught.value))
                await consumer.commit({PARTITION: OffsetAndMetadata(record.offset)})

            await consumer.assign({PARTITION: (0, 1)})
            assert (await consumer.process(handle)).done == 1
            assert "commit() without offsets would commit what is not done, too" in told[0]

    asyncio.run(main())


def test_a_task_polls_when_process_of_another_task_has_returned(servers: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=servers, group_id="later") as consumer:
            began = asyncio.Event()

            async def handle(_: Any) -> None:
                began.set()
                await asyncio.sleep(0.1)

            await consumer.assign({PARTITION: (0, 1)})
            working = asyncio.ensure_future(consumer.process(handle))
            await began.wait()
            with pytest.raises(ConcurrentAccessError, match="only it may poll until it has returned"):
                await consumer.poll(0)
            await working
            await consumer.assign({PARTITION: (1, 2)})
            assert [record.value for record in await consumer.poll(10)] == [b"1"]

    asyncio.run(main())
