"""The ports over Kadence's own clients, against the embedded broker."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator

import pytest
from tests.patience import PATIENCE
from tests.spark.conftest import Cluster
from tests.spark.source.memory import stream_options

from kadence import Broker, Consumer, TopicPartition
from kadence.errors import BrokerError, KafkaError, KafkaTimeoutError, OffsetOutOfRangeError
from kadence.protocol.list_offsets import ListOffsetsRequest
from kadence.protocol.metadata import MetadataRequest
from kadence_spark.source.clients import AdminOffsets, driver_client, executor_client
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.start import Partitions, Pattern, Subscription
from kadence_testing.pytest_plugin import Brokers


def options_for(cluster: Cluster, **more: str) -> SourceOptions:
    own = {"kafka_bootstrap_servers": cluster.bootstrap_servers, "kafka_group_id": cluster.group}
    return stream_options(subscribe=cluster.topic, **own | more)


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[AdminOffsets]:
    made = driver_client(options_for(cluster))
    yield made
    made.close()


def test_partitions_with_leaders(cluster: Cluster, driver: AdminOffsets) -> None:
    cluster.create(2)
    first, second = TopicPartition(cluster.topic, 0), TopicPartition(cluster.topic, 1)
    listing = driver.partitions(Subscription((cluster.topic,)))
    leaders = listing.leaders
    described = cluster.admin.describe_topics([cluster.topic])[cluster.topic]
    assert base64.urlsafe_b64decode(listing.ids[cluster.topic] + "==") == described.topic_id
    assert leaders.keys() == {first, second}
    assert None not in leaders.values()
    assert driver.partitions(Pattern(cluster.topic[:-1] + ".")) == listing
    assert driver.partitions(Pattern(cluster.topic + "x")).leaders == {}
    chosen = Partitions((second, TopicPartition(cluster.topic, 7)))
    assert driver.partitions(chosen).leaders == {second: leaders[second]}
    assert driver.partitions(Subscription((cluster.topic, "no-such-topic"))) == listing


def test_offsets(cluster: Cluster, driver: AdminOffsets) -> None:
    cluster.create(1)
    cluster.produce(range(10), timestamp=5_000)
    partition = TopicPartition(cluster.topic, 0)
    assert driver.log_starts([partition]) == {partition: 0}
    assert driver.log_ends([partition]) == {partition: 10}
    assert driver.log_ranges([partition]) == {partition: (0, 10)}
    assert driver.offsets_for_times({partition: 5_000}) == {partition: 0}
    assert driver.offsets_for_times({partition: 5_001}) == {partition: None}


def test_the_groups_offsets(cluster: Cluster, driver: AdminOffsets) -> None:
    cluster.create(2)
    first, second = TopicPartition(cluster.topic, 0), TopicPartition(cluster.topic, 1)
    assert driver.live_members() == 0  # of a group that nobody has used yet
    assert driver.committed([first, second]) == {first: None, second: None}
    driver.commit({first: 3}, {})
    assert driver.committers([first, second]) == {first: driver.run}
    cluster.admin.alter_consumer_group_offsets(cluster.group, {first: 3})
    assert driver.committers([first, second]) == {first: ""}
    assert driver.committed([first, second]) == {first: 3, second: None}
    assert driver.live_members() == 0
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=cluster.group) as member:
        member.subscribe([cluster.topic])
        while not member.assignment():
            member.poll(0.1)
        assert driver.live_members() == 1
        with pytest.raises(KafkaError):
            driver.commit({first: 4}, {})


def test_waiting_for_records_ends_with_the_first_one(cluster: Cluster, driver: AdminOffsets) -> None:
    cluster.create(3)
    cluster.produce(range(5), partition=1)
    ends = {TopicPartition(cluster.topic, number): 5 if number == 1 else 0 for number in range(3)}
    driver.wait_for_records(ends, 100)
    late = threading.Thread(target=lambda: cluster.produce(range(1), partition=2))
    late.start()
    driver.wait_for_records(ends, 600_000)
    late.join()
    # Those who know the new ends wait again.
    ends[TopicPartition(cluster.topic, 2)] = 1
    driver.wait_for_records(ends, 100)
    # An end that a log does not have is no reason to wait, nor to fail.
    driver.wait_for_records({TopicPartition(cluster.topic, 1): 77}, 600_000)


def test_a_sample_measures_keys_values_and_headers(cluster: Cluster, driver: AdminOffsets) -> None:
    cluster.create(2)
    first, second = TopicPartition(cluster.topic, 0), TopicPartition(cluster.topic, 1)
    cluster.produce(range(100, 150), partition=0, key=b"1234567", headers=[("h", b"x" * 90)])
    cluster.produce(range(100, 104), partition=1, key=b"k" * 600)
    ranges = {first: (10, 50), second: (0, 3)}
    found = driver.sample(ranges)
    assert {p: offsets for p, (_, offsets) in found.items()} == {first: 40, second: 3}
    assert 10 <= found[first][0] / 40 < 25  # and Arrow's own four or eight bytes a row
    assert 600 <= found[second][0] / 3 < 640
    with_headers = driver_client(options_for(cluster, includeHeaders="true"))
    try:
        size, offsets = with_headers.sample(ranges)[first]
        assert 100 <= size / offsets < 150
    finally:
        with_headers.close()


def test_a_sample_of_what_retention_has_deleted_is_no_failure(
    embedded: Broker, cluster: Cluster, driver: AdminOffsets
) -> None:
    cluster.create(1)
    cluster.produce(range(20))
    embedded.delete_records(cluster.topic, 0, 15)
    first = TopicPartition(cluster.topic, 0)
    assert driver.sample({first: (5, 20)}) == {}
    assert driver.sample({first: (15, 20)})[first][1] == 5


def test_a_reader_is_used_for_one_task_after_the_other(cluster: Cluster) -> None:
    cluster.create(2)
    cluster.produce(range(20), partition=0)
    cluster.produce(range(20, 30), partition=1)
    first, second = TopicPartition(cluster.topic, 0), TopicPartition(cluster.topic, 1)
    client = executor_client(options_for(cluster).client, "test", ("offset", "value"))
    try:
        client.start({first: (15, 20), second: (2, 10)})
        seen = 0
        while seen < 13:
            seen += client.poll(1000, PATIENCE).num_rows
        assert (client.position(first), client.position(second)) == (20, 10)
        assert client.log_range(first) == (0, 20)
        client.park()
        client.start({first: (18, 20)})
        table = client.poll(1, PATIENCE)
        assert table["offset"].to_pylist() == [18]
        client.park()  # though not all of it was read
        client.start({first: (19, 20)})
        assert client.poll(10, PATIENCE)["value"].to_pylist() == [b"19"]
        client.start({first: (500, 510)})
        with pytest.raises(OffsetOutOfRangeError):
            client.poll(10, PATIENCE)
    finally:
        client.close()


def test_a_reader_between_two_micro_batches_keeps_what_it_has_fetched(cluster: Cluster) -> None:
    """One batch of records, which the range of the first task cuts in two."""
    cluster.create(1)
    cluster.produce(range(20), partition=0)
    partition = TopicPartition(cluster.topic, 0)
    client = executor_client(options_for(cluster).client, "test", ("offset", "value"))
    try:
        seen: list[int] = []
        for start, end in ((0, 7), (7, 12), (12, 20)):
            client.start({partition: (start, end)})
            while client.position(partition) < end:
                seen += client.poll(1000, 1.0)["offset"].to_pylist()
            client.park()
        assert seen == list(range(20))
        fetched = client._consumer._shared_state.measures.fetches.records.total
        assert fetched == 20, "none was fetched twice"
    finally:
        client.close()


def test_client_settings_reach_the_clients(cluster: Cluster) -> None:
    cluster.create(1)
    options = options_for(cluster, kafka_client_id="mine", kafka_max_partition_fetch_bytes="1000")
    driver = driver_client(options)
    assert "mine" in repr(driver._admin)
    driver.close()
    client = executor_client(options.client, "other", ("offset",))
    assert "mine" in repr(client._consumer)
    client.close()


def look(client: AdminOffsets) -> None:
    """For as long as this machine needs to connect."""
    for seconds in (0.3, 1.0, 5.0, PATIENCE):
        client.check_reachable(seconds)


def test_only_brokers_that_cannot_be_connected_to_are_out_of_reach(
    embedded: Broker, cluster: Cluster, driver: AdminOffsets
) -> None:
    driver.check_reachable(PATIENCE)
    with embedded.faults.drop(MetadataRequest):
        driver.check_reachable(0.2)  # whoever asks it next may be patient
    away = driver_client(options_for(cluster, kafka_bootstrap_servers="127.0.0.1:1"))
    try:
        with pytest.raises(KafkaTimeoutError, match="cannot connect to"):
            look(away)
    finally:
        away.close()


def test_a_broker_that_wants_a_login_is_out_of_reach(kadence_new_broker: Brokers, cluster: Cluster) -> None:
    locked = kadence_new_broker(users={"alice": "hidden"})
    client = driver_client(options_for(cluster, kafka_bootstrap_servers=locked.bootstrap_servers))
    try:
        with pytest.raises(KafkaTimeoutError, match="does this listener require a login"):
            look(client)
    finally:
        client.close()


def test_how_long_an_answer_is_waited_for_once_brokers_have_answered(
    embedded: Broker, cluster: Cluster
) -> None:
    """A running stream is to notice silence; who plans a batch has only this one try."""
    cluster.create(1)
    partition = TopicPartition(cluster.topic, 0)
    stream = driver_client(options_for(cluster), answer_seconds=0.2)
    batch = driver_client(options_for(cluster), answer_seconds=None)
    try:
        for each in (stream, batch):
            each.partitions(Partitions((partition,)))
        with embedded.faults.delay(ListOffsetsRequest, 1.0):
            with pytest.raises(KafkaTimeoutError):
                stream.log_ranges([partition])
            assert batch.log_ranges([partition]) == {partition: (0, 0)}
    finally:
        stream.close()
        batch.close()


def test_a_dead_cluster_is_an_error_with_its_address() -> None:
    options = stream_options(kafka_bootstrap_servers="127.0.0.1:1", kafka_default_api_timeout_ms="300")
    driver = driver_client(options)
    try:
        with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1") as caught:
            driver.log_ends([TopicPartition("t", 0)])
        assert not isinstance(caught.value, BrokerError)
    finally:
        driver.close()
