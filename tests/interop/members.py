"""Members of a group as processes, what they say, and what must hold of all that they said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.interop.tools import TOOLS
from tests.patience import PATIENCE

from kadence_testing.kafka import Kafka

__all__ = ["FAST_JVM", "Commit", "Group", "Member", "Owned", "Read", "mixed_group"]

_JOB: Final = Path(__file__).parent / "jobs" / "member.py"

FAST_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m")


@dataclass(frozen=True, slots=True)
class Read:
    """Records that a member processed, up to and with offset ``last``."""

    at: int
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Commit:
    at: int
    partition: int
    offset: int


@dataclass(slots=True)
class Owned:
    """A partition's time with a member; milliseconds of the machine's clock, ``until`` None while it lasts."""

    partition: int
    since: int
    until: int | None = None


@dataclass(slots=True)
class Member:
    """A process, and what it said until now."""

    name: str
    process: subprocess.Popen[str]
    reads: list[Read] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    values: list[tuple[int, int, str]] = field(default_factory=list)
    """Partition, offset and value of each record, of Java's members that are verbose."""
    stopped_at: int | None = None
    absences: list[tuple[int, int]] = field(default_factory=list)
    """From when to when it was stopped, in milliseconds."""
    refused: list[str] = field(default_factory=list)
    _listener: threading.Thread | None = None

    def listen(self) -> None:
        self._listener = threading.Thread(target=self._take_lines, name=f"listens to {self.name}")
        self._listener.start()

    @property
    def owns(self) -> set[int]:
        return {each.partition for each in self.owned if each.until is None}

    def kill(self) -> None:
        """As a machine that loses its power does."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self._end()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        self._end()

    def stop(self) -> None:
        """It does nothing any more, and does not know it. What it owned then may become somebody else's."""
        os.kill(self.process.pid, signal.SIGSTOP)
        self.stopped_at = _now()

    def go_on(self) -> None:
        assert self.stopped_at is not None
        self._owns_nothing(self.stopped_at)
        self.absences.append((self.stopped_at, _now()))
        self.stopped_at = None
        os.kill(self.process.pid, signal.SIGCONT)

    def _end(self) -> None:
        assert self._listener is not None
        self._listener.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()  # a second time does nothing
        self._owns_nothing(_now())

    def _owns_nothing(self, since: int) -> None:
        for each in self.owned:
            if each.until is None:
                each.until = since

    def _take_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # the end of one that was killed
            self._take(said)

    def _take(self, said: dict[str, Any]) -> None:
        at: int = said["timestamp"]
        match said["name"]:
            case "partitions_assigned":
                self.owned += [Owned(each["partition"], at) for each in said["partitions"]]
            case "partitions_revoked":
                given_up = {each["partition"] for each in said["partitions"]}
                for each in self.owned:
                    if each.until is None and each.partition in given_up:
                        each.until = at
            case "records_consumed":
                self.reads += [
                    Read(at, each["partition"], each["minOffset"], each["maxOffset"])
                    for each in said["partitions"]
                ]
            case "record_data":
                self.values.append((said["partition"], said["offset"], said["value"]))
            case "offsets_committed" if said["success"]:
                self.commits += [Commit(at, each["partition"], each["offset"]) for each in said["offsets"]]
            case "offsets_committed":
                self.refused.append(f"{at} {said['offsets']}: {said['error']}")
            case "shutdown_began":
                self._owns_nothing(at)


