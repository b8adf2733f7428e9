"""A handler that forks: its child is no worker, and ends with the call. And no worker outlives the program (H12)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until, without_pauses
from tests.work.worlds import Real

FORKING = """
import asyncio, os, sys
from pathlib import Path
from kadence import Consumer, ProducerRecord, TopicPartition

here = Path(__file__)


def forked(value):
    \"\"\"The exit code of a child, and in the child None.\"\"\"
    with open(here.with_suffix(".journal"), "a") as journal:
        journal.write(value.decode() + "\\n")
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("child", value.decode())
    if int(value) % 3 == 1:
        raise RuntimeError("of the child")
    if int(value) % 3 == 2:
        sys.exit(3)
    return None


def ended(value, code):
    if code is None:
        return []
    if value in (b"1", b"3"):
        raise ValueError(f"of the parent, {code}")
    return [ProducerRecord("out", b"%s %d" % (value, code))]


def work(record):
    return ended(record.value, forked(record.value))


def batch(records):
    return work(records[0])


def generator(given):
    yield from work(given[0] if isinstance(given, list) else given)


async def coroutine(record):
    await asyncio.sleep(0)
    return work(record)


async def awaits(record):
    result = work(record)
    if not result:
        await asyncio.sleep(0)
        (here.parent / "went on").touch()
    return result


async def generating(record):
    for each in work(record):
        yield each


def decode(data):
    code = forked(data)
    return data, code


def decoded(record):
    return ended(*record.value)


async def decoded_on_loop(record):
    return ended(*record.value)


HANDLERS = {
    "threads": (work, {}),
    "processes": (work, {"executor": "processes"}),
    "batch": (batch, {"batch": (1, 0)}),
    "batch in processes": (batch, {"batch": (1, 0), "executor": "processes"}),
    "generator": (generator, {}),
    "generator in processes": (generator, {"executor": "processes"}),
    "generator in halves": (generator, {"batch": (1, 0), "halve": True}),
    "generator in transactions": (generator, {"transactional_id": "t"}),
    "coroutine": (coroutine, {}),
    "coroutine that awaits": (awaits, {}),
    "async generator": (generating, {}),
    "deserializer": (decoded, {}),
    "deserializer on a loop": (decoded_on_loop, {}),
}


def main():
    handler, more = HANDLERS[sys.argv[1]]
    settings = {"value_deserializer": decode} if "deserializer" in sys.argv[1] else {}
    with Consumer(
        bootstrap_servers=sys.argv[2], group_id="g", isolation_level="read_committed", **settings
    ) as consumer:
        consumer.assign({TopicPartition("one", 0): (0, 6)})
        totals = consumer.process(handler, workers=2, order="none", dead_letter="dead", **more)
    print("parent", totals.done, totals.dead_lettered)


if __name__ == "__main__":
    main()
"""

KINDS = [
    "threads",
    "processes",
    "batch",
    "batch in processes",
    "generator",
    "generator in processes",
    "generator in halves",
    "generator in transactions",
    "coroutine",
    "coroutine that awaits",
    "async generator",
    "deserializer",
    "deserializer on a loop",
]


def run(program: Path, text: str, *arguments: str) -> tuple[list[str], str]:
    """What a program says, on stdout and on stderr. It must end, and all its children."""
    program.write_text(text)
    ended = subprocess.run(
        [sys.executable, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    said = without_pauses(ended.stderr)
    assert ended.returncode == 0, said
    return ended.stdout.splitlines(), said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("kind", KINDS)
def test_a_child_that_a_handler_forks_is_no_worker(real: Real, tmp_path: Path, kind: str) -> None:
    """It ends with the call, by the code that Python has for this, and what it printed is written."""
    real.write("one", 6)
    program = tmp_path / "program.py"
    said, errors = run(program, FORKING, kind, real.servers)
    assert Counter(said) == Counter(["parent 6 2", *(f"child {n}" for n in range(6))]), errors
    assert sorted(program.with_suffix(".journal").read_text().split()) == [str(n) for n in range(6)]
    assert errors.count("RuntimeError: of the child") == 2, errors
    returned = 1 if kind == "coroutine that awaits" else 0
    assert not (tmp_path / "went on").exists()
    codes = {0: returned, 1: 1, 2: 3}
    assert sorted(record.value or b"" for record in real.read("out")) == [
        b"%d %d" % (n, codes[n % 3]) for n in (0, 2, 4, 5)
    ]
    letters = {record.value: dict(record.headers)["kadence.error.message"] for record in real.read("dead")}
    assert letters == {b"1": b"of the parent, 1", b"3": b"of the parent, %d" % returned}


LISTENING = """
import os, sys
from kadence import Consumer, ProducerRecord, RebalanceListener
from kadence.errors import ForkedError


