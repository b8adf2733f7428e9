"""Kafka's own tools print the same of our broker as of real Apache Kafka.

What cannot be the same is replaced first: addresses and ids. `Side` says what. Where the words of an error are each
broker's own, the exit codes are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.interop.tools import CONFIGS, TOOLS, Tools
from tests.patience import PATIENCE, until
from tests.protocol.real_requests import OF_THIS_KAFKA

import docs
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

CONSOLE_PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
CONSOLE_SHARE_CONSUMER = f"{TOOLS}.consumer.ConsoleShareConsumer"
LISTS_GROUPS = f"{TOOLS}.GroupsCommand"
OFFSETS = f"{TOOLS}.GetOffsetShell"
DELETES_RECORDS = f"{TOOLS}.DeleteRecordsCommand"
ELECTS = f"{TOOLS}.LeaderElectionCommand"

Scenario = Callable[["Side"], Any]


class Side:
    """A broker, and a topic of two partitions, whose name is also that of a scenario's group."""

    def __init__(self, tools: Tools, servers: str, name: str, directory: Path) -> None:
        self.servers = servers
        self.name = name
        self._directory = directory
        self._tools = tools
        self(TOPICS, "--create", "--topic", name, "--partitions", "2")
        self.settle(name, 2)

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> tuple[int, list[str]]:
        """The exit code, and the lines on stdout, without what differs from one broker to the next."""
        ended = self._tools.end_of(tool, "--bootstrap-server", self.servers, *arguments, stdin=stdin)
        said = ended.out
        for address in (self.servers, self.servers.replace(":", " ")):
            said = said.replace(address, "ADDRESS")
        said = re.sub(r"TopicId: \S+", "TopicId: ID", said)
        # A new Kafka writes it among the settings of each topic.
        said = re.sub(r"min\.insync\.replicas=1,?", "", said)
        return ended.code, [" ".join(line.split()) for line in said.splitlines()]

    def settle(self, topic: str, partitions: int) -> None:
        """Wait until the broker tells of so many partitions; 0: of no such topic. Kafka's controller answers before it.

        A tool would create a topic again meanwhile.
        """
        asked = (TOPICS, "--bootstrap-server", self.servers, "--describe", "--topic", topic)
        until(lambda: self._tools.end_of(*asked).out.count("\tPartition: ") == partitions)

    def file(self, content: Any) -> str:
        path = self._directory / "wanted.json"
        path.write_text(json.dumps(content))
        return str(path)

    def produce(self, count: int = 10) -> None:
        """Keys are numbers, so both brokers have the same records in a partition."""
        lines = "".join(f"{number}\tvalue {number}\n" for number in range(count))
        self(CONSOLE_PRODUCER, "--topic", self.name, "--reader-property", "parse.key=true", stdin=lines)

    def consume(self, count: int = 10, *more: str) -> list[str]:
        """In a group, which so has committed offsets."""
        arguments = ["--topic", self.name, "--group", self.name, "--from-beginning"]
        arguments += ["--max-messages", str(count), "--timeout-ms", str(int(PATIENCE * 1000))]
        return sorted(self(CONSOLE_CONSUMER, *arguments, *more)[1])


def console(side: Side) -> Any:
    lines = "a:1,b:2\tkey\tvalue\nNULL\tkey\tvalue\nc:3\tother\tNULL\n"
    properties = ("parse.headers=true", "parse.key=true", "null.marker=NULL")
    given = [part for each in properties for part in ("--reader-property", each)]
    seen = side(CONSOLE_PRODUCER, "--topic", side.name, *given, "--compression-codec", "zstd", stdin=lines)
    shown = [f"print.{each}=true" for each in ("offset", "partition", "headers", "key", "value")]
    given = [part for each in shown for part in ("--formatter-property", each)]
    return seen, side.consume(3, *given)


