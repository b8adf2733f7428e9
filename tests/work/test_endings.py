"""Every way in which a handler can end: each record is done, or a dead letter that says why, and nothing hangs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE
from tests.work import handlers
from tests.work.test_failures import stop_at
from tests.work.test_process import committed, member, read

from kadence import Producer
from kadence.work import Retry

CHOSEN = [
    ("threads", "threads"),
    ("threads", "loop"),
    ("asyncio", "loop"),
    ("threads", "processes"),
]


@pytest.fixture
def shells() -> Iterator[Any]:
    made: list[Shell] = []

    def make(kind: str) -> Shell:
        made.append(Shell(kind))
        return made[-1]

    yield make
    for shell in made:
        if shell.runner is not None:
            shell.runner.close()


def expected(kind: str, executor: str) -> dict[str, bytes]:
    """The class of each dead letter."""
    found = {name: cls.encode() for name, cls in handlers.ENDINGS.items()}
    if executor == "loop":
        # Python itself turns the second one into this.
        found["is cancelled"] = found["stops"] = b"RuntimeError"
    if executor == "processes":
        found["cannot be pickled"] = found["cannot be shown or pickled"] = b"RuntimeError"
        found["pickles to nonsense"] = b"RuntimeError"
        found["exits hard"] = b"WorkerDiedError"
        if sys.platform != "win32":
            found["is killed"] = b"WorkerDiedError"
    if kind == "asyncio":
        # On the main thread it is Ctrl-C.
        del found["interrupts"]
    return found


@pytest.mark.parametrize(("kind", "executor"), CHOSEN)
@pytest.mark.parametrize("in_batches", [False, True])
def test_a_handler_may_end_in_any_way(
    cluster: Cluster,
    shells: Any,
    kind: str,
    executor: Any,
    in_batches: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shell = shells(kind)
    letters = expected(kind, executor)
    if in_batches and executor != "processes":
        # All outputs of a list fail together.
        del letters["cannot be sent"]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for name in ("returns", *letters, "returns nothing"):
            producer.send("one", name.encode(), name.encode())
    consumer = member(cluster, shell, "one", auto_commit_interval_ms=20)
    count = len(letters) + 2
    watcher = threading.Thread(target=lambda: stop_at(cluster, consumer, count))
    watcher.start()
    # Children die with some records: those beside them would die as well.
    batch = None if not in_batches else ((1, 0) if executor == "processes" else (count, 0.05))
    totals = shell.do(
        lambda: consumer.process(
            handlers.awaited_ending if executor == "loop" else handlers.ending,
            executor=executor,
            workers=2,
            retry=Retry(attempts=2, backoff=0),
            dead_letter="dead",
            batch=batch,
            halve=in_batches,
        )
    )
    watcher.join(PATIENCE)
    shell.do(consumer.close)
    assert committed(cluster, "one")[0] == (count, "")
    found = {record.value.decode(): dict(record.headers) for record in read(cluster, "dead")}
    assert {name: headers["kadence.error.class"] for name, headers in found.items()} == letters
    repeated = {name for name, headers in found.items() if headers["kadence.error.attempts"] == b"2"}
    assert repeated == {name for name, cls in letters.items() if cls.decode() not in handlers.NO_EXCEPTIONS}
    assert (totals.done, totals.dead_lettered) == (count, len(letters))
    assert totals.failed == len(letters) + len(repeated)
    assert caplog.text.count("becomes a dead letter") == len(letters)
    assert b"Unspeakable" in (found["cannot be shown"]["kadence.error.message"] or b"")


@pytest.mark.parametrize(("kind", "executor"), CHOSEN)
def test_a_handler_that_returns_what_cannot_be_shown_ends_it(
    cluster: Cluster, shells: Any, kind: str, executor: Any
) -> None:
    """Every record would end so: none becomes a dead letter."""
    shell = shells(kind)
    cluster.produce("one", 2, partitions=1)
    consumer = member(cluster, shell, "one")
    with pytest.raises(TypeError, match="a handler returns None, ProducerRecords"):
        shell.do(
            lambda: consumer.process(
                handlers.awaited_nonsense if executor == "loop" else handlers.nonsense,
                executor=executor,
                dead_letter="dead",
                order="partition",
            )
        )
    shell.do(consumer.close)
    assert read(cluster, "dead") == []
    assert committed(cluster, "one").get(0, (0, ""))[0] == 0
