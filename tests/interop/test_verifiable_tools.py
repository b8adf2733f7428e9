"""The programs of Apache Kafka's own system tests against our broker: what they print is checked for loss and order.

VerifiableProducer says where each record went, VerifiableConsumer what it got; the members and the broker are killed
meanwhile, and started again. TransactionalMessageCopier copies in transactions, aborts some of them, and is killed too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop.members import FAST_JVM, mixed_group
from tests.interop.tools import TOOLS
from tests.patience import PATIENCE, until

from kadence import Admin, Consumer, Producer, TopicPartition
from kadence_broker import Broker
from kadence_testing.kafka import Kafka, free_ports

PARTITIONS = 3
SETTINGS = {
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 4_000,
    "group.consumer.heartbeat.interval.ms": 200,
}


class Lines:
    """A Java tool as a process, and the JSON that it writes."""

    def __init__(self, tool: str, *arguments: str) -> None:
        command = Kafka().tool_command(f"{TOOLS}.{tool}", *arguments, jvm_options=FAST_JVM)
        self.said: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True
        )
        self._listener = threading.Thread(target=self._listen, name=f"listens to {tool}")
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.said.append(json.loads(line))
            except ValueError:
                continue  # the end of one that was killed

    def of(self, name: str) -> list[dict[str, Any]]:
        return [each for each in list(self.said) if each.get("name") == name]

    def end(self, *, kill: bool = False) -> int:
        """Wait until it has ended, if need be by force, and all of it is read; its exit code."""
        if kill:
            self.process.kill()
        code = self.process.wait(PATIENCE)
        self._listener.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def running(tool: str, *arguments: str) -> Iterator[Lines]:
    made = Lines(tool, *arguments)
    try:
        yield made
    finally:
        made.end(kill=True)


class Served:
    """A broker as a process, with a data directory; once killed it starts again on its port."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.servers = f"127.0.0.1:{port}"
        settings = (part for key, value in SETTINGS.items() for part in ("-X", f"{key}={value}"))
        self._command = [
            sys.executable, "-m", "kadence", "broker", "--port", str(port), "--topic", f"t:{PARTITIONS}",
            "--data-dir", str(directory / "data"), "--fsync", "never", *settings,
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline()  # it is ready

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def served(directory: Path) -> Iterator[Served]:
    made = Served(directory)
    try:
        yield made
    finally:
        made.kill()


def log_of(servers: str, topic: str, partitions: int, **settings: Any) -> dict[tuple[int, int], str]:
    """Value by partition and offset, as our own consumer reads it."""
    each = [TopicPartition(topic, number) for number in range(partitions)]
    found: dict[tuple[int, int], str] = {}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings) as consumer:
        ends = consumer.end_offsets(each)
        consumer.assign(each)

        def all_read() -> bool:
            for record in consumer.poll(0.2):
                found[record.partition, record.offset] = (record.value or b"").decode()
            return all(consumer.position(partition) >= end for partition, end in ends.items())

        until(all_read, what="the end of the log", every=0)
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_nothing_is_lost_when_producer_consumer_and_broker_are_killed(
    kafka: Kafka, tmp_path: Path, protocol: str
) -> None:
    del kafka  # its jars are what is needed
    config = tmp_path / "producer.properties"
    # The tool sets retries=0, which would make a killed broker lose what it never took.
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    with served(tmp_path) as broker:
        produces = (
            "--bootstrap-server", broker.servers, "--topic", "t", "--throughput", "400",
            "--repeating-keys", "20", "--command-config", str(config),
        )  # fmt: skip
        assignor = "uniform" if protocol == "consumer" else "range"
        with mixed_group(
            broker.servers, "t", tmp_path, protocol=protocol, assignor=assignor, verbose=True
        ) as group:
            with running("VerifiableProducer", *produces, "--value-prefix", "1") as first:
                victim = group.start("java")
                group.start("java")
                until(lambda: sum(bool(each.commits) for each in group.running) == 2, what=group.told)
                victim.kill()
                broker.kill()
                acknowledged = len(first.of("producer_send_success"))
                broker.start()
                group.start("java")
                until(
                    lambda: len(first.of("producer_send_success")) > acknowledged + 200,
                    what=lambda: str(first.said[-3:]),
                )
                first.end(kill=True)
            with running(
                "VerifiableProducer", *produces, "--value-prefix", "2", "--max-messages", "300"
            ) as second:
                assert second.end() == 0
            with Admin(bootstrap_servers=broker.servers) as admin:

                def behind() -> dict[int, int]:
                    ends = admin.list_offsets(
                        {TopicPartition("t", each): "latest" for each in range(PARTITIONS)}
                    )
                    done = admin.list_consumer_group_offsets(group.name)
                    return {
                        each.partition: end.offset - (done[each].offset if each in done else 0)
                        for each, end in ends.items()
                        if end is not None
                    }

                until(lambda: not any(behind().values()), what=lambda: f"{behind()}\n{group.told()}")
            for member in group.running:
                member.close()
        log = log_of(broker.servers, "t", PARTITIONS)

    assert len(second.of("producer_send_success")) == 300
    for producer in (first, second):
        assert producer.of("producer_send_error") == []
        for sent in producer.of("producer_send_success"):
            assert log[sent["partition"], sent["offset"]] == sent["value"]
    # Nothing is there twice, and a partition has the records of a producer in the order of its sends.
    assert len(set(log.values())) == len(log)
    for partition in range(PARTITIONS):
        values = [value for (where, _), value in sorted(log.items()) if where == partition]
        numbers = [tuple(map(int, value.split("."))) for value in values]
        assert numbers == sorted(numbers)

    ends = {
        partition: max(offset for where, offset in log if where == partition) + 1
        for partition in range(PARTITIONS)
    }
    assert group.unread(ends) == set()
    assert group.skipped() == []
    assert group.shared_partitions() == []
    for member in group.all:
        for partition, offset, value in member.values:
            assert log[partition, offset] == value


