"""Lines of the threads of clients and brokers: they wait for no handler, and handlers get them in order."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from kadence import Broker, Consumer, Producer, logs, own_threads
from kadence.logs import OwnThread, logger
from kadence_testing.kafka import free_ports

LOG = logger("kadence.test_logs")


class Kept(logging.Handler):
    """Keeps what it gets, once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.texts.append(record.getMessage())


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    yield handler
    LOG.removeHandler(handler)


def ended(work: Any) -> bool:
    """Whether a thread of ours that does this comes to its end."""
    thread = OwnThread(work, "kadence-test")
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


def test_a_thread_of_ours_waits_for_no_handler_and_its_lines_come_in_order(kept: Kept) -> None:
    def work() -> None:
        for number in range(100):
            LOG.info("line %d", number)

    # As a thread of the application in a handler that waits for the thread.
    with kept.lock or threading.RLock():
        assert ended(work)
        assert kept.texts == []
    assert logs.flush(PATIENCE)
    assert kept.texts == [f"line {number}" for number in range(100)]
    assert {record.threadName for record in kept.records} == {"kadence-test"}


def test_a_handler_that_waits_inside_something_else_stops_no_thread(kept: Kept) -> None:
    """As one of loguru does, or of structlog: its own lock is not the handler's."""
    inner = threading.Lock()
    emit = kept.emit

    def waits(record: logging.LogRecord) -> None:
        with inner:
            emit(record)

    kept.emit = waits  # type: ignore[method-assign]
    with inner:
        assert ended(lambda: LOG.warning("a line"))
        assert not logs.flush(0.01)
    assert logs.flush(PATIENCE)
    assert kept.texts == ["a line"]


def test_nor_does_the_lock_of_logging_itself(kept: Kept) -> None:
    """`dictConfig` holds it while it closes handlers, of which one may close a client, and so wait for its thread."""
    logging._acquireLock()  # type: ignore[attr-defined]
    try:
        LOG.manager._clear_cache()  # type: ignore[attr-defined]
        assert ended(lambda: LOG.warning("a line"))
    finally:
        logging._releaseLock()  # type: ignore[attr-defined]
    assert logs.flush(PATIENCE)
    assert kept.texts == ["a line"]


def test_what_is_logged_is_what_was_so_then(kept: Kept) -> None:
    things = ["one"]

    class Named:
        def __repr__(self) -> str:
            return f"<{things[0]}>"

    error = ValueError("no")

    def work() -> None:
        LOG.info("%s of %r, %d times in %.1f s: %s", Named(), Named(), 3, 0.5, error)
        things[0] = "two"

    with kept.lock or threading.RLock():
        assert ended(work)
    assert logs.flush(PATIENCE)
    assert kept.texts == ["<one> of <one>, 3 times in 0.5 s: no"]
    assert isinstance(kept.records[0].args, tuple)
    assert kept.records[0].args[2:] == (3, 0.5, error)


def test_an_argument_whose_text_raises(kept: Kept) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert ended(lambda: LOG.info("it is %s", Broken()))
    assert logs.flush(PATIENCE)
    assert "Broken" in kept.texts[0]


