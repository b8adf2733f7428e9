"""The second part: three processes share a topic, one is slow, one is killed, and no record may be lost.

The parent process (this file) watches the group and causes the failures. At a fifth of the records one member stops
polling for longer than its session timeout. At half of them, or when it has little left to do, another member is
killed. The `Ledger` records the members' reports; the parent asks the broker for the group's members and committed
offsets.
"""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from examples.demo.ledger import Ledger
from examples.demo.timeline import Timeline

from kadence.lag import lag
from kadence.types import TopicPartition
from kadence_cli.common import CommandError

if TYPE_CHECKING:
    from kadence import Admin

__all__ = ["Outcome", "Plan", "run_group", "total_lag"]

_CHECKOUT: Final = Path(__file__).parents[2]
_STALL_AT: Final = 0.2
_KILL_AT: Final = 0.5
_KILL_BEFORE: Final = 0.1
"""The part of all records that the killed member must still have before it: others take over unfinished work."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of the group's run. Times are in ms or s, as named.

    Attributes:
        pace: records a member works on per second.
        stall_s: how long the slow member does not poll: above the session timeout, below max.poll.interval.
    """

    servers: str
    topic: str
    group: str
    members: int = 3
    pace: float = 5_000.0
    session_timeout_ms: int = 6_000
    max_poll_interval_ms: int = 60_000
    stall_s: float = 9.0
    limit_s: float = 180.0


@dataclass(slots=True)
class Outcome:
    """The results of the group's run."""

    ledger: Ledger
    timeline: Timeline
    slow: str = ""
    slow_kept_membership: bool = False
    slow_seen_in_group: bool = False
    killed: str = ""
    killed_at: int = 0
    flights: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def _now() -> int:
    """Monotonic ms, the same clock in all processes of a machine."""
    return time.monotonic_ns() // 1_000_000


class Show(Protocol):
    """Shows progress; with ``new_line`` the next line does not overwrite it."""

    def __call__(self, text: str, *, new_line: bool = False) -> None: ...


