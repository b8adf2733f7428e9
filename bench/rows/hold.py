"""A C call that holds the interpreter for longer than the session: does the member stay?

The call is libc's ``poll`` of nothing, made without letting go of the interpreter: a long match of a regular
expression and a careless extension do the same. All cases run at once, since none uses the processor while it holds.
Whether a member stayed is asked of the broker, all the time, by another process.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import Popen
from typing import TYPE_CHECKING, Any

from harness import children, peers
from harness.plan import Figures, Line, Options, Outcome, Plan, Row
from harness.table import Goal, Table
from harness.timing import Patience

if TYPE_CHECKING:
    from harness.ground import Ground

SESSION_MS = 6000


def around(plan: Plan) -> float:
    """Seconds of polls before the call, so that heartbeats are under way, and after it, for the broker's last word."""
    return min(3.0, plan.seconds)


LOOK_EVERY = 0.5
BROKER = {
    # New groups have no session of the client's own.
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "2000",
}


def hold_the_interpreter(seconds: float) -> None:
    """A C call that keeps the interpreter: ctypes.PyDLL does not let go of it, unlike CDLL."""
    ctypes.PyDLL(None).poll(None, 0, round(seconds * 1000))


def _held(plan: Plan, poll: Callable[[], Any], assigned: Callable[[], Any]) -> Figures:
    patience = Patience(plan)
    while not assigned():
        poll()
        patience.check()
    _poll_for(around(plan), poll)
    began = time.monotonic()
    hold_the_interpreter(plan.seconds)
    ended = time.monotonic()
    _poll_for(around(plan), poll)
    return {"began": began, "ended": ended, "until": time.monotonic()}