def test_a_copy_in_transactions_is_exact_although_its_maker_is_killed(kafka: Kafka) -> None:
    del kafka  # its jars are what is needed
    values = [b"%d" % number for number in range(2_000)]
    with Broker(nodes=3, topics={"from": 1, "to": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value in values:
                producer.send("from", value)
        copies = (
            "--broker-list", broker.bootstrap_servers, "--input-topic", "from", "--input-partition", "0",
            "--output-topic", "to", "--transactional-id", "copier", "--consumer-group", "copiers",
            "--transaction-size", "20", "--enable-random-aborts", "--use-group-metadata",
            # It asks where to begin before it calls initTransactions(): what the killed one left open ends by its time.
            "--transaction-timeout", "4000",
        )  # fmt: skip

        def turns(copier: Lines) -> int:
            return sum(each["stage"] == "ProcessLoop" for each in list(copier.said))

        with running("TransactionalMessageCopier", *copies) as first:
            until(lambda: turns(first) > 10, what="the first copier copies")
            first.end(kill=True)
        with running("TransactionalMessageCopier", *copies) as second:
            assert second.end() == 0
            assert turns(second) > 10
        log = log_of(broker.bootstrap_servers, "to", 1, isolation_level="read_committed")
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            committed = admin.list_consumer_group_offsets("copiers")
    assert [value.encode() for _, value in sorted(log.items())] == values
    assert [each.offset for each in committed.values()] == [len(values)]


@pytest.mark.heavy
def test_a_queue_is_worked_off_although_a_consumer_is_killed(kafka: Kafka) -> None:
    """VerifiableShareConsumer says what it got and what was acknowledged; each third record is renewed first."""
    del kafka  # its jars are what is needed
    settings = {"group.share.assignment.interval.ms": 0}
    with Broker(nodes=2, topics={"t": PARTITIONS}, config=settings) as broker:
        consumes = (
            "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group-id", "q",
            "--offset-reset-strategy", "earliest", "--acknowledgement-mode", "sync",
            "--ack-pattern", "accept,accept,renew",
        )  # fmt: skip
        produces = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--throughput", "300")
        with (
            running("VerifiableShareConsumer", *consumes) as victim,
            running("VerifiableShareConsumer", *consumes) as other,
        ):
            with running("VerifiableProducer", *produces) as producer:
                until(lambda: all(each.of("offsets_acknowledged") for each in (victim, other)))
                victim.end(kill=True)
                producer.end(kill=True)
            sent = set(log_of(broker.bootstrap_servers, "t", PARTITIONS))
            until(
                lambda: of(victim, "records_consumed") | of(other, "records_consumed") == sent,
                what=lambda: str(other.said[-3:]),
            )
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                # A partition without records has no start, and no lag.
                until(
                    lambda: not any(each.lag for each in admin.list_share_group_offsets("q").values()),
                    what=lambda: str(admin.list_share_group_offsets("q")),
                )
    assert of(victim, "offsets_acknowledged") | of(other, "offsets_acknowledged") <= sent
    assert all(each["success"] for each in other.of("offsets_acknowledged"))


def of(consumer: Lines, event: str) -> set[tuple[int, int]]:
    """Partition and offset of all records that its lines of one kind name."""
    return {
        (part["partition"], offset)
        for each in consumer.of(event)
        for part in each["partitions"]
        for offset in part["offsets"]
    }
