"""The producer's lock: nothing foreign runs under it, and a signal handler that comes in the middle hangs nobody.

That no log call is made under it is looked at in every test of the producer (conftest.py).
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE, once_inside, until
from tests.producer.reading import read_all

from kadence import Broker, Producer, RecordFuture, logs
from kadence.errors import ClosedError, IllegalStateError
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.produce import ProduceRequest

LOGGER = logging.getLogger("kadence")


class Sending(logging.Handler):
    """Writes what is logged to a topic, by the producer that logs it."""

    def __init__(self, producer: Producer) -> None:
        super().__init__(logging.INFO)
        self.producer = producer
        self.sent: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self.producer.send("lines", text.encode())
        self.sent.append(text)


@contextmanager
def handled_by(handler: logging.Handler) -> Iterator[None]:
    before = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)


def test_a_handler_of_the_log_sends_by_the_producer_that_logs(broker: Broker) -> None:
    broker.create_topic("lines", 1)
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1, metadata_max_age_ms=20
    ) as producer:
        producer.send("lines", b"first").result(PATIENCE)
        handler = Sending(producer)
        with handled_by(handler):
            with broker.faults.error(MetadataRequest, ec.REQUEST_TIMED_OUT, times=1):
                until(lambda: any("metadata request failed" in text for text in handler.sent))
            with broker.faults.error(ProduceRequest, ec.NOT_ENOUGH_REPLICAS, times=1):
                producer.send("t", b"x").result(PATIENCE)
            until(lambda: any("repeating" in text for text in handler.sent))
        producer.flush(PATIENCE)
    found = read_all(broker.bootstrap_servers, "lines", 1, 1 + len(handler.sent))
    assert [message.value() for message in found] == [b"first", *(text.encode() for text in handler.sent)]


def test_a_handler_of_the_log_that_raises_ends_no_producer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no disk")

    failed: list[logging.LogRecord] = []
    monkeypatch.setattr(logs, "handler_failed", failed.append)
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as producer,
        handled_by(Raising(logging.INFO)),
        broker.faults.error(ProduceRequest, ec.NOT_ENOUGH_REPLICAS, times=1),
    ):
        assert producer.send("t", b"x").result(PATIENCE).offset == 0
        assert logs.flush(PATIENCE)
    assert failed


def test_what_a_program_brings_along_is_called_without_the_lock(broker: Broker) -> None:
    held: list[tuple[str, bool]] = []

    def look(name: str) -> None:
        held.append((name, producer._gate.is_mine))

    class Text(dict[str, bytes]):
        def items(self) -> Any:
            look("headers")
            return super().items()

    def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        look("partitioner")
        return partitions[0]

    class Serializer:
        def serialize(self, topic: str, headers: object, data: Any) -> bytes:
            look("serializer")
            return str(data).encode()

    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        key_serializer=Serializer(),
        value_serializer=Serializer(),
        partitioner=choose,
    ) as producer:
        for headers in (Text(a=b"1"), ()):
            future = producer.send("t", 1, 2, headers=headers)
            future.add_done_callback(lambda future: look("callback"))
        producer.flush(PATIENCE)
    assert {name for name, _ in held} == {"serializer", "headers", "partitioner", "callback"}
    assert not [name for name, is_held in held if is_held]


# ---------------------------------------------------------------- signals in the middle of a call


@contextmanager
def signalled(monkeypatch: pytest.MonkeyPatch, producer: Any, act: Callable[[], object]) -> Iterator[None]:
    """A signal comes while the next record is added to its batch, under the lock. Its handler acts."""
    append = producer._accumulator.append

    def interrupted(*args: Any) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)
        return append(*args)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: act())
    monkeypatch.setattr(producer._accumulator, "append", interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


HEADERS = {"thesé": b"take the long way, since the name is not ASCII"}


@pytest.mark.parametrize(
    "call",
    [
        lambda producer, future: producer.send("t", b"y"),
        lambda producer, future: producer.send("t", b"y", headers=HEADERS),
        lambda producer, future: producer.send_arrow(pa.table({"value": ["y"]}), "t"),
        lambda producer, future: producer.flush(),
        lambda producer, future: producer.partitions_for("t"),
        lambda producer, future: future.result(),
        lambda producer, future: future.add_done_callback(print),
    ],
)
def test_a_call_in_a_signal_handler_that_interrupted_one_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, call: Callable[[Producer, RecordFuture], object]
) -> None:
    refused: list[str] = []

    def handle() -> None:
        with pytest.raises(IllegalStateError) as raised:
            call(producer, waiting)
        refused.append(str(raised.value))

    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        waiting = producer.send("t", b"x", headers=HEADERS)
        with signalled(monkeypatch, producer, handle):
            future = producer.send("t", b"x", headers=HEADERS)
        producer.flush(PATIENCE)
        assert (waiting.result().offset, future.result().offset) == (0, 1)
    assert ["it may call only close()" in each for each in refused] == [True]


def test_transactions_begin_in_no_signal_handler_that_interrupted_a_call(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        refused: list[BaseException] = []

        def handle() -> None:
            for call in (producer.commit_transaction, producer.begin_transaction):
                with pytest.raises(IllegalStateError, match="signal handler") as raised:
                    call()
                refused.append(raised.value)

        with producer.transaction(), signalled(monkeypatch, producer, handle):
            producer.send("t", b"x", headers=HEADERS)
    assert len(refused) == 2


def test_an_exception_of_a_signal_handler_leaves_the_lock_free(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.partitions_for("t")
        with (
            pytest.raises(IllegalStateError, match="signal handler"),
            signalled(monkeypatch, producer, producer.flush),
        ):
            producer.send("t", b"x", headers=HEADERS)
        assert producer.send("t", b"y").result(PATIENCE).offset == 0


def test_close_in_a_signal_handler_lets_the_call_end_that_it_interrupted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
    producer.partitions_for("t")
    with signalled(monkeypatch, producer, producer.close):
        future = producer.send("t", b"x", headers=HEADERS)
    assert future.result(PATIENCE).offset == 0
    producer._engine.join(PATIENCE)
    assert not producer._engine.is_alive()
    with pytest.raises(ClosedError):
        producer.send("t", b"x")
    producer.close()


def test_close_in_a_signal_handler_ends_a_call_that_waits() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    before = signal.signal(signal.SIGUSR1, lambda number, frame: producer.close(0))
    main = threading.get_ident()
    try:
        once_inside(lambda: signal.pthread_kill(main, signal.SIGUSR1))
        with pytest.raises(ClosedError):
            producer.send("t", b"x")
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_signals_at_any_moment_hang_nobody(broker: Broker) -> None:
    """Wherever they come, their calls are done or refused, and what was sent is written."""
    futures: list[RecordFuture] = []
    refused: list[str] = []
    came = 0

    def handle(number: int, frame: object) -> None:
        nonlocal came
        came += 1
        try:
            futures.append(producer.send("t", b"by a handler", headers=HEADERS))
            producer.flush(PATIENCE)
        except IllegalStateError as error:
            refused.append(str(error))
        if came < 100:
            signal.setitimer(signal.ITIMER_REAL, 0.001)

    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        before = signal.signal(signal.SIGALRM, handle)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while came < 100:
                futures.append(producer.send("t", b"x"))
                futures.append(producer.send("t", b"x", headers=HEADERS))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    offsets = sorted(future.result().offset for future in futures)
    assert offsets == list(range(len(futures)))
    assert all("signal handler" in each for each in refused)
