"""Groups for the assignor of share groups, and what Kafka's own class assigns to them (SimpleAssignor of 4.4.0).

    python -m tests.coordinator.share.simple_oracle 0 2000     compare these seeds with Java
    python -m tests.coordinator.share.simple_oracle --write    write the cases that the test reads

Java runs ``SimpleOracle.java`` from its source, with Kafka's jars from Maven.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kadence.java import find_java
from kadence_broker.coordinator.java_tables import in_set, in_table, string_hash, timeline_order
from kadence_broker.coordinator.share.assignor import ShareSpec, assign
from kadence_testing.maven import maven_jars

HERE = Path(__file__).parent
CASES = HERE / "simple_assignor_cases.json"
KAFKA = "4.4.0"

Shares = dict[str, dict[str, list[int]]]
"""Member id -> topic id in hexadecimal -> partitions, without topics that have none."""


@dataclass
class Case:
    """One group.

    Attributes:
        topics: id in hexadecimal, number of partitions, and those that are initialised, by name.
        members: the topic names that each subscribes to, in the order of joining.
        had: the assignment before.
    """

    topics: dict[str, tuple[str, int, list[int]]] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    had: Shares = field(default_factory=dict)

    @property
    def is_homogeneous(self) -> bool:
        return len({frozenset(names) for names in self.members.values()}) <= 1

    def ours(self) -> Shares:
        """What our assignor makes of it."""
        topics: list[bytes] | None = None
        if self.is_homogeneous:
            first = in_table(string_hash, timeline_order(self.members))[0]
            names = in_set(string_hash, sorted(self.members[first]))
            topics = [bytes.fromhex(self.topics[name][0]) for name in names if name in self.topics]
        spec = ShareSpec(
            subscriptions={
                member: frozenset(
                    bytes.fromhex(self.topics[name][0]) for name in names if name in self.topics
                )
                for member, names in self.members.items()
            },
            had={
                member: {bytes.fromhex(topic): frozenset(numbers) for topic, numbers in held.items()}
                for member, held in self.had.items()
            },
            assignable={bytes.fromhex(topic): numbers for topic, _, numbers in self.topics.values()},
            topics=topics,
        )
        return {
            member: {topic.hex(): sorted(numbers) for topic, numbers in held.items() if numbers}
            for member, held in assign(spec).items()
        }

    def lines(self) -> Iterator[str]:
        """As ``SimpleOracle.java`` reads it."""
        yield f"case {'same' if self.is_homogeneous else 'different'}"
        for name, (topic, count, assignable) in self.topics.items():
            yield f"topic {name} {topic} {count} {'.'.join(map(str, assignable))}"
        for member, names in self.members.items():
            held = self.had.get(member, {})
            had = ";".join(
                f"{topic}:{'.'.join(map(str, numbers))}" for topic, numbers in sorted(held.items())
            )
            yield f"member {member} {','.join(sorted(names))} {had}"
        yield "end"


class Oracle:
    """Kafka's own class, in a JVM."""

    def __init__(self) -> None:
        coordinates = (f"org.apache.kafka:kafka_2.13:{KAFKA}", f"org.apache.kafka:kafka-tools:{KAFKA}")
        jars = maven_jars(f"kafka-{KAFKA}", (*coordinates, "org.slf4j:slf4j-simple:1.7.36"))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        self._java = subprocess.Popen(
            [str(find_java().executable), quiet, "-cp", f"{jars}/*", str(HERE / "SimpleOracle.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def assign(self, case: Case) -> Shares:
        assert self._java.stdin is not None
        assert self._java.stdout is not None
        self._java.stdin.write("".join(f"{line}\n" for line in case.lines()))
        self._java.stdin.flush()
        shares: Shares = {}
        while (line := self._java.stdout.readline()) != "end\n":
            assert line, "Java has ended"
            _, member, text = line.rstrip("\n").split(" ")
            held = (each.split(":") for each in text.split(";") if each)
            shares[member] = {
                topic: [int(each) for each in numbers.split(".") if each]
                for topic, numbers in held
                if numbers
            }
        return shares

    def close(self) -> None:
        self._java.kill()
        self._java.wait()


def life(seed: int, assigned: Callable[[Case], Shares]) -> Iterator[tuple[Case, Shares]]:
    """A group's life: members come and go, topics grow and are deleted. Each step has the assignment before it."""
    luck = random.Random(seed)
    is_big = luck.random() < 0.15
    case = Case()
    for number in range(luck.randint(1, 5)):
        count = luck.randint(1, 60 if is_big else 9)
        likely = 0.8 if luck.random() < 0.3 else 1.0
        assignable = [each for each in range(count) if luck.random() < likely]
        case.topics[f"t{number}"] = (luck.randbytes(16).hex(), count, assignable)
    for _ in range(luck.randint(1, 5)):
        for _ in range(luck.randint(0, 30 if is_big else 4)):
            is_random = luck.random() < 0.5
            case.members[f"{luck.getrandbits(64):x}" if is_random else f"m{luck.randint(1, 40)}"] = []
        case.members = {member: [] for member in case.members if luck.random() < 0.8}
        if luck.random() < 0.3:
            name = luck.choice(list(case.topics))
            topic, count, _ = case.topics[name]
            count += luck.randint(1, 6)
            case.topics[name] = (topic, count, list(range(count)))
        if luck.random() < 0.15 and len(case.topics) > 1:
            del case.topics[luck.choice(list(case.topics))]
        names = [*case.topics, "none"]
        common = luck.sample(names, luck.randint(0 if luck.random() < 0.1 else 1, len(case.topics)))
        is_same = luck.random() < 0.5
        for member in case.members:
            case.members[member] = (
                common if is_same else luck.sample(names, luck.randint(1, len(case.topics)))
            )
        shares: Shares = assigned(case) if case.members else {}
        if case.members:
            yield Case(dict(case.topics), dict(case.members), case.had), shares
        case.had = shares


def main(arguments: list[str]) -> None:
    oracle = Oracle()
    try:
        if arguments == ["--write"]:
            cases = [(case, shares) for seed in range(30) for case, shares in life(seed, oracle.assign)]
            lines = (
                json.dumps([case.topics, case.members, case.had, shares], separators=(",", ":"))
                for case, shares in cases
                if len(case.members) <= 12
            )
            CASES.write_text("[\n" + ",\n".join(lines) + "\n]\n")
            return
        count = 0
        for seed in range(int(arguments[0]), int(arguments[1])):
            for case, shares in life(seed, oracle.assign):
                count += 1
                assert case.ours() == shares, f"seed {seed}"
        sys.stdout.write(f"{count} groups, no difference to Kafka {KAFKA}\n")
    finally:
        oracle.close()


if __name__ == "__main__":
    main(sys.argv[1:])