class Group:
    """Members of one group, past and present."""

    def __init__(
        self,
        servers: str,
        topic: str,
        directory: Path,
        *,
        protocol: str = "classic",
        assignor: str = "range",
        session_ms: int = 4_000,
        verbose: bool = False,
    ) -> None:
        self.name = "mixed"
        self.all: list[Member] = []
        self._servers = servers
        self._topic = topic
        self._directory = directory
        self._protocol = protocol
        self._assignor = assignor
        self._session_ms = session_ms
        self._verbose = verbose

    def start(self, client: str) -> Member:
        """A member of ``java``, or of a client that jobs/member.py knows."""
        command = self._java() if client == "java" else self._python(client)
        errors = self._log(f"{client}-{len(self.all)}").open("w")
        with errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True
            )
        member = Member(f"{client}-{len(self.all)}", process)
        member.listen()
        self.all.append(member)
        return member

    @property
    def running(self) -> list[Member]:
        """Also those that are stopped."""
        return [each for each in self.all if each.process.poll() is None]

    def end(self) -> None:
        for member in self.all:
            member.kill()

    def told(self) -> str:
        """What each member owns, was refused lately, and wrote to its log; Python's write where they stand."""
        for member in self.running:
            if not member.name.startswith("java"):
                os.kill(member.process.pid, signal.SIGUSR1)
        time.sleep(0.5)  # nobody says that the stacks are written
        states = (
            f"{each.name} owns {sorted(each.owns)}, refused {each.refused[-3:]}" for each in self.running
        )
        logs = (f"{each.name}:\n{self.log_of(each)[-4_000:]}" for each in self.all)
        return "\n".join([*states, *logs])

    def log_of(self, member: Member) -> str:
        """What it wrote to its standard error."""
        return self._log(member.name).read_text()

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _java(self) -> list[str]:
        config = self._directory / "member.properties"
        config.write_text("heartbeat.interval.ms=200\n" if self._protocol == "classic" else "")
        arguments = [
            "--bootstrap-server", self._servers, "--topic", self._topic, "--group-id", self.name,
            "--group-protocol", self._protocol, "--command-config", str(config),
        ]  # fmt: skip
        if self._protocol == "classic":
            names = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}
            arguments += ["--session-timeout", str(self._session_ms)]
            arguments += [
                "--assignment-strategy", f"org.apache.kafka.clients.consumer.{names[self._assignor]}"
            ]  # fmt: skip
        else:
            arguments += ["--group-remote-assignor", self._assignor]
        if self._verbose:
            arguments.append("--verbose")
        return Kafka().tool_command(f"{TOOLS}.VerifiableConsumer", *arguments, jvm_options=FAST_JVM)

    def _python(self, client: str) -> list[str]:
        return [
            sys.executable, str(_JOB), client, self._servers, self.name, self._topic, self._assignor,
            self._protocol, str(self._session_ms),
        ]  # fmt: skip

    # What must hold at the end

    def unread(self, ends: dict[int, int]) -> set[tuple[int, int]]:
        """Records that no member processed, as partition and offset."""
        read = {
            (each.partition, offset)
            for member in self.all
            for each in member.reads
            for offset in range(each.first, each.last + 1)
        }
        return {(partition, offset) for partition, end in ends.items() for offset in range(end)} - read

    def skipped(self) -> list[str]:
        """Where somebody committed, or went on reading, behind records that nobody had processed by then."""
        reads = sorted(_with_names(self.all, "reads"), key=lambda each: each[1].at)
        commits = sorted(_with_names(self.all, "commits"), key=lambda each: each[1].at)
        moments = sorted({each.at for _, each in (*reads, *commits)})
        done: dict[int, _Done] = {}
        found: list[str] = []
        waiting_reads, waiting_commits = iter(reads), iter(commits)
        read, commit = next(waiting_reads, None), next(waiting_commits, None)
        for moment in moments:
            # What was said within the same millisecond may have happened in any order.
            while read is not None and read[1].at == moment:
                done.setdefault(read[1].partition, _Done()).add(read[1].first, read[1].last)
                read = next(waiting_reads, None)
            for name, each in (entry for entry in reads if entry[1].at == moment):
                if done[each.partition].frontier < each.first:
                    found.append(f"{name} read {each}, done until {done[each.partition].frontier}")
            while commit is not None and commit[1].at == moment:
                name, one = commit
                if done.setdefault(one.partition, _Done()).frontier < one.offset:
                    found.append(f"{name} made {one}, done until {done[one.partition].frontier}")
                commit = next(waiting_commits, None)
        return found

    def commits_of_strangers(self) -> list[str]:
        """Commits that the broker took of members that it had expelled, until they were given something again.

        Of records that they had read before they were stopped they may only learn afterwards what became of a commit.
        """
        found = []
        for member in self.all:
            for _, back in member.absences:
                again = min((each.since for each in member.owned if each.since >= back), default=_now())
                late = {(each.partition, each.last + 1) for each in member.reads if each.at >= back}
                found += [
                    f"{member.name} {each}"
                    for each in member.commits
                    if back <= each.at < again and (each.partition, each.offset) in late
                ]
        return found

    def shared_partitions(self) -> list[str]:
        """Where two members owned a partition at the same time."""
        found = []
        times = sorted(_with_names(self.all, "owned"), key=lambda each: (each[1].partition, each[1].since))
        for index, (name, one) in enumerate(times):
            for other_name, other in times[index + 1 :]:
                if other.partition != one.partition:
                    break
                if one.until is None or other.since < one.until:
                    found.append(f"{name} had {one}, {other_name} {other}")
        return found


class _Done:
    """Offsets of a partition that were processed; all below ``frontier`` are."""

    def __init__(self) -> None:
        self.frontier = 0
        self._beyond: set[int] = set()

    def add(self, first: int, last: int) -> None:
        self._beyond.update(range(max(first, self.frontier), last + 1))
        while self.frontier in self._beyond:
            self._beyond.remove(self.frontier)
            self.frontier += 1


def _with_names(members: Iterable[Member], what: str) -> list[tuple[str, Any]]:
    return [(member.name, each) for member in members for each in getattr(member, what)]


def _now() -> int:
    return int(time.time() * 1000)


@contextmanager
def mixed_group(*arguments: Any, **more: Any) -> Iterator[Group]:
    """Its members are killed at the end, whatever happened."""
    group = Group(*arguments, **more)
    try:
        yield group
    finally:
        group.end()
