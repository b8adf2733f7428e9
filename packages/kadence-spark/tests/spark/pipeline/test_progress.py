"""What a run tells, and what status makes of a checkpoint; without Spark."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from kadence import TopicPartition
from kadence.errors import IllegalStateError
from kadence_cli.pipeline_screen import Screen, line
from kadence_spark.pipeline.checkpoint import committed
from kadence_spark.pipeline.files import LocalFiles
from kadence_spark.pipeline.lock import Lock, is_held
from kadence_spark.pipeline.progress import Batch, Progress, progress_file, shown_seconds
from kadence_spark.pipeline.run import close_session
from kadence_spark.pipeline.status import status

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def begun() -> Progress:
    return Progress("p", "run", "starting", "host", 1, 1_000, 1_000, "parquet x")


def batch(number: int = 0, rows: int = 1_000, seconds: float = 1.0, **expectations: int) -> Batch:
    return Batch(number, rows, rows - 3, 1, 2, expectations, seconds)


def test_batches_add_up() -> None:
    told = begun().after_batch(batch(4, positive=2), 2_000).after_batch(batch(5, positive=3), 3_000)
    assert (told.state, told.batch, told.batches, told.updated_ms) == ("running", 5, 2, 3_000)
    assert (told.rows_in, told.rows_out, told.undecoded, told.dropped) == (2_000, 1_994, 2, 4)
    assert told.expectations == {"positive": 5}
    assert told.rows_per_second == 1_000
    # A batch of nothing says nothing of the rate.
    assert told.after_batch(batch(6, 0), 4_000).rows_per_second == 1_000
    assert 1_000 < (told.after_batch(batch(6, 2_000), 4_000).rows_per_second or 0) < 2_000


def test_time_to_catch_up() -> None:
    told = begun()
    assert told.seconds_to_catch_up is None  # nothing is known
    told = told.after_batch(batch(), 2_000).after_report({ZERO: 300, ONE: 100}, {ZERO: 500, ONE: 200}, 2_000)
    assert told.total_lag == 400
    assert told.growth_per_second is None
    assert told.seconds_to_catch_up == pytest.approx(0.4)
    grown = told.after_report({ZERO: 900, ONE: 100}, {ZERO: 1_100, ONE: 200}, 3_000)
    assert grown.growth_per_second == 600
    assert grown.seconds_to_catch_up == pytest.approx(1_000 / 400)
    losing = told.after_report({ZERO: 9_000}, {ZERO: 10_500, ONE: 200}, 3_000)
    assert losing.seconds_to_catch_up is None
    silent = told.after_report({ZERO: None}, {}, 3_000)
    assert (silent.total_lag, silent.seconds_to_catch_up) == (None, None)
    assert "lag unknown, a broker does not answer" in line(silent)
    assert told.after_report({ZERO: 0}, {ZERO: 500}, 3_000).seconds_to_catch_up == 0


@pytest.mark.parametrize(("seconds", "text"), [(4.4, "4 s"), (150, "2 min"), (5_400, "1.5 h")])
def test_times_for_people(seconds: float, text: str) -> None:
    assert shown_seconds(seconds) == text


def test_a_line_for_people() -> None:
    told = begun().after_batch(batch(positive=2), 2_000).after_report({ZERO: 300}, {ZERO: 500}, 2_000)
    assert line(told) == (
        "p running, 1,000 records read, 997 rows written, 1,000 records/s, 1 not decoded, 2 dropped, "
        "2 rows fail positive, 300 behind, caught up in 0 s"
    )
    slow = told.after_report({ZERO: 9_000}, {ZERO: 9_900}, 2_100)
    assert "9,000 behind and not catching up" in line(slow)
    # The reason is the exception's, which the command prints below.
    assert line(begun().ended("failed", 2_000, "no disk")) == "p failed, 0 records read, 0 rows written"


def test_json_and_back() -> None:
    told = begun().after_batch(batch(positive=2), 2_000).after_report({ZERO: 300}, {ZERO: 500}, 2_000)
    assert Progress.from_json(told.to_json()) == told
    for text in ("", "{}", '{"name": 1, "unknown": 2}'):
        with pytest.raises(IllegalStateError, match="another version"):
            Progress.from_json(text)


def checkpoint(directory: Path, batches: int = 3, commits: int = 2) -> str:
    for name, count in (("offsets", batches), ("commits", commits)):
        (directory / name).mkdir(parents=True)
        for number in range(count):
            text = 'v1\n{"batchWatermarkMs":0}\n' + json.dumps({"#t": {"0": 0}, "t": {"0": number * 10 + 5}})
            (directory / name / str(number)).write_text(text)
    (directory / "commits" / ".1.crc").touch()
    return str(directory)


def test_what_the_checkpoint_says(tmp_path: Path) -> None:
    files = LocalFiles()
    assert committed(files, str(tmp_path / "none")) is None
    found = committed(files, checkpoint(tmp_path / "c"))
    assert found is not None
    assert (found.batch, dict(found.offsets)) == (1, {ZERO: 15})  # batch 2 was planned, and has not ended
    (tmp_path / "c" / "offsets" / "1").write_text("v1\n{}\n12")
    with pytest.raises(IllegalStateError, match="no offsets of Kafka"):
        committed(files, str(tmp_path / "c"))


def test_status(tmp_path: Path) -> None:
    files = LocalFiles()
    with pytest.raises(IllegalStateError, match="no pipeline has run with the checkpoint"):
        status(files, str(tmp_path / "none"))
    place = checkpoint(tmp_path / "c")
    assert status(files, place).document() == {
        "state": "unknown",
        "committed_batch": 1,
        "committed_offsets": {"t-0": 15},
    }
    told = begun().after_batch(batch(1), 2_000).after_report({ZERO: 300}, {ZERO: 500}, 2_000)
    files.write(progress_file(place), told.to_json())
    with Lock(place, "p"):
        assert status(files, place).document()["state"] == "running"
        with (
            pytest.raises(IllegalStateError, match="p is running already on the checkpoint"),
            Lock(place, "p"),
        ):
            pass
    # The lock ended with its holder, which had no time to say so.
    found = status(files, place + "/").document()
    assert (found["state"], found["lag"], found["lag_by_partition"]) == ("killed", 300, {"t-0": 300})
    files.write(progress_file(place), told.ended("finished", 3_000).to_json())
    assert status(files, place).state == "finished"
    assert is_held("s3://bucket/c") is None


def test_files_of_this_machine(tmp_path: Path) -> None:
    files = LocalFiles()
    place = f"file://{tmp_path}/a b"
    assert files.read(place + "/x") is None
    assert files.names(place) == []
    files.write(place + "/x", "one")
    files.write(place + "/x", "two")
    assert files.read(str(tmp_path / "a b" / "x")) == "two"
    files.move(place, str(tmp_path / "deep" / "c"))
    assert files.names(str(tmp_path / "deep")) == ["c"]
    files.delete(str(tmp_path / "deep"))
    files.delete(str(tmp_path / "deep"))
    assert files.names(str(tmp_path)) == []


@dataclass
class Gone:
    """A session whose JVM has ended: Py4J says so when it is used."""

    problem: Exception
    stopped: int = 0

    def stop(self) -> None:
        self.stopped += 1
        raise self.problem


@pytest.mark.parametrize(
    "problem", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()]
)
def test_a_session_whose_jvm_has_ended_is_closed_without_an_error(problem: Exception) -> None:
    """SIGTERM to a whole process group ends the JVM, too."""
    gone = Gone(problem)
    close_session(cast(Any, gone))
    assert gone.stopped == 1


def test_another_error_of_closing_a_session_is_told() -> None:
    with pytest.raises(ZeroDivisionError):
        close_session(cast(Any, Gone(ZeroDivisionError())))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_run_shows() -> None:
    told = (
        begun().after_batch(batch(), 2_000).after_report({ZERO: 300, ONE: None}, {ZERO: 500, ONE: 9}, 2_000)
    )
    plain = io.StringIO()
    with Screen(plain) as screen:
        screen(begun())
        screen(told)
        screen(told)  # too soon for another line
    assert plain.getvalue().splitlines() == [line(told)] * 2  # while it ran, and at the end
    terminal = Terminal()
    with Screen(terminal) as screen:
        screen(told)
    assert "t-0" in terminal.getvalue()
    assert "behind" in terminal.getvalue()
    assert terminal.getvalue().endswith(line(told) + "\n")
