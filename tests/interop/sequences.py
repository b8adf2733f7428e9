"""Random requests to our broker and to real Apache Kafka, the same to both: finds the first answer that differs.

    python -m tests.interop.sequences classic --first 0 --count 300

The mode ``share`` is in `queues`, ``share-members`` in `share_groups`.

What a step asks comes from the seed; which ids, generations and epochs stand in it is what that side was told before.
A request that is parked stays on its connection, and counts as answered in the step in which its answer comes.
A sequence ends at its first difference. `ODDITIES` names those that are Kafka's own, with the reason.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self
from uuid import uuid4

from tests.broker.wire import Wire
from tests.interop import queues, share_groups
from tests.interop.known_topics import coordinator_knows
from tests.interop.queues import KAFKA_CONFIG, QUEUES, Difference, compare_queues
from tests.interop.share_groups import SHARE_MEMBERS, compare_share_members
from tests.interop.steps import MODES, Plan, Slot

from kadence.protocol import error_codes as codes
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.describe_transactions import DescribeTransactionsRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.wire import Structure
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

__all__ = ["CONFIG", "Found", "Pair", "compare"]

CONFIG: Final = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
}
"""Our broker's settings, as `kadence_testing.kafka` sets Kafka's."""

_STEPS: Final = 32
_PATIENCE: Final = 20.0
"""Seconds after which a request that only one side has answered is a difference."""
_GROUP: Final = 32
_CANDIDATES: Final = 8
_TRIES: Final = 24
"""Where brokers make ids, what goes by their order is drawn anew with each try."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PRODUCED: Final = re.compile(r"#\d+ Produce\((slot=\d), v=\d+, (at=\(\d, \d\))")
_UNTOLD: Final = {"unknown_tags", "throttle_time_ms", "error_message", "authorized_operations"}
_TIMES: Final = {"transaction_start_time_ms", "log_append_time_ms"}


@dataclass(frozen=True, slots=True)
class Found:
    """The first difference of a sequence; ``excused`` is the name of Kafka's oddity."""

    seed: int
    lines: tuple[str, ...]
    ours: Any
    kafkas: Any
    excused: str | None

    @property
    def may_be_chance(self) -> bool:
        """Whether it may come of ids that the brokers drew."""
        return self.excused in _OF_CHANCE or (
            self.excused is None and any(" Join(" in each for each in self.lines)
        )

    def __str__(self) -> str:
        steps = [f"  {line}" for line in self.lines]
        return "\n".join(
            [f"seed {self.seed} ({self.excused})", *steps, *_unlike(self.ours, self.kafkas, "  ")]
        )