def topics(side: Side) -> Any:
    def topic(*arguments: str) -> Any:
        return side(TOPICS, *arguments)

    made = f"{side.name}-made"
    of_made = ("--topic", made)
    seen: list[Any] = [topic("--create", *of_made, "--partitions", "3", "--config", "retention.ms=60000")]
    side.settle(made, 3)
    seen += [
        topic("--create", *of_made),
        topic("--create", *of_made, "--if-not-exists"),
        topic("--create", "--topic", "not/a/name")[0],
        topic("--create", "--topic", f"{made}-2", "--config", "no.such.setting=1")[0],
        topic("--create", "--topic", f"{made}-2", "--replication-factor", "2")[0],
        topic("--describe", *of_made),
        topic("--describe", "--topic", side.name, "--unavailable-partitions"),
        topic("--alter", *of_made, "--partitions", "5"),
    ]
    side.settle(made, 5)
    seen += [
        topic("--alter", *of_made, "--partitions", "2")[0],
        topic("--describe", *of_made),
        topic("--list", "--topic", f"{side.name}.*"),
        topic("--delete", *of_made),
    ]
    side.settle(made, 0)
    return [*seen, topic("--delete", *of_made)[0], topic("--list", "--topic", f"{side.name}.*")]


def offsets(side: Side) -> Any:
    side.produce()
    name = ("--topic", side.name)
    seen: list[Any] = [
        side(OFFSETS, *name, "--time", when)
        for when in ("earliest", "latest", "earliest-local", "latest-tiered", "0", "-2")
    ]
    return [
        *seen,
        side(OFFSETS, *name, "--time", "9999999999999"),
        side(OFFSETS, *name, "--partitions", "1"),
        side(OFFSETS, "--topic-partitions", f"{side.name}:0-1,{side.name}:7"),
        side(OFFSETS, "--topic", "no-such-topic"),
    ]


def deleted_records(side: Side) -> Any:
    side.produce()

    def delete(partition: int, offset: int, topic: str = side.name) -> Any:
        wanted = {"topic": topic, "partition": partition, "offset": offset}
        return side(DELETES_RECORDS, "--offset-json-file", side.file({"version": 1, "partitions": [wanted]}))

    seen = [delete(0, 2), delete(0, 1), delete(1, -1), delete(0, 10_000)]
    return [*seen, side(OFFSETS, "--topic", side.name, "--time", "earliest")]


def elections(side: Side) -> Any:
    one = ("--topic", side.name, "--partition", "0")
    both = {"partitions": [{"topic": side.name, "partition": each} for each in (0, 1)]}
    return [
        side(ELECTS, "--election-type", "preferred", *one),
        side(ELECTS, "--election-type", "unclean", *one),
        side(ELECTS, "--election-type", "preferred", "--path-to-json-file", side.file(both))[0],
        side(ELECTS, "--election-type", "preferred", "--all-topic-partitions"),
        side(ELECTS, "--election-type", "preferred", "--topic", "no-such-topic", "--partition", "0")[0],
    ]


def groups(side: Side) -> Any:
    """What `kafka-consumer-groups.sh` and `kafka-groups.sh` tell and do once the members are gone."""
    side.produce()
    modern = f"{side.name}-modern"

    def group(*arguments: str, name: str = side.name) -> Any:
        return side(GROUPS, "--group", name, *arguments)

    side.consume()
    side.consume(
        10, "--command-property", "group.protocol=consumer", "--command-property", f"group.id={modern}"
    )
    topic = ("--topic", side.name)
    seen: list[Any] = [
        group("--describe", *what, name=name)
        for name in (side.name, modern, "no-such-group")
        for what in (("--offsets",), ("--state",), ("--members", "--verbose"))
    ]
    seen += [
        group("--reset-offsets", *topic, "--to-earliest", "--dry-run"),
        group("--reset-offsets", *topic, "--to-latest", "--dry-run"),
        group("--reset-offsets", *topic, "--shift-by", "-2", "--execute"),
        group("--reset-offsets", "--topic", f"{side.name}:1", "--to-offset", "1", "--execute", name=modern),
        group("--reset-offsets", *topic, "--to-datetime", "2020-01-01T00:00:00.000", "--execute"),
        group("--reset-offsets", *topic, "--to-current", "--export", "--dry-run"),
        group("--delete-offsets", "--topic", f"{side.name}:0"),
        group("--delete-offsets", "--topic", "no-such-topic"),
        group("--describe"),
    ]
    for more in (
        (),
        ("--group-type", "classic"),
        ("--group-type", "consumer"),
        ("--protocol", "consumer"),
        ("--consumer",),
        ("--share",),
    ):
        code, lines = side(LISTS_GROUPS, "--list", *more)
        seen.append([code, lines[0], sorted(line for line in lines if line.startswith(side.name))])
    seen += [group("--delete"), group("--delete", name=modern), group("--delete", name="no-such-group")]
    return seen


