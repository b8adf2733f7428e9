"""The bar is shown where a person sees it, and nowhere else."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from kadence import Broker, Producer, read
from kadence.reading import progress


class Bars(list[Any]):
    """In place of tqdm, which is an extra."""

    def __call__(self, **given: Any) -> Any:
        self.append(bar := Told(given))
        return bar


class Told:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.done = 0
        self.is_closed = False

    def update(self, n: int) -> None:
        assert n > 0
        self.done += n

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Bars:
    made = Bars()
    module: Any = ModuleType("tqdm.auto")
    module.tqdm = made
    monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    return made


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_it_counts_offsets_to_the_end(bars: Bars) -> None:
    with Broker(topics={"t": 2, "none": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(6):
                producer.send("t", b"x", partition=number % 2)
            producer.commit_transaction()
        assert read("t", bootstrap_servers=broker.bootstrap_servers).num_rows == 6
        (bar,) = bars
        # Two markers, which nobody sees.
        assert bar.given["total"] == bar.done == 8
        assert bar.given["desc"] == "t"
        assert bar.is_closed
        read("t", bootstrap_servers=broker.bootstrap_servers, progress=False)
        read("none", bootstrap_servers=broker.bootstrap_servers)
        assert len(bars) == 1


def test_in_a_file_or_a_pipe_it_is_quiet(bars: Bars, monkeypatch: pytest.MonkeyPatch) -> None:
    progress.bar("t", 5, is_wanted=True).update(1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress.bar("t", 5, is_wanted=True).close()
    assert not bars


def test_in_a_notebook_it_is_shown(bars: Bars, monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell:
        pass

    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    progress.bar("t", 5, is_wanted=True)
    assert len(bars) == 1


@pytest.mark.usefixtures("terminal")
def test_without_tqdm_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    progress.bar("t", 5, is_wanted=True).update(2)
