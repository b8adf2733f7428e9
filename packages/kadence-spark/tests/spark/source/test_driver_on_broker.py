"""The driver's side of a stream with the real client, on an embedded broker of several nodes."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.patience import PATIENCE
from tests.spark.conftest import Cluster
from tests.spark.source.memory import FakePace, stream_options

from kadence import Broker
from kadence.errors import KafkaTimeoutError
from kadence.protocol.list_offsets import ListOffsetsRequest
from kadence_broker.service import Call
from kadence_spark.source.clients import AdminOffsets, driver_client
from kadence_spark.source.cluster import Pace
from kadence_spark.source.commits import LOOK_MS
from kadence_spark.source.driver import StreamDriver
from kadence_spark.source.loss import DataLossError
from kadence_spark.source.offsets import NOT_BEGUN

NODES = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(nodes=NODES) as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    made = Cluster(broker.bootstrap_servers)
    yield made
    made.admin.close()


Connect = Callable[..., StreamDriver]


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Connect]:
    """Makes drivers of streams over the test's topic; options as keywords."""
    made: list[StreamDriver] = []

    def connect(pace: Pace | None = None, **more: str) -> StreamDriver:
        given = {
            "kafka_bootstrap_servers": cluster.bootstrap_servers,
            "subscribe": cluster.topic,
            "startingOffsets": "earliest",
            "idlePollMs": "100",
        }
        options = stream_options(**given | more)
        made.append(StreamDriver(options, lambda: driver_client(options), pace))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def test_a_batch_waits_for_one_round_trip(broker: Broker, cluster: Cluster, connect: Connect) -> None:
    """With a group: its commit is under way meanwhile. Seven round trips in series were needed once."""
    cluster.create(2 * NODES)
    cluster.produce(range(2 * NODES))
    stream = connect(kafka_group_id=cluster.group, commitOffsets="true")
    end = stream.latest(NOT_BEGUN)  # looks up leaders, the group and its coordinator
    end = stream.latest(end)  # idle: commits, and waits for records
    counted: Counter[str] = Counter()

    def count(call: Call) -> bool:
        if call.client_id.startswith("spark-kafka-source"):
            counted[type(call.message).__name__] += 1
        return True

    batches = 5
    with broker.faults.observe(None, where=count):
        for _ in range(batches):
            cluster.produce(range(2 * NODES))
            following = stream.latest(end)
            assert following != end
            end = following
        looks = counted["ListOffsetsRequest"]
        stream.latest(end)
    # One for starts and one for ends, side by side to all leaders.
    assert looks == 2 * NODES * batches
    # Partitions are listed once a second, so once for each call at most on a slow machine.
    assert counted["MetadataRequest"] <= batches + 2
    # Beside the batches: one commit at a time, and a last one when idle.
    assert 1 <= counted["OffsetCommitRequest"] <= batches + 1
    assert counted["FindCoordinatorRequest"] == 0
    assert cluster.committed() == cluster.ends()


def test_a_leader_that_moves_is_found_again(broker: Broker, cluster: Cluster, connect: Connect) -> None:
    cluster.create(1)
    cluster.produce(range(5))
    stream = connect()
    end = stream.latest(NOT_BEGUN)
    for node in broker.node_ids:
        broker.move_leader(cluster.topic, 0, node)
        cluster.produce(range(3))
        following = stream.latest(end)
        assert following[cluster.topic]["0"] == end[cluster.topic]["0"] + 3
        end = following


def test_another_topic_and_a_log_cut_short_are_told_apart_by_the_id(
    broker: Broker, cluster: Cluster, connect: Connect
) -> None:
    cluster.create(1)
    for _ in range(2):
        cluster.produce(range(10))
    before = cluster.topic_id()
    end = connect().latest(NOT_BEGUN)
    assert end == {f"#{cluster.topic}": {"0": 0}, f"@{cluster.topic}={before}": {}, cluster.topic: {"0": 20}}
    broker.elect_uncleanly(cluster.topic, 0, 10)
    with pytest.raises(
        DataLossError, match=f"ends at 10, below offset 20.*id {before}.*unclean leader election"
    ):
        connect().latest(end)
    cluster.admin.delete_topics([cluster.topic])
    cluster.create(1)
    cluster.produce(range(30))
    with pytest.raises(
        DataLossError, match=f"recreated.* id {before}, .* id {re.escape(cluster.topic_id())}"
    ):
        connect().latest(end)
    assert connect(failOnDataLoss="false").latest(end) == {
        f"#{cluster.topic}": {"0": 0},
        f"@{cluster.topic}={cluster.topic_id()}": {},
        cluster.topic: {"0": 30},
    }


