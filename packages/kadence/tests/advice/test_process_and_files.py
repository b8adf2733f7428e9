"""Advice about processes, signals and directories: the program that follows it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kadence import Broker, Consumer, Producer, Retry, TopicPartition, read
from kadence.errors import KafkaError
from kadence.own_files import check_own, own_directory

CALL = """\
import sys
from kadence import Consumer, TopicPartition

def handle(record):
    pass

def main():
    with Consumer(bootstrap_servers=sys.argv[1], group_id="processes") as consumer:
        consumer.assign({TopicPartition("t", 0): (0, 1)})
        print(consumer.process(handle, workers=1, executor="processes").done)

"""


def ran(program: Path, servers: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), servers], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_program_of_worker_processes_starts_under_its_guard(tmp_path: Path) -> None:
    """Its handler is a function of a module."""
    program = tmp_path / "program.py"
    with Broker(topics={"t": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"v")
        with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="processes") as consumer:
            consumer.assign({TopicPartition("t", 0): (0, 1)})
            with pytest.raises(TypeError, match="must be a function of a module, which a child can import"):
                consumer.process(lambda record: None, workers=1, executor="processes")
        program.write_text(CALL + "main()\n")
        refused = ran(program, broker.bootstrap_servers)
        assert refused.returncode
        assert """start the program under 'if __name__ == "__main__":'""" in refused.stderr
        program.write_text(CALL + 'if __name__ == "__main__":\n    main()\n')
        done = ran(program, broker.bootstrap_servers)
    assert (done.returncode, done.stdout) == (0, "1\n")


OWN_CHILD = (
    CALL
    + """\
def own():
    print("own", flush=True)

if __name__ == "__main__":
    import multiprocessing
    child = multiprocessing.get_context("spawn").Process(target=own)
    child.start()
    child.join()
    print(child.exitcode, flush=True)
"""
)


def test_a_program_with_children_of_its_own_starts_worker_processes_under_its_guard(
    tmp_path: Path, servers: str
) -> None:
    """Unguarded, its own child is the first to begin `process`."""
    program = tmp_path / "program.py"
    program.write_text(OWN_CHILD + "main()\n")
    refused = ran(program, servers)
    assert refused.stdout == "1\n"
    assert (
        "process() was called while a child process imports the program: start the program under "
        """'if __name__ == "__main__":'"""
    ) in refused.stderr
    program.write_text(OWN_CHILD + "    main()\n")
    done = ran(program, servers)
    assert (done.returncode, done.stdout) == (0, "own\n0\n1\n")


def test_what_a_worker_process_wrote_before_it_ended_is_on_stderr(tmp_path: Path, servers: str) -> None:
    program = tmp_path / "program.py"
    guarded = CALL + 'if __name__ == "__main__":\n    main()\n'
    ends = (
        'else:\n    sys.stderr.write("no database")\n    sys.stderr.flush()\n    import os\n    os._exit(3)\n'
    )
    program.write_text(guarded + ends)
    ended = ran(program, servers)
    assert "it ended with exit code 3; see its output on stderr" in ended.stderr
    assert "no database" in ended.stderr


@pytest.mark.parametrize(
    ("wrong", "right", "advice"),
    [
        ({"attempts": 0}, {"attempts": 1}, "at least 1, the first attempt is one of them"),
        ({"backoff": -1.0}, {"backoff": 0.0}, "at least 0"),
        ({"factor": 0.5}, {"factor": 1.0}, "at least 1"),
        ({"jitter": 2.0}, {"jitter": 1.0}, "from 0 to 1"),
    ],
)
def test_bounds_of_retries(wrong: dict[str, float], right: dict[str, float], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        Retry(**wrong)  # type: ignore[arg-type]
    Retry(**right)  # type: ignore[arg-type]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_handler_of_a_signal_sets_a_flag() -> None:
    """A call in a handler that interrupts a call is refused; a flag that the program looks at is its way."""
    refused: list[str] = []
    flags: list[int] = []
    with Broker(topics={"t": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:

        def sends(*_: object) -> None:
            try:
                producer.send("t", b"signal")
            except KafkaError as error:
                refused.append(str(error))

        former = signal.signal(signal.SIGALRM, sends)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            while not refused:
                producer.send("t", b"v" * 100)
            assert "Let the handler set a flag that your program checks" in refused[0]
            signal.signal(signal.SIGALRM, lambda *_: flags.append(1))
            while not flags:
                producer.send("t", b"v")
            producer.send("t", b"flag").result(10)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_directory_that_others_write_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="then run chmod go-w on it"):
        check_own(tmp_path)
    subprocess.run(["chmod", "go-w", str(tmp_path)], check=True)
    check_own(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="owners of POSIX")
def test_a_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
        with pytest.raises(
            PermissionError, match="name a directory of your own, or one that does not exist yet"
        ):
            own_directory(tmp_path)
    assert own_directory(tmp_path / "new").is_dir()
    tmp_path.chmod(0o700)
    own_directory(tmp_path)


def test_brokers_that_read_does_not_find(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    with Broker(topics={"t": 1}) as broker:
        monkeypatch.setattr("kadence.reading.tables.REACHED_S", 1.0)
        with pytest.raises(KafkaError, match="name brokers with bootstrap_servers="):
            read("t", bootstrap_servers="127.0.0.1:1")
        monkeypatch.undo()
        assert len(read("t", bootstrap_servers=broker.bootstrap_servers)) == 0
