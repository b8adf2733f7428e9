from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from kadence import logs
from kadence.logs import Lines, LogLimiter, in_short, logger
from kadence.types import TopicPartition

LOG = logger("kadence.consumer")


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="kadence")


def test_the_client_id_of_another_member_begins_no_line(caplog: pytest.LogCaptureFixture) -> None:
    LOG.info(
        "group %s: member %s joins a rebalance: %s",
        "g",
        "me-1",
        "joined: x\nWARNING kadence.net forged\x9b2J-2",
    )
    assert caplog.messages == [
        r"group g: member me-1 joins a rebalance: joined: x\x0aWARNING kadence.net forged\x9b2J-2"
    ]


def test_an_error_that_quotes_somebody(caplog: pytest.LogCaptureFixture) -> None:
    LOG.warning("%s", ValueError("said\x1b[2J"))
    assert caplog.messages == [r"said\x1b[2J"]


def test_handlers_get_the_arguments_that_were_given(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("plain")
    LOG.info("%s after %d s and %.1f", error, 3, 0.5)
    assert caplog.records[0].args == (error, 3, 0.5)
    LOG.info("no arguments")
    assert caplog.messages == ["plain after 3 s and 0.5", "no arguments"]


def test_a_stack_keeps_its_lines(caplog: pytest.LogCaptureFixture) -> None:
    LOG.info("%s works here: %s", "thread\n1", Lines("line 1\nline 2"))
    assert caplog.messages == ["thread\\x0a1 works here: line 1\nline 2"]


def test_all_loggers_are_made_so() -> None:
    """But those whose handlers or level the command line sets."""
    source = Path(__file__).parents[3] / "packages"
    found = {
        path.relative_to(source).as_posix()
        for path in source.glob("*/src/**/*.py")
        if re.search(r"= logging\.getLogger\(.kadence", path.read_text())
    }
    assert found == {f"kadence-cli/src/kadence_cli/{name}.py" for name in ("main", "reach")}


def test_a_handler_that_raises_is_told_on_stderr_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no disk")

    monkeypatch.setattr(logs, "handler_failed", logs._show)
    log, broken = logger("kadence.test_logs"), Broken()
    log.addHandler(broken)
    try:
        log.warning("a line")
    finally:
        log.removeHandler(broken)
    assert "no disk" in capsys.readouterr().err


def test_a_change_is_news_a_repetition_only_after_a_minute() -> None:
    news = LogLimiter()
    assert news.is_new(0, "t-0", "A")
    assert not news.is_new(1, "t-0", "A")
    assert news.is_new(2, "t-1", "A"), "another subject"
    assert news.is_new(3, "t-0", "B")
    assert news.is_new(4, "t-0", "A")
    assert not news.is_new(60_003, "t-0", "A")
    assert news.is_new(60_004, "t-0", "A")
    news.over("t-0")
    assert news.is_new(60_005, "t-0", "A")


def test_partitions_in_short() -> None:
    assert in_short([]) == "none"
    numbers = [0, 1, 2, 7, 9, 10]
    found = in_short([*(TopicPartition("t", n) for n in reversed(numbers)), TopicPartition("a", 3)])
    assert found == "a[3] t[0-2,7,9-10]"