def test_a_commit_does_not_reach_a_topic_made_anew_since_it_was_listed(
    cluster: Cluster, connect: Connect
) -> None:
    """The driver has not listed topics since, and offset 10 exists in the new one: the broker tells by the id."""
    cluster.create(1)
    cluster.produce(range(10))
    stream = connect(FakePace(), kafka_group_id=cluster.group, commitOffsets="true")
    end = stream.latest(NOT_BEGUN)
    cluster.admin.delete_topics([cluster.topic])
    cluster.create(1)
    cluster.produce(range(30))
    assert stream.latest(end)[cluster.topic] == {"0": 30}
    commits = stream._committing()
    commits._take_result(PATIENCE)
    assert (commits._under_way, commits.failures) == (None, 0)
    assert cluster.committed() == {}


def test_one_leader_of_several_that_is_away_is_named_with_its_partitions(
    broker: Broker, cluster: Cluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create(4)
    for partition in range(4):
        broker.move_leader(cluster.topic, partition, 1 + partition % 2)
        cluster.produce(range(2), partition=partition)
    pace = FakePace()
    # So long the leader that is away is waited for, and the others have for their answers.
    stream = connect(pace, kafka_default_api_timeout_ms="2000", brokerTimeoutMs="60000")
    end = stream.latest(NOT_BEGUN)
    who = re.escape(f"broker 2 (leader of {cluster.topic}-1, {cluster.topic}-3)")
    with broker.faults.disconnect(ListOffsetsRequest, where=lambda call: call.node_id == 2):
        with caplog.at_level(logging.WARNING, "kadence.spark"):
            assert stream.latest(end) is end
        assert re.match(f"there is no answer from {who}; the query waits for up to 60 s", caplog.messages[-1])
        pace.advance(60_000)
        with pytest.raises(KafkaTimeoutError, match=f"no answer from {who} for 60 s"):
            stream.latest(end)
    cluster.produce(range(1), partition=3)
    assert stream.latest(end)[cluster.topic] == {"0": 2, "1": 2, "2": 2, "3": 3}


def test_two_queries_of_one_group(
    cluster: Cluster,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster.create(1)
    cluster.produce(range(5))
    pace = FakePace()
    group = {"kafka_group_id": cluster.group, "commitOffsets": "true", "idlePollMs": "0"}
    first, beside, second = (connect(pace, **group) for _ in range(3))
    end = first.latest(NOT_BEGUN)
    first.latest(end)
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        beside.latest(beside.latest(NOT_BEGUN))  # the other side of a self-join
        pace.advance(LOOK_MS)
        cluster.produce(range(5))
        end = first.latest(end)
        first.latest(end)
        assert caplog.messages == []
        monkeypatch.setattr(os, "getppid", lambda: -1)  # a runner of another Spark application
        second.latest(second.latest(NOT_BEGUN))
        pace.advance(LOOK_MS)
        cluster.produce(range(5))
        end = first.latest(end)
        first.latest(end)
    clients = [each._cluster.client for each in (first, second)]
    told = f"two queries commit offsets to group {cluster.group}: this run {clients[0].run} and run {clients[1].run}"
    assert [record.getMessage().startswith(told) for record in caplog.records] == [True]


def test_a_topic_that_is_gone_costs_no_wait_at_each_look(
    broker: Broker, cluster: Cluster, connect: Connect
) -> None:
    """Admin waits a second for a topic that is asked for by name and does not exist: it may be new."""
    cluster.create(1)
    cluster.produce(range(5))
    options = stream_options(
        kafka_bootstrap_servers=cluster.bootstrap_servers, subscribe=f"{cluster.topic},gone-{cluster.topic}"
    )
    client = AdminOffsets(options, "test-listing")
    try:
        first = client.partitions(options.topics)
        with broker.faults.observe(None, where=lambda call: call.client_id == "test-listing") as requests:
            assert client.partitions(options.topics) == first
            assert requests.hits == 1
        cluster.admin.create_topics({f"gone-{cluster.topic}": 2})
        assert len(client.partitions(options.topics).leaders) == 3
    finally:
        client.close()