def _poll_for(seconds: float, poll: Callable[[], Any]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        poll()


def kadence(plan: Plan) -> Figures:
    session = {"session.timeout.ms": SESSION_MS} if plan.protocol == "classic" else {}
    with peers.kadence(plan, **session) as consumer:
        return _held(plan, lambda: consumer.poll(0.1), consumer.assignment)


def confluent(plan: Plan) -> Figures:
    session = {"session.timeout.ms": SESSION_MS} if plan.protocol == "classic" else {}
    consumer = peers.confluent(plan, **session)
    result = _held(plan, lambda: consumer.poll(0.1), consumer.assignment)
    consumer.close()
    return result


def kafka_python(plan: Plan) -> Figures:
    consumer = peers.kafka_python(plan, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=2000)
    result = _held(plan, lambda: consumer.poll(100), consumer.assignment)
    consumer.close()
    return result


async def _aiokafka(plan: Plan) -> Figures:
    consumer = await peers.aiokafka(plan, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=2000)
    patience = Patience(plan)
    while not consumer.assignment():
        await consumer.getmany(timeout_ms=100)
        patience.check()
    await asyncio.sleep(around(plan))
    began = time.monotonic()
    hold_the_interpreter(plan.seconds)
    ended = time.monotonic()
    await asyncio.sleep(around(plan))
    result = {"began": began, "ended": ended, "until": time.monotonic()}
    await consumer.stop()
    return result


LINES = {
    "kadence": Line("Kadence", kadence),
    "confluent": Line("confluent-kafka", confluent),
    "aiokafka": Line("aiokafka", lambda plan: asyncio.run(_aiokafka(plan))),
    "kafka-python": Line("kafka-python", kafka_python),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One member that holds the interpreter."""

    client: str
    protocol: str
    secure: bool
    seconds: float

    @property
    def group(self) -> str:
        kind = "tls" if self.secure else "plain"
        return f"bench-hold-{self.client}-{self.protocol}-{kind}-{self.seconds:g}"


@dataclass(slots=True)
class Watch:
    """Who was in which group, and when, as the broker says."""

    seen: dict[str, list[tuple[float, frozenset[str]]]] = field(default_factory=dict)

    def look(self, admin: Any, groups: Iterable[str]) -> None:
        from confluent_kafka import KafkaException

        names = list(groups)
        for group, answer in admin.describe_consumer_groups(names, request_timeout=10).items():
            # A group that nobody joined so far is an error, and no answer.
            with suppress(KafkaException):
                members = frozenset(member.member_id for member in answer.result(10).members)
                self.seen.setdefault(group, []).append((time.monotonic(), members))

    def out_after(self, group: str, figures: Figures) -> float | None:
        """Seconds from the beginning of the call until the member was gone; None when it stayed to the end."""
        looks = self.seen.get(group, [])
        before = [members for at, members in looks if at < figures["began"] and members]
        if not before:
            raise ValueError("the broker never named a member of the group")
        member = before[-1]
        for at, members in looks:
            if figures["began"] <= at < figures["until"] and members != member:
                return at - figures["began"]
        return None


def cases(
    ground: Ground, options: Options, durations: tuple[float, ...], protocols: tuple[str, ...]
) -> list[Case]:
    transports = (False, True) if ground.tls else (False,)
    made = [
        Case(client, protocol, secure, seconds)
        for client in ("kadence", "confluent")
        for protocol in protocols
        for secure in transports
        for seconds in durations
    ]
    made += [Case(client, "classic", False, min(durations)) for client in ("aiokafka", "kafka-python")]
    return [case for case in made if options.wants(case.client)]


HEADINGS = ("client", "protocol", "connection", "held for s", "member")


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    if ground.another is None:
        raise RuntimeError(
            "the session of new groups is the broker's, so this row needs a cluster of its own"
        )
    with ground.another(BROKER) as other:
        return measure_on(other, options, (15.0, 30.0), ("classic", "consumer"))


def measure_on(
    ground: Ground, options: Options, durations: tuple[float, ...], protocols: tuple[str, ...]
) -> tuple[list[Table], list[Goal]]:
    topic = ground.empty("held", 2)
    all_cases = cases(ground, options, durations, protocols)
    running = {case: _start(case, ground, topic) for case in all_cases}
    watch = _watched(ground.bootstrap, running, max(durations) + 60)
    lines, failures, ours = [], [], []
    for case, child in running.items():
        verdict, failure = _verdict(watch, case, children.finish(child, 5.0))
        protocol = "KIP-848" if case.protocol == "consumer" else "classic"
        connection = "TLS" if case.secure else "plain"
        line = (LINES[case.client].title, protocol, connection, f"{case.seconds:g}", verdict)
        lines.append(line)
        print(f"  hold {' '.join(line)}", flush=True)
        if failure:
            failures.append(f"{' '.join(line[:-1])}: {failure}")
        if case.client == "kadence":
            ours.append(verdict)
    title = f"A C call that holds the interpreter, session {SESSION_MS // 1000} s"
    return [Table(title, HEADINGS, lines, (), failures)], [_goal(ours)]


def _start(case: Case, ground: Ground, topic: str) -> Popen[str]:
    plan = Plan(
        ground.tls if case.secure else ground.bootstrap,
        topic,
        case.group,
        seconds=case.seconds,
        ca=ground.certificate if case.secure else "",
        protocol=case.protocol,
    )
    return children.start("hold", case.client, LINES[case.client], plan)


def _watched(bootstrap: str, running: dict[Case, Popen[str]], seconds: float) -> Watch:
    """Look at all groups until every member is done."""
    from confluent_kafka.admin import AdminClient

    watch = Watch()
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    until = time.monotonic() + seconds
    while any(child.poll() is None for child in running.values()) and time.monotonic() < until:
        watch.look(admin, (case.group for case in running))
        time.sleep(LOOK_EVERY)
    return watch


def _verdict(watch: Watch, case: Case, outcome: Outcome) -> tuple[str, str]:
    """What became of the member, and why that is not known."""
    if isinstance(outcome, str):
        return "–", outcome
    try:
        gone = watch.out_after(case.group, outcome)
    except ValueError as reason:
        return "–", str(reason)
    return ("stays" if gone is None else f"out after {gone:.0f} s"), ""


def _goal(verdicts: list[str]) -> Goal:
    what, promised = "a C call that holds the interpreter for 15 and 30 s, session 6 s", "stays in every case"
    if not verdicts or "–" in verdicts:
        return Goal(what, promised, "–")
    stayed = verdicts.count("stays")
    return Goal(what, promised, f"stays in {stayed} of {len(verdicts)} cases", stayed == len(verdicts))


ROW = Row("hold", LINES, measure)