class Forks(RebalanceListener):
    child = None

    def on_partitions_assigned(self, partitions):
        if self.child is None:
            self.child = os.fork()
            if not self.child and sys.argv[1] == "exits":
                sys.exit(3)
            if self.child:
                print("parent", os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1]))


def stops(record):
    if record.value == b"5":
        consumer.stop()
    return ProducerRecord("out", record.value)


if __name__ == "__main__":
    with Consumer(bootstrap_servers=sys.argv[2], group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("one", listener=Forks())
        consumer.poll(0, max_records=1)
        try:
            consumer.process(stops, drain=3600)
        except ForkedError:
            print("refused", flush=True)
            sys.exit(5)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(("end", "said"), [("exits", ["parent 3"]), ("returns", ["refused", "parent 5"])])
def test_a_child_that_a_listener_forks_leaves_process_at_once(
    real: Real, tmp_path: Path, end: str, said: list[str]
) -> None:
    """It waits for no handler, and for no lock: they are the parent's."""
    real.write("one", 6, keys=6)
    assert run(tmp_path / "program.py", LISTENING, end, real.servers)[0] == said
    assert sorted(real.values()) == list(range(6))


HANGING = """
import ctypes, logging, os, sys, time
from pathlib import Path
from kadence import Consumer
from kadence.work import child

here = Path(__file__)


def tells_its_number():
    # In one step: who finds the file reads the whole number.
    (new := here.with_name("new")).write_text(str(os.getpid()))
    new.rename(here.with_name("child"))


# On a busy machine it says that its network thread is kept from running.
logging.disable()
if "watched" in sys.argv:
    child._is_killed_with_parent = lambda: False


def sleeps(record):
    here.with_name(f"begun-{os.getpid()}").touch()
    time.sleep(3600)


def holds_the_interpreter(record):
    here.with_name(f"begun-{os.getpid()}").touch()
    ctypes.PyDLL(None).sleep(3600)


def outlived(record):
    # The child has all descriptors of the worker, whose end is told all the same.
    if record.value == b"0" and not os.fork():
        os.close(0), os.close(1), os.close(2)
        tells_its_number()
        time.sleep(3600)
    while not here.with_name("child").exists():
        time.sleep(0.01)
    os._exit(7)


def main():
    handler = {"sleeps": sleeps, "holds": holds_the_interpreter, "outlived": outlived}[sys.argv[1]]
    with Consumer(bootstrap_servers=sys.argv[2], group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("one")
        if "forks" in sys.argv and not os.fork():
            os.close(0), os.close(1), os.close(2)
            tells_its_number()
            time.sleep(3600)
        consumer.process(handler, executor="processes", workers=2)


if __name__ == "__main__":
    main()
"""


@contextlib.contextmanager
def hanging(real: Real, program: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    program.write_text(HANGING)
    with subprocess.Popen(
        [sys.executable, str(program), arguments[0], real.servers, *arguments[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()
            if (child := program.with_name("child")).exists():
                os.kill(int(child.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    "arguments",
    [
        ["sleeps"],
        pytest.param(
            ["holds"], marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills it then")
        ),
        ["sleeps", "watched"],
        # A pipe tells nobody of the end of a program while another process has its end.
        pytest.param(
            ["sleeps", "forks"], marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
        ),
        pytest.param(
            ["sleeps", "watched", "forks"],
            marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
        ),
    ],
)
def test_worker_processes_end_with_a_program_that_is_killed(
    real: Real, tmp_path: Path, arguments: list[str]
) -> None:
    """None has the program's pipes any more then."""
    real.write("one", 2, keys=2)
    with hanging(real, tmp_path / "program.py", *arguments) as started:
        # Both, for one that is killed while it is being started says so on stderr.
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
        if "forks" in arguments:
            until((tmp_path / "child").exists)
        started.kill()
        assert started.communicate(timeout=PATIENCE) == ("", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_the_end_of_a_worker_process_is_told_though_a_child_of_it_lives(real: Real, tmp_path: Path) -> None:
    real.write("one", 1)
    with hanging(real, tmp_path / "program.py", "outlived") as started:
        # Not to the end of its stderr: the child keeps a process of multiprocessing's alive, which has it as well.
        assert started.wait(PATIENCE) == 1
        assert started.stderr is not None
        assert any("WorkerDiedError: the worker process ended" in line for line in started.stderr)
