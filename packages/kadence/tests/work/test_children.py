"""Child processes of `process`: how they start, and what is said when they do not."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.patience import PATIENCE, until, without_pauses
from tests.work import failing, handlers, hanging
from tests.work.worlds import Real

from kadence import Retry, WorkerStartError
from kadence.errors import HandlerTimeoutError
from kadence.work import driver
from kadence.work.child import Child, imported_by, wait_for_start
from kadence.work.processes import Children

IMPORTED = ("the program worker.py", "module 'app' of the handler")


def start(said: list[bytes], code: int | None = None, limit_ms: int = 0) -> None:
    """What the parent makes of a child that says this, and then ends with this code or says no more."""
    ours, theirs = multiprocessing.Pipe()
    with ours:
        for each in said:
            theirs.send_bytes(each)
        if code is not None:
            theirs.close()
        try:
            wait_for_start(_connection(ours), IMPORTED, limit_ms, lambda: code)
        finally:
            theirs.close()


def _connection(pipe: Any) -> Connection:
    assert isinstance(pipe, Connection)
    return pipe


def test_a_child_that_has_imported_all_has_started() -> None:
    start([b"", b""])


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ([], None, "has not imported the program worker.py within 0 s"),
        ([b""], None, "has not imported module 'app' of the handler within 0 s"),
        ([b"", b"ImportError: x"], None, "could not import module 'app' of the handler: ImportError: x"),
        ([], 3, "could not import the program worker.py: it ended with exit code 3"),
        ([], 79, "could not import the program worker.py: each worker process imports the program again"),
    ],
)
def test_a_child_that_does_not_start_is_told_with_the_import_that_failed(
    said: list[bytes], code: int | None, words: str
) -> None:
    with pytest.raises(WorkerStartError) as raised:
        start(said, code)
    assert words in str(raised.value)


def test_what_a_child_imports_is_named() -> None:
    for handler in (handlers.work, functools.partial(handlers.work, context=None)):
        assert imported_by(handler)[1] == "module 'tests.work.handlers' of the handler"
    program, _ = imported_by(handlers.work)
    assert program.startswith("the program")


def test_an_import_that_fails_ends_it_and_is_no_attempt(real: Real) -> None:
    real.write("one", 3)
    with pytest.raises(WorkerStartError, match=r"could not import module 'tests\.work\.failing'"):
        real.member("one").process(
            failing.work,
            executor="processes",
            workers=4,
            retry=Retry(attempts=3),
            dead_letter="dead",
            drain=0,
        )
    assert real.read("dead") == []
    assert real.offset() == 0


def test_an_import_that_hangs_ends_it_and_is_no_attempt(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(settings: Any, new_decode: Any, max_poll_ms: int, tracing: Any) -> Children:
        return Children(settings, new_decode, 500, tracing)

    monkeypatch.setattr(driver, "Children", impatient)
    real.write("one", 3)
    # On a busy machine it may not have come to the module.
    with pytest.raises(WorkerStartError, match=r"has not imported .* within 0\.5 s"):
        real.member("one").process(
            hanging.work, executor="processes", retry=Retry(attempts=3), dead_letter="dead", drain=0
        )
    assert real.read("dead") == []
    assert real.offset() == 0


def test_children_that_process_ends_make_no_dead_letters(real: Real, tmp_path: Path) -> None:
    """What outlasts ``drain`` comes again: it has not failed."""
    real.write("one", [str(tmp_path / "it").encode()])
    totals = real.member("one").process(
        handlers.until_lost,
        until=(tmp_path / "it").exists,
        executor="processes",
        dead_letter="dead",
        drain=0,
    )
    assert (totals.done, totals.failed) == (0, 0)
    assert real.read("dead") == []
    assert real.offset() == 0


PROGRAM = """
import sys
from kadence import Consumer, ProducerRecord, TopicPartition


def work(record):
    return ProducerRecord("out", record.value + b" " + __name__.encode())


def main():
    print("begins", file=sys.stderr)
    with Consumer(bootstrap_servers=sys.argv[1], group_id="g") as consumer:
        consumer.assign({TopicPartition("one", 0): (0, 3)})
        consumer.process(work, executor="processes", workers=4, dead_letter="dead")