def share_groups(side: Side) -> Any:
    """What `kafka-share-groups.sh` tells and does, and `kafka-console-share-consumer.sh` reads."""
    side.produce()
    topic = ("--topic", side.name)

    def group(*arguments: str, name: str = side.name) -> Any:
        code, lines = side(SHARE_GROUPS, "--group", name, *arguments)
        return code, sorted(lines)

    seen: list[Any] = [
        group("--describe"),
        group("--reset-offsets", *topic, "--to-earliest", "--dry-run"),
        # A group that is new has its place at once: else its first member waits for two heartbeats.
        group("--reset-offsets", *topic, "--to-earliest", "--execute"),
        group("--describe", "--offsets"),
        group("--describe", "--offsets", "--verbose"),
        group("--describe", "--state"),
        group("--describe", "--members"),
    ]
    told = side(
        CONSOLE_SHARE_CONSUMER, *topic, "--group", side.name, "--max-messages", "10",
        "--timeout-ms", str(int(PATIENCE * 1000)),
    )  # fmt: skip
    seen.append((told[0], sorted(told[1])))
    seen += [
        group("--describe", "--state", "--verbose"),
        group("--reset-offsets", *topic, "--to-latest", "--execute"),
        group("--describe", "--offsets"),
        group("--reset-offsets", *topic, "--to-datetime", "2020-01-01T00:00:00.000", "--execute"),
        group("--describe", "--offsets"),
        group("--reset-offsets", "--topic", "no-such-topic", "--to-earliest", "--execute"),
        group("--delete-offsets", "--topic", "no-such-topic"),
        group("--delete-offsets", *topic),
        group("--describe", "--offsets"),
    ]
    for more in ((), ("--share",), ("--group-type", "share"), ("--consumer",)):
        code, lines = side(LISTS_GROUPS, "--list", *more)
        seen.append([code, sorted(line for line in lines if line.startswith(side.name))])
    for state in ((), ("--state", "Empty"), ("--state", "Stable")):
        code, lines = side(SHARE_GROUPS, "--list", *state)
        seen.append([code, sorted(line for line in lines if line.startswith(side.name))])
    seen += [group("--delete"), group("--delete", name="no-such-group"), group("--describe", "--state")]
    return seen


def configs(side: Side) -> Any:
    """Without the line of the setting that `Side` leaves out, which Kafka has from a default for all brokers."""

    def told(kind: str, name: str, *arguments: str) -> Any:
        code, lines = side(CONFIGS, f"--{kind}", name, *arguments)
        return code, [line for line in lines if not line.startswith("sensitive=")]

    return [
        told("topic", side.name, "--alter", "--add-config", "retention.ms=60000,cleanup.policy=[delete]"),
        told("topic", side.name, "--describe"),
        told("topic", side.name, "--describe", "--all"),
        told("topic", side.name, "--alter", "--add-config", "retention.ms=soon"),
        told("topic", side.name, "--alter", "--delete-config", "retention.ms"),
        told("topic", side.name, "--describe"),
        told("topic", "no-such-topic", "--describe"),
        told("group", side.name, "--alter", "--add-config", "consumer.session.timeout.ms=50000"),
        told("group", side.name, "--alter", "--add-config", "consumer.session.timeout.ms=1"),
        told("group", side.name, "--describe"),
        told("group", side.name, "--alter", "--delete-config", "consumer.session.timeout.ms"),
        told("group", side.name, "--describe"),
        told("group", side.name, "--alter", "--add-config", "share.auto.offset.reset=earliest"),
        told("group", side.name, "--alter", "--add-config", "share.auto.offset.reset=none"),
        told("group", side.name, "--alter", "--add-config", "share.delivery.count.limit=11"),
        told("group", side.name, "--alter", "--add-config", "share.isolation.level=dirty"),
        told("group", side.name, "--alter", "--add-config", "errors.deadletterqueue.topic.name=__t"),
        told("group", side.name, "--describe"),
        told("group", side.name, "--alter", "--delete-config", "share.auto.offset.reset"),
        told("broker", "1", "--describe"),
        told("client-metrics", "m", "--describe"),
    ]