def test_those_that_are_too_many_are_left_out_and_counted(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(own_threads, "_MOST", 10)
    entered, may = threading.Event(), threading.Event()
    emit = kept.emit

    def waits(record: logging.LogRecord) -> None:
        entered.set()
        assert may.wait(PATIENCE)
        emit(record)

    kept.emit = waits  # type: ignore[method-assign]

    def work() -> None:
        LOG.info("line")
        assert entered.wait(PATIENCE)
        for _ in range(25):
            LOG.info("line")

    assert ended(work)
    may.set()
    assert logs.flush(PATIENCE)
    assert len(kept.texts) == 11
    assert "15 lines left out here: handlers of logging took those before them too slowly" in caplog.text


def test_a_handler_that_raises_ends_no_delivery(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "handler_failed", logs._show)
    emit = kept.emit

    def raises(record: logging.LogRecord) -> None:
        kept.emit = emit  # type: ignore[method-assign]
        raise RuntimeError("no disk")

    kept.emit = raises  # type: ignore[method-assign]

    def work() -> None:
        LOG.info("first")
        LOG.info("second")

    assert ended(work)
    assert logs.flush(PATIENCE)
    assert kept.texts == ["second"]
    assert "no disk" in capsys.readouterr().err


def test_where_no_thread_can_be_had_lines_wait(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their handlers run on no thread of ours, which one that waits would stop, and one that exits would end."""
    start = threading.Thread.start
    seen: list[threading.Thread] = []
    emit = kept.emit

    def keeps(record: logging.LogRecord) -> None:
        seen.append(threading.current_thread())
        emit(record)

    def none_left(thread: threading.Thread) -> None:
        if thread.name == "kadence-log":
            raise RuntimeError("can't start new thread")
        start(thread)

    kept.emit = keeps  # type: ignore[method-assign]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        assert ended(lambda: LOG.info("first"))
        assert not logs.flush(PATIENCE)
        assert kept.texts == []
    assert logs.flush(PATIENCE)
    assert kept.texts == ["first"]
    assert not any(isinstance(thread, OwnThread) for thread in seen)


def test_threads_of_the_application_call_handlers_themselves(kept: Kept) -> None:
    threads: list[threading.Thread] = []
    emit = kept.emit

    def seen(record: logging.LogRecord) -> None:
        threads.append(threading.current_thread())
        emit(record)

    kept.emit = seen  # type: ignore[method-assign]
    LOG.info("here")
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize(
    "end",
    ["", "raise SystemExit(3)", "raise RuntimeError('crash')", "multiprocessing"],
    ids=["end", "exit", "crash", "multiprocessing"],
)
def test_the_end_of_the_process_delivers_what_waits(end: str) -> None:
    program = textwrap.dedent(
        """
        import logging, multiprocessing, sys, time
        from kadence import Producer
        from kadence.logs import OwnThread, logger

        class Slow(logging.StreamHandler):
            def emit(self, record):
                time.sleep(0.2)
                super().emit(record)

        def work():
            logger("kadence.x").warning("the last line")

        def main():
            logging.basicConfig(handlers=[Slow()], format="%(message)s")
            producer = Producer(bootstrap_servers="127.0.0.1:1")
            thread = OwnThread(work, "x")
            thread.start()
            thread.join()
            producer.close(0)

        if __name__ == "__main__":
            if sys.argv[1] == "multiprocessing":
                process = multiprocessing.get_context("fork").Process(target=main)
                process.start()
                process.join()
            else:
                main()
                exec(sys.argv[1])
        """
    )
    run = subprocess.run(
        [sys.executable, "-c", program, end], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.stderr.count("the last line") == 1, run.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_delivers_its_own_lines_alone(kept: Kept) -> None:
    with kept.lock or threading.RLock():
        assert ended(lambda: LOG.info("of the parent"))
        pid = os.fork()
        if pid == 0:
            kept.createLock()
            status = 1
            try:
                ended(lambda: LOG.info("of the child"))
                status = 0 if logs.flush(PATIENCE) and kept.texts == ["of the child"] else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert logs.flush(PATIENCE)
    assert kept.texts == ["of the parent"]


# ------------------------------------------------------------ clients


class ToKafka(logging.Handler):
    """Writes each line to a topic, as a program's handler does, and waits for room and metadata under its lock."""

    def __init__(self, producer: Producer) -> None:
        super().__init__()
        self.producer = producer
        self.failed: list[Exception] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.producer.send("logs", record.getMessage().encode())
        except Exception as error:  # noqa: BLE001 - it is looked at
            self.failed.append(error)


def test_a_handler_that_writes_to_kafka_while_brokers_are_away() -> None:
    """The program's line is written as soon as they are there, and not lost after max.block.ms."""
    (port,) = free_ports(1)
    producer = Producer(
        bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=30_000, reconnect_backoff_max_ms=100
    )
    handler = ToKafka(producer)
    root, theirs = logging.getLogger(), logging.getLogger("program")
    root.addHandler(handler)
    try:
        thread = threading.Thread(target=theirs.warning, args=("the program's line",))
        thread.start()
        until(lambda: producer._network.trouble)
        with Broker(topics={"logs": 1}, port=port) as broker:
            thread.join(PATIENCE)
            assert handler.failed == []
            with Consumer(
                bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
            ) as consumer:
                consumer.assign_topics("logs")
                found: list[bytes | None] = []
                while b"the program's line" not in found:
                    records = consumer.poll(PATIENCE)
                    assert records
                    found += [record.value for record in records]
            root.removeHandler(handler)
            producer.close()
    finally:
        root.removeHandler(handler)
        producer.close(0)


def test_caplog_sees_what_threads_of_clients_have_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="kadence"):
        assert ended(lambda: LOG.info("of a thread"))
        assert "of a thread" in caplog.messages
        assert ended(lambda: LOG.info("another one"))
        caplog.clear()
        assert caplog.text == ""