"""


def run(program: str, real: Real, *arguments: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, program, *arguments, real.servers],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return ended.returncode, without_pauses(ended.stderr)


def test_a_handler_of_the_program_itself_runs_in_children(real: Real, tmp_path: Path) -> None:
    real.write("one", 3)
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM + 'if __name__ == "__main__":\n    main()\n')
    assert run(str(program), real) == (0, "begins\n")
    assert sorted(record.value or b"" for record in real.read("out")) == [
        b"%d __mp_main__" % n for n in range(3)
    ]


def test_a_program_without_a_guard_gets_one_error(real: Real, tmp_path: Path) -> None:
    real.write("one", 3)
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM + "main()\n")
    code, said = run(str(program), real)
    assert code == 1
    assert said.count("begins") == 2, "one child came so far, and it began nothing"
    assert said.splitlines()[-1] == (
        f"kadence.errors.WorkerStartError: a worker process could not import the program {program}: each worker "
        "process imports the program again, and that import called process(): start the program under "
        "'if __name__ == \"__main__\":'"
    )
    assert said.count("Traceback") == 1
    assert real.read("dead") == []


def test_a_handler_that_was_typed_in_is_told_so(real: Real) -> None:
    real.write("one", 3)
    code, said = run("-c", real, PROGRAM + "main()\n")
    assert code == 1
    assert "a worker process could not import the program: AttributeError: Can't get attribute 'work'" in said


@pytest.mark.skipif(sys.platform == "win32", reason="there a process cannot send itself Ctrl-C alone")
def test_ctrl_c_does_not_end_a_child_that_imports_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing, os, pickle, signal, sys
from kadence.work.child import Child

if multiprocessing.current_process().name == "kadence-work":
    os.kill(os.getpid(), signal.SIGINT)

def work(record):
    pass

if __name__ == "__main__":
    for _ in range(2):
        child = Child(pickle.dumps((work, False, False)))
        child.wait_for_start(("the program", "the module"), 60_000)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    print("started", flush=True)
"""
    )
    ended = subprocess.run(
        [sys.executable, str(program)], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.stdout == "started\n", ended.stderr


WAITING = """
import sys, threading, time
from pathlib import Path
from kadence import Consumer, ProducerRecord, stop_on_signals

here = Path(__file__)


def work(record):
    here.with_name("begun").touch()
    while not here.with_name("release").exists():
        time.sleep(0.01)
    return ProducerRecord("out", record.value)


def main():
    with Consumer(bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("one")
        print(consumer.process(work, executor="processes", workers=4, dead_letter="dead").done)


if __name__ == "__main__":
"""

IN_ORDER = """
    with stop_on_signals():
        main()
"""

AT_ONCE = """
    main()
"""

ON_A_THREAD = """
    threading.Thread(target=main, daemon=True).start()
    while not here.with_name("begun").exists():
        time.sleep(0.01)
"""


def begun(real: Real, program: Path, text: str) -> subprocess.Popen[str]:
    """A program whose handler waits in a child, in a group of processes of its own."""
    real.write("one", 1)
    program.write_text(WAITING + text)
    started = subprocess.Popen(
        [sys.executable, str(program), real.servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(program.with_name("begun").exists)
    return started


def end_of(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit code, and what it and its children said: it ends when none of them has its pipes any more."""
    output, errors = program.communicate(timeout=PATIENCE)
    return program.returncode, output, without_pauses(errors)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no groups of processes")
def test_a_signal_to_the_whole_group_lets_handlers_in_children_end(real: Real, tmp_path: Path) -> None:
    """So systemd stops a service: each of its processes gets SIGTERM."""
    program = begun(real, tmp_path / "program.py", IN_ORDER)
    os.killpg(program.pid, signal.SIGTERM)
    (tmp_path / "release").touch()
    assert end_of(program) == (0, "1\n", "")
    assert [record.value for record in real.read("out")] == [b"0"]
    assert real.read("dead") == []


@pytest.mark.skipif(sys.platform == "win32", reason="there are no groups of processes")
def test_a_signal_that_ends_the_program_ends_its_children(real: Real, tmp_path: Path) -> None:
    program = begun(real, tmp_path / "program.py", AT_ONCE)
    os.killpg(program.pid, signal.SIGTERM)
    assert end_of(program) == (-signal.SIGTERM, "", "")


def test_the_end_of_the_program_does_not_wait_for_handlers_in_children(real: Real, tmp_path: Path) -> None:
    program = begun(real, tmp_path / "program.py", ON_A_THREAD)
    code, output, _ = end_of(program)
    assert (code, output) == (0, "")


def test_an_answer_that_does_not_come_in_time_is_no_death() -> None:
    """`HandlerTimeoutError` is an OSError, as is a broken pipe."""
    child = Child.__new__(Child)
    pipe: Any = SimpleNamespace(send_bytes=lambda data: None, poll=lambda seconds: False)
    child._pipe = pipe
    with pytest.raises(HandlerTimeoutError, match=r"longer than timeout=0\.5 s"):
        child.ask([], 1, None, 500)