@dataclass(slots=True)
class Side:
    """One broker in one sequence."""

    address: str
    topics: list[str]
    """Theirs may have other names than ours, of the same length."""
    topic_ids: list[bytes]
    group: str
    control: Wire
    idle: list[Wire]
    slots: list[Slot] = field(default_factory=lambda: [Slot(number) for number in range(4)])
    waiting: list[tuple[int, Plan, Wire]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    producers: list[int] = field(default_factory=list)

    def ask(self, number: int, plan: Plan) -> None:
        request, version = plan.make(self)
        wire = self.idle.pop() if self.idle else Wire(self.address)
        wire.send(request, version)
        self.waiting.append((number, plan, wire))

    def collect(self, into: dict[int, Any]) -> None:
        """Take in what has been answered."""
        ready = (
            select.select([each[2].sock for each in self.waiting], [], [], 0.001)[0] if self.waiting else []
        )
        for each in [each for each in self.waiting if each[2].sock in ready]:
            self.waiting.remove(each)
            number, plan, wire = each
            try:
                answer = wire.receive()
            except ConnectionError:
                answer = "the connection ended"
            else:
                self.idle.append(wire)
                if plan.learn is not None:
                    plan.learn(self, answer)
            into[number] = answer

    def barrier(self) -> None:
        """What was sent before has been looked at."""
        self.control.call(DescribeGroupsRequest(groups=[self.group]), 5)

    def settle_transactions(self, ids: list[str]) -> None:
        """Wait until no end of a transaction is under way."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            told = self.control.call(DescribeTransactionsRequest(transactional_ids=ids), 0)
            if not any(each.transaction_state.startswith("Prepare") for each in told.transaction_states):
                return

    def register(self, answers: dict[int, Any]) -> None:
        """Name the ids that the broker made, in the order of the requests that were told of them."""
        for number in sorted(answers):
            told = getattr(answers[number], "member_id", None)
            if (told and _UUID.search(told) is not None) or (told and len(told) == 22):
                self.names.setdefault(told, f"member {len(self.names)}")

    def plain(self, value: Any, name: str = "") -> Any:
        """A value without what differs from run to run."""
        if isinstance(value, Structure):
            return {
                each: self.plain(getattr(value, each), each)
                for each in type(value).__slots__
                if each not in _UNTOLD
            }
        if isinstance(value, list):
            return sorted((self.plain(each, name) for each in value), key=repr)
        if isinstance(value, bytes | bytearray | memoryview):
            told = bytes(value)
            if told in self.topic_ids:
                return f"topic {self.topic_ids.index(told)}"
            for number, topic in enumerate(self.topics):
                told = told.replace(topic.encode(), b"TOPIC %d" % number)
            return told
        if isinstance(value, str):
            if value in self.topics:
                return f"TOPIC {self.topics.index(value)}"
            return self.names.get(value) or _UUID.sub("<id>", value.replace(self.group, "GROUP"))
        if name.endswith("error_code"):
            return codes.name(value)
        if name in _TIMES:
            return value > 0
        if name == "base_offset" and value >= 0:
            return True  # after a difference in an earlier sequence the logs have other lengths
        if name == "producer_id" and value >= 0:
            if value not in self.producers:
                self.producers.append(value)
            return f"producer {self.producers.index(value)}"
        return value


class Pair:
    """Our broker and real Kafka, with topics that both have; as many sequences as one likes."""

    def __init__(self, ours: Broker, kafka: str, groups: int) -> None:
        self._addresses = (ours.bootstrap_servers, kafka)
        prefix = f"seq-{uuid4().hex[:8]}"
        self._prefix = prefix
        self._groups = [f"{prefix}-{number}" for number in range(groups)]
        self._controls = [Wire(address) for address in self._addresses]
        self._idle: list[list[Wire]] = [[], []]
        self._topics = [self._prepare(control) for control in self._controls]

    def close(self) -> None:
        for wire in [*self._controls, *self._idle[0], *self._idle[1]]:
            wire.sock.close()

    def _prepare(self, control: Wire) -> list[tuple[str, bytes]]:
        topics = self._create(control)
        edit = AlterableConfig("consumer.assignment.interval.ms", 0, "0")
        control.call(
            IncrementalAlterConfigsRequest(
                [AlterConfigsResource(_GROUP, each, [edit]) for each in self._groups]
            )
        )
        control.call(FindCoordinatorRequest(coordinator_keys=[self._groups[0]]))
        control.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[self._groups[0]]))
        deadline = time.monotonic() + 30
        while not self._is_ready(control, {name for name, _ in topics}):
            assert time.monotonic() < deadline, "the broker does not get ready"
            time.sleep(0.05)
        return topics

    def _create(self, control: Wire) -> list[tuple[str, bytes]]:
        """A topic of three partitions and one of two.

        Ties between topics go by their ids, which are random: of many topics a pair is taken whose first comes first,
        however one looks at it.
        """
        for attempt in range(10, 100):
            names = [
                f"{self._prefix}-{kind}{attempt}{number}" for kind in "ab" for number in range(_CANDIDATES)
            ]
            # The records are old: Kafka looks every five minutes for such, and would delete them in the middle.
            kept = [CreatableTopicConfig("retention.ms", "-1")]
            made = [
                CreatableTopic(name, 3 if name[len(self._prefix) + 1] == "a" else 2, 1, configs=kept)
                for name in names
            ]
            answered = control.call(CreateTopicsRequest(made, 30_000)).topics
            topics = [(each.name, bytes(each.topic_id)) for each in answered]
            threes, twos = topics[:_CANDIDATES], topics[_CANDIDATES:]
            for three, two in itertools.product(threes, twos):
                if _comes_first(three[1], two[1]):
                    return [three, two]
        raise AssertionError("no two topics with ids in order")

    def _is_ready(self, control: Wire, wanted: set[str]) -> bool:
        topics = {each.name for each in control.call(MetadataRequest(topics=None)).topics}
        (group,) = control.call(DescribeGroupsRequest(groups=[self._groups[0]]), 5).groups
        probe = InitProducerIdRequest(f"{self._groups[0]}-probe", 60_000)
        return (
            topics >= wanted
            and group.error_code == codes.NONE
            and coordinator_knows(control, sorted(wanted))
            and control.call(probe).error_code == codes.NONE
        )

    def run(self, mode: str, seed: int, left: int) -> Found | None:
        """One sequence; its first difference, if it is not the ids' that the brokers drew.

        Args:
            left: how many sequences are to come.
        """
        found = self._run(mode, seed)
        for _ in range(_TRIES - 1):
            if found is None or not found.may_be_chance or len(self._groups) <= left:
                break
            again = self._run(mode, seed)
            if again is None or len(again.lines) > len(found.lines):
                found = again
        return found

    def _run(self, mode: str, seed: int) -> Found | None:
        rng = random.Random(f"{mode} {seed}")
        group = self._groups.pop()
        sides = [
            Side(address, [name for name, _ in topics], [each for _, each in topics], group, control, idle)
            for address, topics, control, idle in zip(
                self._addresses, self._topics, self._controls, self._idle, strict=True
            )
        ]
        lines: list[str] = []
        for number in range(_STEPS):
            plan = MODES[mode](rng)
            if plan.parks is not None and any(plan.parks == each[1].parks for each in sides[0].waiting):
                continue  # Kafka never answers a parked request that is repeated
            lines.append(f"#{number} {plan.text}")
            answers = self._step(sides, number, plan)
            ours, kafkas = (
                {label: side.plain(told[label]) for label in sorted(told)}
                for side, told in zip(sides, answers, strict=True)
            )
            if ours != kafkas:
                excused = next((name for name, is_it in ODDITIES.items() if is_it(ours, kafkas, lines)), None)
                self._abandon(sides)
                return Found(seed, tuple(lines), ours, kafkas, excused)
            lines[-1] += f" -> {_short(ours)}"
        self._abandon(sides)
        return None

    @staticmethod
    def _step(sides: list[Side], number: int, plan: Plan) -> tuple[dict[int, Any], dict[int, Any]]:
        told: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        for side in sides:
            side.ask(number, plan)
        for _ in range(2):
            for side, answers in zip(sides, told, strict=True):
                side.barrier()
                side.collect(answers)
        deadline = time.monotonic() + _PATIENCE
        while told[0].keys() != told[1].keys() and time.monotonic() < deadline:
            for side, answers in zip(sides, told, strict=True):
                side.collect(answers)
        for side, answers in zip(sides, told, strict=True):
            side.register(answers)
            if plan.is_transactional:
                side.settle_transactions([f"{side.group}-{each}" for each in range(2)])
        return told

    @staticmethod
    def _abandon(sides: list[Side]) -> None:
        for side in sides:
            for _, _, wire in side.waiting:
                wire.sock.close()


def _comes_first(one: bytes, other: bytes) -> bool:
    """Whether an id is before another by its bytes, as Java's signed number, and in Java's hash tables of any size."""
    if not one < other or (one[0] < 128) != (other[0] < 128):
        return False
    hashes = [_java_hash(each) for each in (one, other)]
    return all(hashes[0] % size < hashes[1] % size for size in (2, 4, 8, 16))


def _java_hash(topic_id: bytes) -> int:
    """`Uuid.hashCode()`, as a HashMap spreads it."""
    high, low = struct.unpack(">QQ", topic_id)
    both = high ^ low
    code = (both >> 32) ^ (both & 0xFFFFFFFF)
    return int(code ^ (code >> 16))


def _unlike(ours: Any, kafkas: Any, path: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        for name in ours.keys() | kafkas.keys():
            yield from _unlike(ours.get(name, "no answer"), kafkas.get(name, "no answer"), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        for index, pair in enumerate(zip(ours, kafkas, strict=True)):
            yield from _unlike(*pair, f"{path}[{index}]")
    elif ours != kafkas:
        yield f"{path}: ours {ours}, Kafka's {kafkas}"


def _short(answers: dict[int, Any]) -> str:
    def brief(value: Any) -> Any:
        return (
            {key: each for key, each in value.items() if each not in ("", [], None)}
            if isinstance(value, dict)
            else value
        )

    return "; ".join(f"#{label} {brief(each)}" for label, each in answers.items()) or "parked"


Oddity = Callable[[dict[int, Any], dict[int, Any], list[str]], bool]


def _differs_only_in(*names: str) -> Oddity:
    def is_it(ours: dict[int, Any], kafkas: dict[int, Any], _lines: list[str]) -> bool:
        if ours.keys() != kafkas.keys():
            return False
        return all(
            a == b
            or (
                isinstance(a, dict)
                and isinstance(b, dict)
                and a.keys() == b.keys()
                and all(a[name] == b[name] for name in a if name not in names)
            )
            for a, b in ((ours[label], kafkas[label]) for label in ours)
        )

    return is_it


def _kafka_throws(ours: dict[int, Any], kafkas: dict[int, Any], lines: list[str]) -> bool:
    # The protocol of the last generation may be the choice of a tie, so a member may know ours and not Kafka's.
    expected = {" Join(": {"UNKNOWN_MEMBER_ID"}, " Beat(": {"GROUP_ID_NOT_FOUND", "NONE"}}
    told = next((codes_ for name, codes_ in expected.items() if name in lines[-1]), set[str]())
    return any(
        kafkas[each].get("error_code") == "UNKNOWN_SERVER_ERROR" and ours[each].get("error_code") in told
        for each in ours.keys() & kafkas.keys()
    )


def _kafka_is_silent(ours: dict[int, Any], kafkas: dict[int, Any], _lines: list[str]) -> bool:
    more = ours.keys() - kafkas.keys()
    errors = {"UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"}
    return bool(more) and all(ours[each]["error_code"] in errors for each in more)


def _follows_one_that_was_not_appended(
    ours: dict[int, Any], kafkas: dict[int, Any], lines: list[str]
) -> bool:
    """One side finds a sequence number out of order, after another batch for that partition was not appended."""
    told = [_code_of_batch(each) for answers in (ours, kafkas) for each in answers.values()]
    here = _PRODUCED.match(lines[-1])
    if here is None or told.count("OUT_OF_ORDER_SEQUENCE_NUMBER") != 1:
        return False
    before = [(_PRODUCED.match(each), each) for each in lines[:-1]]
    return any(
        found is not None
        and found.groups() == here.groups()
        and ("'error_code': 'NONE'" not in line or "'log_append_time_ms': True" in line)
        for found, line in before
    )


def _code_of_batch(answer: Any) -> Any:
    try:
        return answer["responses"][0]["partition_responses"][0]["error_code"]
    except (KeyError, IndexError, TypeError):
        return None


def _who_of_equals(ours: Any, kafkas: Any, lines: list[str]) -> bool:
    return any(" Join(" in each for each in lines) and _is_alike(ours, kafkas)


def _is_alike(ours: Any, kafkas: Any, name: str = "") -> bool:
    """Whether nothing differs but what members are assigned."""
    if name in ("assignment", "target_assignment"):
        return (ours is None) == (kafkas is None)
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        return ours.keys() == kafkas.keys() and all(
            _is_alike(ours[each], kafkas[each], each) for each in ours
        )
    if isinstance(ours, list) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        return all(_is_alike(*pair) for pair in zip(ours, kafkas, strict=True))
    return bool(ours == kafkas)


ODDITIES: Final[dict[str, Oddity]] = {
    # Kafka takes the first of a hash table of random ids; here it is the member that joined first.
    "the choice of a new leader": _differs_only_in("leader", "members"),
    # As many members prefer one protocol as another: Kafka takes the first of a hash table, we the first named.
    "a tie of votes for a protocol": _differs_only_in("protocol_name", "members"),
    # Members with ids that the brokers made: who has which partition goes by their order, in Kafka by their hashes.
    "which of equal members gets what": _who_of_equals,
    # An id that was asked for without an instance id is used with one; a group whose new member does not know the
    # protocol of its last generation is to speak KIP-848's: Kafka's rules throw.
    "an error of Kafka's own": _kafka_throws,
    # Who leaves, or joins again by another connection, with a request parked: Kafka forgets to answer that one.
    "a parked request that Kafka never answers": _kafka_is_silent,
    # Kafka's partition remembers the batches that it asked the transaction coordinator about, also those that it then
    # refused or had already; by them it judges the first batch of the next transaction.
    "what a batch that was not appended leaves behind": _follows_one_that_was_not_appended,
}


_OF_CHANCE: Final = frozenset(
    {"the choice of a new leader", "a tie of votes for a protocol", "which of equal members gets what"}
)
"""They go by ids that the brokers draw."""


_OF_SHARE_GROUPS: Final = {
    QUEUES: (compare_queues, queues.ODDITIES),
    SHARE_MEMBERS: (compare_share_members, share_groups.ODDITIES),
}


def compare(mode: str, seeds: range, kafka: str) -> Iterator[Found | Difference | None]:
    """Run sequences of one mode; what each found."""
    if mode in _OF_SHARE_GROUPS:
        yield from _OF_SHARE_GROUPS[mode][0](seeds, kafka)
        return
    with Broker(config=CONFIG) as ours:
        pair = Pair(ours, kafka, 4 * len(seeds) + _TRIES)
        try:
            for number, seed in enumerate(seeds, 1):
                yield pair.run(mode, seed, len(seeds) - number)
        finally:
            pair.close()


def main() -> int:
    """Print each difference; the exit status is 1 if one is not excused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modes", nargs="*", default=sorted([*MODES, *_OF_SHARE_GROUPS]))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--kafka", help="HOST:PORT of a running Kafka; by default one is started")
    given = parser.parse_args()
    with Kafka(KAFKA_CONFIG) if given.kafka is None else _Running(given.kafka) as kafka:
        return max(
            _report(mode, range(given.first, given.first + given.count), kafka.bootstrap_servers)
            for mode in given.modes
        )


class _Running:
    def __init__(self, address: str) -> None:
        self.bootstrap_servers = address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        return


def _report(mode: str, seeds: range, kafka: str) -> int:
    oddities = ODDITIES if mode in MODES else _OF_SHARE_GROUPS[mode][1]
    same, excused, ours = 0, dict.fromkeys(oddities, 0), 0
    for found in compare(mode, seeds, kafka):
        if found is None:
            same += 1
        elif found.excused is not None:
            excused[found.excused] += 1
        else:
            ours += 1
            print(f"{mode}: {found}", flush=True)
    print(
        f"{mode}: {len(seeds)} sequences, {same} the same, {ours} differ, Kafka's own: {excused}", flush=True
    )
    return int(ours > 0)


if __name__ == "__main__":
    sys.exit(main())