class _Process:
    """A member's process, and the thread that reads its output."""

    def __init__(
        self, plan: Plan, name: str, said: queue.SimpleQueue[tuple[str, dict[str, Any] | None]]
    ) -> None:
        self.name = name
        self.popen = subprocess.Popen(
            [
                *(sys.executable, "-m", "examples.demo.member"),
                *("--servers", plan.servers, "--topic", plan.topic, "--group", plan.group, "--name", name),
                *("--session-timeout-ms", str(plan.session_timeout_ms)),
                *("--max-poll-interval-ms", str(plan.max_poll_interval_ms)),
                *("--pace", str(plan.pace)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_CHECKOUT,
        )
        self._said = said
        self._reader = threading.Thread(target=self._read, name=f"reads {name}", daemon=True)
        self._reader.start()

    def command(self, **command: Any) -> None:
        """Send the member a command; ignored if its process has ended."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(json.dumps(command) + "\n")
            self.popen.stdin.flush()

    def end(self) -> None:
        """Wait for its end, or kill it, and close the pipes."""
        try:
            self.popen.wait(30)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self._reader.join()
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        self.popen.stdout.close()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._said.put((self.name, json.loads(line)))
        self._said.put((self.name, None))


class _Act:
    """The state of the group's run."""

    def __init__(self, plan: Plan, sizes: dict[int, int], admin: Admin, show: Show) -> None:
        self._plan = plan
        self._admin = admin
        self._show = show
        self._said: queue.SimpleQueue[tuple[str, dict[str, Any] | None]] = queue.SimpleQueue()
        self._processes: dict[str, _Process] = {}
        self._look_at: float | None = None
        self.outcome = Outcome(Ledger(sizes), Timeline(sizes, plan.session_timeout_ms))
        self._ended: set[str] = set()

    def play(self) -> Outcome:
        started = time.monotonic()
        ledger = self.outcome.ledger
        names = [f"member-{number}" for number in range(1, self._plan.members + 1)]
        try:
            for name in names:
                self._processes[name] = _Process(self._plan, name, self._said)
            while ledger.missing or not self.outcome.killed or not self.outcome.slow_kept_membership:
                self._hear(0.2)
                self._accidents()
                if time.monotonic() - started > self._plan.limit_s:
                    raise CommandError(
                        f"the group has not come to an end after {self._plan.limit_s:.0f} s: "
                        f"{ledger.missing} of {ledger.total} records are not processed"
                    )
            for process in self._processes.values():
                process.command(stop=True)
            while self._ended != set(names):
                self._hear(30.0)
        finally:
            for process in self._processes.values():
                if process.name not in self._ended:
                    process.popen.kill()
                process.end()
        self.outcome.seconds = time.monotonic() - started
        self.outcome.timeline.end(_now())
        return self.outcome

    def _hear(self, wait: float) -> None:
        """Handle all reports of members, after a wait for the first one."""
        with contextlib.suppress(queue.Empty):
            self._take(*self._said.get(timeout=wait))
            while True:
                self._take(*self._said.get_nowait())

    def _take(self, name: str, event: dict[str, Any] | None) -> None:
        ledger, timeline = self.outcome.ledger, self.outcome.timeline
        if event is None:
            self._ended.add(name)
            status = self._processes[name].popen.wait()
            if name != self.outcome.killed and status:
                raise CommandError(f"{name} ended with status {status}; its output is above")
            return
        kind = event["kind"]
        if kind == "processed":
            for first, last in event["ranges"]:
                ledger.processed(name, event["partition"], first, last, event["at"])
                timeline.worked(name, event["partition"], last + 1 - first, event["at"])
            done = ledger.distinct / ledger.total
            self._show(f"{ledger.distinct:,} of {ledger.total:,} records processed ({done:.0%})")
        elif kind == "owns":
            ledger.owns(name, event["partitions"], event["member_id"])
            timeline.owns(name, event["partitions"], event["at"])
        elif kind == "rebalance":
            ledger.rebalanced(name, event)
        elif kind == "lost":
            ledger.lost_by[name] += 1
        elif kind == "stalling":
            timeline.stalls_at(name, event["at"])
            session_s = self._plan.session_timeout_ms / 1000
            self._look_at = event["at"] / 1000 + (session_s + self._plan.stall_s) / 2
        elif kind == "stalled":
            timeline.polls_again(name, event["at"])
            self.outcome.slow_kept_membership = event["kept"] and not ledger.lost_by[name]
            if not self.outcome.slow_kept_membership:
                raise CommandError(f"{name} was slow for {event['seconds']} s and lost its membership")
        elif kind == "bye":
            self.outcome.flights.update(event["carriers"])

    def _accidents(self) -> None:
        """Cause the failures, each once, in this order."""
        outcome, ledger = self.outcome, self.outcome.ledger
        done = ledger.distinct / ledger.total
        if not outcome.slow and done >= _STALL_AT and ledger.is_shared_out(self._plan.members):
            # Not the busiest one, which is killed later.
            outcome.slow = ledger.busiest()[1]
            self._processes[outcome.slow].command(stall=self._plan.stall_s)
            self._show(f"{outcome.slow} now works {self._plan.stall_s:.0f} s on one record", new_line=True)
        if self._look_at is not None and time.monotonic() >= self._look_at:
            self._look_at = None
            members = self._admin.describe_consumer_groups([self._plan.group])[self._plan.group].members
            outcome.slow_seen_in_group = outcome.slow in {member.client_id for member in members}
            self._show(
                f"{outcome.slow} is silent for longer than its session, and still a member", new_line=True
            )
        if outcome.slow and not outcome.killed:
            busiest = ledger.busiest(but=[outcome.slow])[0]
            if done < _KILL_AT and ledger.left(ledger.owned[busiest]) > _KILL_BEFORE * ledger.total:
                return
            outcome.killed = busiest
            self._processes[outcome.killed].popen.send_signal(signal.SIGKILL)
            outcome.killed_at = _now()
            waiting = ledger.killed(outcome.killed, outcome.killed_at)
            outcome.timeline.killed(outcome.killed, outcome.killed_at)
            self._show(
                f"{outcome.killed} killed with SIGKILL; partitions {sorted(waiting)} wait for another member",
                new_line=True,
            )


def run_group(plan: Plan, sizes: dict[int, int], admin: Admin, show: Show) -> Outcome:
    """Run the group until every record is processed and both failures have happened.

    Args:
        sizes: records produced, by partition. show: takes lines of progress.

    Raises:
        CommandError: the slow member lost its membership, a member ended by itself, or time ran out.
    """
    return _Act(plan, sizes, admin, show).play()


def total_lag(admin: Admin, group: str, topic: str, sizes: dict[int, int]) -> dict[int, int]:
    """Lag of each partition with records, from the brokers; without a committed offset all records count."""
    committed = admin.list_consumer_group_offsets(group)
    partitions = [TopicPartition(topic, partition) for partition in sizes]
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest"))

    def lags() -> Iterator[tuple[int, int]]:
        for tp in partitions:
            end, at = ends[tp], committed.get(tp)
            yield tp.partition, lag(0 if end is None else end.offset, 0 if at is None else at.offset)

    return dict(lags())