def sizes(side: Side) -> Any:
    side.produce()
    code, lines = side(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", side.name)
    (told,) = (json.loads(line) for line in lines if line.startswith("{"))
    found = told["brokers"][0]["logDirs"][0]
    del found["logDir"]
    found["partitions"].sort(key=lambda each: each["partition"])
    return code, told


def speed(side: Side) -> Any:
    side.produce(50)
    code, lines = side(
        f"{TOOLS}.ConsumerPerformance", "--topic", side.name, "--num-records", "50", "--group", side.name,
        "--timeout", str(int(PATIENCE * 1000)),
    )  # fmt: skip
    head, values = (line.split(", ") for line in lines)
    return code, head, values[head.index("data.consumed.in.nMsg")]


def latency(side: Side) -> Any:
    code, lines = side(
        f"{TOOLS}.EndToEndLatency", "--topic", side.name, "--num-records", "20", "--producer-acks", "all",
        "--record-size", "50",
    )  # fmt: skip
    return code, [line.split(":")[0] for line in lines[1:]]


def access_rules(side: Side) -> Any:
    code, lines = side(f"{TOOLS}.AclCommand", "--list")
    return code, lines[0].rpartition(": ")[0]


SCENARIOS = [
    console, topics, offsets, deleted_records, elections, groups, share_groups, configs, sizes, speed, latency,
    access_rules,
]  # fmt: skip


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_tools_print_the_same(
    tools: Tools, ours: str, kafka: Kafka, tmp_path: Path, scenario: Scenario
) -> None:
    name = f"tools-{uuid4()}"
    seen, kafkas = (
        scenario(Side(tools, servers, name, tmp_path)) for servers in (ours, kafka.bootstrap_servers)
    )
    assert seen == kafkas


def test_the_cluster_is_told_alike(tools: Tools, ours: str, kafka: Kafka) -> None:
    def told(servers: str) -> Any:
        address = ("--bootstrap-server", servers)
        (cluster,) = tools(f"{TOOLS}.ClusterTool", "cluster-id", *address).splitlines()
        endpoints = tools(f"{TOOLS}.ClusterTool", "list-endpoints", *address).split()
        features = tools(f"{TOOLS}.FeatureCommand", *address, "describe").splitlines()
        found = [
            re.findall(r"Feature: (group|share|transaction)\.version (.*)Epoch", each) for each in features
        ]
        host, port = servers.split(":")
        return (
            re.fullmatch(r"Cluster ID: [\w-]{22}", cluster) is not None,
            [each for each in endpoints if each not in (host, port)],
            [each for each in found if each],
        )

    assert told(ours) == told(kafka.bootstrap_servers)


def test_the_versions_that_java_can_use_are_kafkas(tools: Tools, ours: str, kafka: Kafka) -> None:
    """All that is served, as `tools/docs.py` and the handlers list it, is served as far as Java can use it."""

    def usable(servers: str) -> dict[int, int]:
        told = tools(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", servers)
        return {int(key): int(version) for key, version in re.findall(r"\((\d+)\): .*usable: (\d+)", told)}

    at_ours, at_kafkas = usable(ours), usable(kafka.bootstrap_servers)
    not_served = {key for apis in docs.NOT_SERVED.values() for key in apis}
    assert at_kafkas.keys() - at_ours.keys() == not_served & OF_THIS_KAFKA
    older = {key for key, version in at_ours.items() if version != at_kafkas[key]}
    # AddPartitionsToTxn from version 4 on is for brokers among themselves; DescribeLogDirs 5 tells of cordoned ones.
    assert older == {24, 35}


def test_javas_test_of_compatibility_passes(tools: Tools) -> None:
    """Kafka's own system tests run it against brokers of each version."""
    supported = (
        "offsets-for-times",
        "cluster-id",
        "create-topics",
        "describe-acls",
        "describe-configs",
        "idempotent-producer",
    )
    with Broker(nodes=3, topics={"t": 1}) as broker:
        told = tools(
            f"{TOOLS}.ClientCompatibilityTest", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t",
            "--num-cluster-nodes", "3", "--expect-record-too-large-exception", "false",
            *(part for each in supported for part in (f"--{each}-supported", "true")),
        )  # fmt: skip
    assert told.splitlines()[-1] == "SUCCESS."
