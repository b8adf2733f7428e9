"""Other people's integration tests against the embedded broker.

    make test-franz-go
    make test-librdkafka ARGS="0113 0081"

franz-go's source comes from the Go module proxy, librdkafka's from Debian's source package. That has no share consumer
yet: the tests of it are those of the librdkafka that an npm package has in it. All is built under build/peer-suites;
nothing of it is part of this project. Each suite gets a broker of its own. The tests that are left out, and why, stand
in this file. The exit status is 1 if a test fails.

Needs: go for franz-go; apt-get, npm, gcc, g++ and the headers of OpenSSL, zlib and zstd for librdkafka.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_BUILD: Final = Path(__file__).parents[1] / "build" / "peer-suites"

_FRANZ_GO: Final = "github.com/twmb/franz-go@v1.22.2"
_RECORDS: Final = "50000"
"""Records of each produce-and-consume test; its own default of 500,000 takes ten times as long."""
_SUITE_SECONDS: Final = 1800

_NOT_RUN: Final = {
    "0052": "starts a program of Kafka's to set a topic's timestamp type",
    "0077": "starts a program of Kafka's to make its topic",
    "0092": "sets message.format.version, which Kafka 4 no longer has",
    "0109": "starts Kafka's own scripts, and asks for ACLs",
    "0115": "needs ACLs",
    "0119": "needs ACLs",
    "0129": "needs segment.bytes smaller than Kafka takes",
    "0186": "asks librdkafka's own mock broker only",
    "0190": "is run by hand, and asks for telemetry",
    "8000": "idles for as long as it is let",
}
"""Tests of librdkafka that are not run, by number."""

_CALLS_LEFT_OUT: Final = {
    "0081-admin.c": r"^ *do_test_((Create|Describe|Delete)Acls|AlterConfigs)\(rk, [^;]*;$",
    "0113-cooperative_rebalance.cpp": r"^ *(h_delete|i_delete|j_delete|n_wildcard)\w*\(\);$",
}
"""Parts of tests: those of ACLs and of a broker's own settings, which the embedded broker takes when it starts only;
and four in which close() of librdkafka 2.0.2 waits for ever once a topic is deleted, on Apache Kafka 4.3.1, too.
"""

_ONE_NODE: Final = frozenset({"0081"})
"""On several nodes they want as many replicas of each partition, and the embedded broker has one."""

_TEST_SECONDS: Final = 600
"""For one test of librdkafka."""

_QUEUES: Final = "0170"
"""The tests of share consumers begin with this number, and no others follow but one of the mock broker's."""

_NPM: Final = "@confluentinc/kafka-javascript@1.10.1"
"""It has librdkafka 2.15.1 in it."""

