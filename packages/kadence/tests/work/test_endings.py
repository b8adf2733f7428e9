"""Every way in which a handler can end: each record is done, or a dead letter that says why, and nothing hangs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.work import handlers
from tests.work.worlds import Real

from kadence.work import Retry
from kadence.work.workers import outputs_of

CHOSEN = [
    ("threads", "threads"),
    ("threads", "loop"),
    ("asyncio", "loop"),
    ("threads", "processes"),
]


def expected(executor: str) -> dict[str, bytes]:
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
    return found


@pytest.mark.parametrize(("kind", "executor"), CHOSEN)
@pytest.mark.parametrize("in_batches", [False, True])
def test_a_handler_may_end_in_any_way(
    real: Real, kind: str, executor: Any, in_batches: bool, caplog: pytest.LogCaptureFixture
) -> None:
    real.kind = kind
    letters = expected(executor)
    if in_batches and executor != "processes":
        # All outputs of a list fail together.
        del letters["cannot be sent"]
    names = [name.encode() for name in ("returns", *letters, "returns nothing")]
    real.send("one", [{"value": name, "key": name} for name in names])
    count = len(names)
    # Children die with some records: those beside them would die as well.
    batch = None if not in_batches else ((1, 0) if executor == "processes" else (count, 0.05))
    totals = real.member("one", auto_commit_interval_ms=20).process(
        handlers.awaited_ending if executor == "loop" else handlers.ending,
        until=lambda: real.offset() == count,
        executor=executor,
        workers=2,
        retry=Retry(attempts=2, backoff=0),
        dead_letter="dead",
        batch=batch,
        halve=in_batches,
    )
    assert real.committed()[0] == (count, "")
    found = {record.value.decode(): dict(record.headers) for record in real.read("dead")}
    assert {name: headers["kadence.error.class"] for name, headers in found.items()} == letters
    repeated = {name for name, headers in found.items() if headers["kadence.error.attempts"] == b"2"}
    assert repeated == {name for name, cls in letters.items() if cls.decode() not in handlers.NO_EXCEPTIONS}
    assert (totals.done, totals.dead_lettered) == (count, len(letters))
    assert totals.failed == len(letters) + len(repeated)
    assert caplog.text.count("goes to the dead letter topic") == len(letters)
    assert b"Unspeakable" in (found["cannot be shown"]["kadence.error.message"] or b"")


@pytest.mark.parametrize(("kind", "executor"), CHOSEN)
def test_a_handler_that_returns_what_cannot_be_shown_ends_it(real: Real, kind: str, executor: Any) -> None:
    """Every record would end so: none becomes a dead letter."""
    real.kind = kind
    real.write("one", 2)
    with pytest.raises(TypeError, match="a handler returns None, ProducerRecords"):
        real.member("one").process(
            handlers.awaited_nonsense if executor == "loop" else handlers.nonsense,
            executor=executor,
            dead_letter="dead",
            order="partition",
        )
    assert real.read("dead") == []
    assert real.offset() == 0


@pytest.mark.parametrize("result", [b"secret", [b"secret"]])
def test_s3_a_result_that_is_no_record_is_named_by_its_class(result: Any) -> None:
    with pytest.raises(TypeError, match=r"ProducerRecords.*, not bytes$"):
        list(outputs_of(result) or ())