_PATIENCE: Final = 3
"""Times of the tests of share consumers are so many times their own: one part of 0170 sets a limit of a minute, which
then counts for all parts behind it, and these take longer on any broker.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one suite; the exit status is 1 if a test fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", choices=("franz-go", "librdkafka"))
    parser.add_argument("tests", nargs="*", help="numbers or patterns of the tests to run; default: all")
    given = parser.parse_args(arguments)
    run = {"franz-go": franz_go, "librdkafka": librdkafka}[given.suite]
    return 0 if run(given.tests) else 1


def franz_go(patterns: Sequence[str]) -> bool:
    """The tests of franz-go's pkg/kgo, through `go test`; patterns are those of its option -run."""
    _need("go")
    found = _output("go", "mod", "download", "-json", _FRANZ_GO, directory=_folder("."))
    # The module cache is read-only, and go test writes go.sum where a dependency of a test is missing from it.
    source = _folder(".") / "franz-go"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(json.loads(found)["Dir"], source, copy_function=shutil.copyfile)
    command = ["go", "test", "-json", "-count=1", f"-timeout={_SUITE_SECONDS}s"]
    if patterns:
        command.append(f"-run={'|'.join(patterns)}")
    outcomes: dict[str, list[str]] = {"pass": [], "fail": [], "skip": []}
    said: dict[str, list[str]] = {}
    with _broker(nodes=1) as servers:
        environment = {
            **os.environ,
            "KGO_SEEDS": servers,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": _RECORDS,
            "KGO_LOG_LEVEL": "none",
        }
        with subprocess.Popen(
            [*command, "./pkg/kgo"], cwd=source, env=environment, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                event = json.loads(line) if line.startswith("{") else {"Output": line}
                name, action = event.get("Test", "the package"), event.get("Action")
                if "Output" in event:
                    said.setdefault(name, []).append(event["Output"])
                # A test of tests is told by its parts, and the package by all of them.
                if "Test" in event and action in outcomes:
                    outcomes[action].append(name)
                    print(f"{action.upper():5} {name} ({event['Elapsed']:.1f} s)", flush=True)
    for name in outcomes["fail"] or (["the package"] if running.returncode else []):
        print(f"== {name}\n{''.join(said.get(name, ())[-40:])}")
    return _sum("franz-go", outcomes) and not running.returncode


def librdkafka(numbers: Sequence[str]) -> bool:
    """librdkafka's integration tests, one process for each; numbers are those of its files."""
    outcomes: dict[str, list[str]] = {"pass": [], "fail": [], "skip": []}
    # Some presume that members who begin together share a generation. With the default of 3 s others run out of time.
    settings = {
        "num_partitions": 4,
        "group_initial_rebalance_delay_ms": 500,
        "group_min_session_timeout_ms": 1000,
        # As librdkafka's own scripts set it: 0173, 0176 and others wait until locks have ended.
        "group_share_min_record_lock_duration_ms": 1000,
    }
    with _broker(nodes=3, **settings) as three, _broker(nodes=1, **settings) as one:
        for number, tests in _librdkafka_tests(numbers):
            if number in _NOT_RUN:
                print(f"SKIP  {number}: {_NOT_RUN[number]}", flush=True)
                outcomes["skip"].append(number)
                continue
            log = tests / f"{number}.log"
            servers = one if number in _ONE_NODE else three
            patience = _PATIENCE if number >= _QUEUES else 1
            (tests / "test.conf").write_text(
                f"bootstrap.servers={servers}\ntest.timeout.multiplier={patience}\n"
            )
            passed = _passes(number, tests, log)
            outcomes["pass" if passed else "fail"].append(number)
            print(
                f"{'PASS' if passed else 'FAIL'}  {number}" + ("" if passed else f": see {log}"), flush=True
            )
    return _sum("librdkafka", outcomes)


def _librdkafka_tests(numbers: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The numbers of the tests that are to be run, each with the folder of the built tests."""
    for build, are_queues in ((_built_librdkafka, False), (_built_queues, True)):
        if numbers and all((number >= _QUEUES) is not are_queues for number in numbers):
            continue
        tests = build() / "tests"
        # Those of librdkafka's own mock broker ask nothing of ours.
        files = [path.name for path in tests.glob("[0-9][0-9][0-9][0-9]-*.c*") if "mock" not in path.name]
        for number in sorted({name[:4] for name in files}):
            if (number >= _QUEUES) is are_queues and (not numbers or number in numbers):
                yield number, tests


def _passes(number: str, tests: Path, log: Path) -> bool:
    environment = {
        **os.environ,
        "TESTS": number,
        "TEST_KAFKA_VERSION": "4.2.0" if number >= _QUEUES else "3.4.0",
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
    }
    with log.open("wb") as output:
        try:
            ended = subprocess.run(
                ["./test-runner", "-p1"],
                cwd=tests,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_TEST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            output.write(f"\nnot done within {_TEST_SECONDS} s\n".encode())
            return False
    return ended.returncode == 0


def _built_librdkafka() -> Path:
    """The folder of Debian's librdkafka with its tests built."""
    for tool in ("apt-get", "dpkg-source", "gcc", "g++", "make"):
        _need(tool)
    folder = _folder("librdkafka")
    done = folder / "built"
    if not done.exists():
        # Lists of our own: the machine's sources stay as they are.
        (folder / "apt" / "parts").mkdir(parents=True, exist_ok=True)
        (folder / "apt" / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        for path in _package_sources():
            text = path.read_text()
            text = re.sub(r"^Types: deb$", "Types: deb-src", text, flags=re.MULTILINE)
            text = re.sub(r"^deb ", "deb-src ", text, flags=re.MULTILINE)
            (folder / "apt" / "parts" / path.name).write_text(text)
        apt = [
            "apt-get",
            "-qq",
            *("-o", "Dir::Etc::sourcelist=/dev/null"),
            *("-o", f"Dir::Etc::sourceparts={folder / 'apt' / 'parts'}"),
            *("-o", f"Dir::State::lists={folder / 'apt' / 'lists'}"),
        ]
        _output(*apt, "update", directory=folder)
        _output(*apt, "source", "librdkafka", directory=folder)
        source = _unpacked(folder)
        for name, calls in _CALLS_LEFT_OUT.items():
            path = source / "tests" / name
            text, count = re.subn(calls, "", path.read_text(), flags=re.MULTILINE)
            if not count:
                sys.exit(f"{name} has none of the calls that are to be left out: look at it again")
            path.write_text(text)
        _build(source)
        done.touch()
    return _unpacked(folder)


def _built_queues() -> Path:
    """The folder of a librdkafka that has a share consumer, with its tests built."""
    for tool in ("npm", "tar", "gcc", "g++", "make"):
        _need(tool)
    folder = _folder("librdkafka-queues")
    source, done = folder / "package" / "deps" / "librdkafka", folder / "built"
    if not done.exists():
        [packed] = json.loads(_output("npm", "pack", "--silent", "--json", _NPM, directory=folder))
        _output("tar", "-xzf", packed["filename"], "package/deps/librdkafka", directory=folder)
        _build(source)
        done.touch()
    return source


def _build(source: Path) -> None:
    print(f"building {source.name} and its tests", flush=True)
    _output("./configure", "--disable-gssapi", "--disable-curl", directory=source)
    _output("make", "-j2", "libs", directory=source)
    _output("make", "-j2", "test-runner", directory=source / "tests")


def _package_sources() -> list[Path]:
    etc = Path("/etc/apt")
    found = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    return [path for path in found if path.is_file() and path.suffix in (".list", ".sources")]


def _unpacked(folder: Path) -> Path:
    return next(path for path in sorted(folder.glob("librdkafka-*")) if path.is_dir())


@contextmanager
def _broker(*, nodes: int, **settings: int) -> Iterator[str]:
    """A broker in a process of its own, as strangers would start it; gives its addresses."""
    options = [f"-X{key.replace('_', '.')}={value}" for key, value in settings.items()]
    command = [sys.executable, "-m", "kadence", "broker", "--port", "0", "--nodes", str(nodes), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["bootstrap_servers"]
        finally:
            process.terminate()


def _folder(name: str) -> Path:
    folder = _BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        sys.exit(f"this needs {tool}, which is not on PATH")


def _output(*command: str, directory: Path) -> str:
    ended = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stdout[-4000:]}")
    return ended.stdout


def _sum(name: str, outcomes: dict[str, list[str]]) -> bool:
    counts = ", ".join(
        f"{len(outcomes[outcome])} {word}"
        for outcome, word in (("pass", "passed"), ("fail", "failed"), ("skip", "skipped"))
    )
    print(f"== {name}: {counts}" + (f": {' '.join(outcomes['fail'])}" if outcomes["fail"] else ""))
    return not outcomes["fail"] and bool(outcomes["pass"])


if __name__ == "__main__":
    sys.exit(main())
