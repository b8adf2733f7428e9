"""The admin client over real sockets: the embedded broker, and the same against real Apache Kafka; see conftest.py."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from tests.hostile.proxy import Answer, lying_proxy
from tests.patience import PATIENCE, once_inside, overdue, until

from kadence.admin import Acl, AclFilter, Admin, ConfigChange, ConfigEntry, ConfigResource, NewTopic
from kadence.admin.leaders import Leaders
from kadence.admin.transactions import end_transactions
from kadence.consumer.consumer import Consumer
from kadence.errors import (
    BrokerError,
    ClosedError,
    ConfigError,
    GroupAuthorizationError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kadence.producer import Producer
from kadence.producer.handing_over import begin_as, leave_open
from kadence.protocol import error_codes as ec
from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.create_partitions import CreatePartitionsRequest
from kadence.protocol.create_topics import CreateTopicsRequest
from kadence.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kadence.protocol.delete_topics import DeleteTopicsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.describe_log_dirs import DescribeLogDirsRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.list_offsets import ListOffsetsRequest
from kadence.protocol.metadata import MetadataRequest, MetadataResponse
from kadence.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kadence.types import OffsetAndMetadata, OpenTransaction, TopicPartition
from kadence_broker import Broker
from kadence_testing.kafka import Kafka


@pytest.fixture
def flaky() -> Iterator[tuple[Broker, Admin]]:
    """An embedded broker to inject faults into, and an impatient client."""
    with (
        Broker() as broker,
        Admin(
            bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1, retry_backoff_max_ms=5
        ) as admin,
    ):
        yield broker, admin


def calling(call: Callable[[], Any]) -> Future[Any]:
    """The outcome of a call that another thread makes."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except KafkaError as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def with_time(call: Callable[[float], Any], is_enough: Callable[[Any], bool]) -> Any:
    """What a call returns within 2 s; on a busy machine it is given more until that is enough."""
    for seconds in (2.0, 8.0, 32.0):
        found = call(seconds)
        if is_enough(found):
            break
    return found


def fill(servers: str, topic: str, count: int, partition: int = 0) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=partition, timestamp=1000 + n)


# ---------------------------------------------------------------- transactions


def test_transactions_are_listed_described_fenced_and_ended_by_others(
    admin: Admin, servers: str, name: str
) -> None:
    """As Spark's tasks write them: by one producer under many names, and left open."""
    admin.create_topics({name: 2})
    until(lambda: name in admin.list_topics(), what="the topic is known")
    started: dict[str, OpenTransaction] = {}
    with Producer(bootstrap_servers=servers, transactional_id=name) as producer:
        for task in "abcd":
            begin_as(producer, f"{name}-{task}")
            producer.send(name, task.encode(), partition=0).result(PATIENCE)
            left = leave_open(producer)
            assert left is not None
            started[task] = left
        begin_as(producer, f"{name}-idle")
        assert leave_open(producer) is None
    ours = {left.transactional_id: left.producer_id for left in started.values()}
    listed = {each.transactional_id: each for each in admin.list_transactions(states=["Ongoing"])}
    assert {each: listed[each].producer_id for each in ours} == ours
    assert f"{name}-idle" not in listed
    ids = [started[task].producer_id for task in "ab"]
    assert {each.transactional_id for each in admin.list_transactions(producer_ids=ids)} == {
        f"{name}-{task}" for task in "ab"
    }
    described = admin.describe_transactions(list(ours))
    for each, found in described.items():
        assert (found.state, found.producer_id) == ("Ongoing", ours[each])
        assert found.partitions == {TopicPartition(name, 0)}
        assert found.started_ms is not None
        assert found.coordinator == listed[each].coordinator
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        admin.describe_transactions("nobody")

    def ended(tasks: str, *, committed: bool) -> dict[str, str]:
        wanted = [started[task] for task in tasks]
        outcomes = admin._shell.run(None, end_transactions, wanted, committed=committed)
        return {each: getattr(error, "name", "") for each, error in outcomes.errors.items()}

    fenced = admin.fence_producers(f"{name}-d")
    assert fenced[f"{name}-d"].epoch > started["d"].epoch
    assert ended("ab", committed=True) == {}
    assert ended("c", committed=False) == {}
    assert ended("ab", committed=True) == {}, "an answer may have been lost"
    assert ended("c", committed=True) == {f"{name}-c": "INVALID_TXN_STATE"}
    assert ended("d", committed=True) == {f"{name}-d": "PRODUCER_FENCED"}
    until(
        lambda: (
            {admin.describe_transactions(each)[each].state for each in ours}
            == {"CompleteCommit", "CompleteAbort", "Empty"}
        ),
        what="all have ended",
    )
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as reader:
        reader.assign([TopicPartition(name, 0)])
        reader.seek_to_beginning()
        end = reader.end_offsets([TopicPartition(name, 0)])[TopicPartition(name, 0)]
        seen: list[bytes] = []
        while reader.position(TopicPartition(name, 0)) < end:
            seen += [record.value for record in reader.poll(PATIENCE) if record.value is not None]
    assert seen == [b"a", b"b"]


def test_states_that_transactions_do_not_have(admin: Admin) -> None:
    with pytest.raises(ValueError, match=r"one of the states Empty, Ongoing, .*, not 'Open'"):
        admin.list_transactions(states=["Open"])


@pytest.mark.parametrize("code", [ec.NOT_COORDINATOR, ec.CONCURRENT_TRANSACTIONS])
def test_the_coordinator_of_a_transaction_moves(flaky: tuple[Broker, Admin], code: int) -> None:
    broker, admin = flaky
    admin.fence_producers("x")
    with (
        broker.faults.error(InitProducerIdRequest, code, times=1),
        broker.faults.observe(InitProducerIdRequest) as asked,
    ):
        assert admin.fence_producers("x")["x"].epoch >= 1
    assert len(asked) == 2


# ---------------------------------------------------------------- topics


def test_topics_come_and_go(admin: Admin, name: str) -> None:
    made = admin.create_topics([NewTopic(name, 3, 1, {"retention.ms": "1234567"}), NewTopic(name + "-2", 1)])
    assert made[name].partitions == 3
    assert made[name].replication_factor == 1
    described = admin.describe_topics([name])[name]
    assert [p.partition for p in described.partitions] == [0, 1, 2]
    assert all(p.leader is not None for p in described.partitions)
    assert described.topic_id != bytes(16)
    assert {name, name + "-2"} <= admin.list_topics().keys()
    assert admin.create_partitions({name: 5}) == {name: 5}
    assert set(admin.delete_topics([name, name + "-2"])) == {name, name + "-2"}


def test_only_looking(admin: Admin, name: str) -> None:
    admin.create_topics({name: 2}, validate_only=True)
    assert name not in admin.list_topics()


def test_each_topic_has_its_own_error(admin: Admin, name: str) -> None:
    admin.create_topics({name: 1})
    outcomes = admin.create_topics({name: 1, name + "-new": 1, "not/a/name": 1}, raise_errors=False)
    assert list(outcomes) == [name + "-new"]
    assert isinstance(outcomes.errors[name], TopicAlreadyExistsError)
    assert isinstance(outcomes.errors["not/a/name"], InvalidTopicError)
    with pytest.raises(TopicAlreadyExistsError, match=f"topic '{name}'") as caught:
        admin.create_topics({name: 1, "not/a/name": 1})
    assert "not/a/name" in caught.value.__notes__[0]
    with pytest.raises(BrokerError, match=name):
        admin.create_partitions({name: 1})
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere'"):
        admin.delete_topics(["nowhere"])
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere'"):
        admin.describe_topics(["nowhere"])
    assert list(admin.describe_topics(name)) == [name], "one name is no list of letters"
    with pytest.raises(TypeError, match="partitions are wanted"):
        admin.log_ranges(name)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a partition is TopicPartition"):
        admin.list_offsets({name: "latest"})  # type: ignore[type-var]
    assert admin.log_ranges(TopicPartition(name, 0)) == admin.log_ranges([(name, 0)])


def test_configs_and_cluster(admin: Admin, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, configs={"retention.ms": "1234567"})])
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller in cluster.nodes
    topic = ConfigResource("topic", name)
    broker = ConfigResource("broker", str(cluster.nodes[0].node_id))
    configs = admin.describe_configs([topic, broker])
    assert configs[topic]["retention.ms"].value == "1234567"
    assert not configs[topic]["retention.ms"].is_default
    assert len(configs[broker]) > 3
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_configs([ConfigResource("topic", "nowhere")])


# ---------------------------------------------------------------- offsets


def test_offsets_of_partitions(admin: Admin, servers: str, name: str) -> None:
    admin.create_topics({name: 2})
    fill(servers, name, 10)
    full, empty = TopicPartition(name, 0), TopicPartition(name, 1)
    assert {
        tp: o.offset for tp, o in admin.list_offsets({full: "earliest", empty: "latest"}).items() if o
    } == {
        full: 0,
        empty: 0,
    }
    latest = admin.list_offsets({full: "latest"}, isolation_level="read_committed")[full]
    assert latest is not None
    assert latest.offset == 10
    by_time = admin.list_offsets({full: 1004, empty: 1004})
    assert by_time[empty] is None
    found = by_time[full]
    assert found is not None
    assert (found.offset, found.timestamp) == (4, 1004)
    greatest = admin.list_offsets({full: "max_timestamp"})[full]
    assert greatest is not None
    assert (greatest.offset, greatest.timestamp) == (9, 1009)
    assert admin.list_offsets({full: 5000}) == {full: None}
    outcomes = admin.list_offsets(
        {TopicPartition(name, 7): "latest", full: "latest"}, raise_errors=False, timeout=20
    )
    assert list(outcomes) == [full]
    assert "has 2 partitions" in str(outcomes.errors[TopicPartition(name, 7)])
    with pytest.raises(ValueError, match="not 'newest'"):
        admin.list_offsets({full: "newest"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="isolation_level"):
        admin.list_offsets({full: "latest"}, isolation_level="serializable")


def test_offsets_of_groups(admin: Admin, servers: str, name: str) -> None:
    admin.create_topics({name: 3})
    a, b, c = (TopicPartition(name, n) for n in range(3))
    fill(servers, name, 10)
    assert admin.list_consumer_group_offsets(name) == {}
    admin.alter_consumer_group_offsets(name, {a: 5, b: OffsetAndMetadata(0, 0, "note")})
    assert admin.list_consumer_group_offsets(name)[a].offset == 5
    assert admin.list_consumer_group_offsets(name)[b].metadata == "note"
    assert admin.list_consumer_group_offsets(name, [b, c], require_stable=True).keys() == {b}
    assert admin.describe_consumer_groups([name])[name].state == "Empty"
    assert name in [group.group_id for group in admin.list_groups()]
    admin.delete_consumer_group_offsets(name, [a])
    assert admin.list_consumer_group_offsets(name).keys() == {b}
    assert admin.delete_consumer_groups([name]) == {name: None}
    assert admin.list_consumer_group_offsets(name) == {}
    outcomes = admin.alter_consumer_group_offsets(name, {TopicPartition("nowhere", 0): 1}, raise_errors=False)
    assert isinstance(outcomes.errors[TopicPartition("nowhere", 0)], UnknownTopicOrPartitionError)


def test_offsets_of_many_groups(admin: Admin, name: str) -> None:
    admin.create_topics({name: 2})
    a, b = TopicPartition(name, 0), TopicPartition(name, 1)
    first, second, nobody = (f"{name}-{n}" for n in range(3))
    admin.alter_consumer_group_offsets(first, {a: 0, b: OffsetAndMetadata(0, None, "note")})
    admin.alter_consumer_group_offsets(second, {b: 0})
    assert admin.list_offsets_of_groups([second, nobody, first], require_stable=True) == {
        second: {b: OffsetAndMetadata(0)},
        nobody: {},
        first: {a: OffsetAndMetadata(0), b: OffsetAndMetadata(0, None, "note")},
    }
    assert admin.list_offsets_of_groups(first) == {first: admin.list_consumer_group_offsets(first)}


@pytest.mark.parametrize(("newest", "requests"), [(10, 2), (8, 2), (7, 4), (2, 4)])
def test_kip709_a_coordinator_is_asked_for_the_offsets_of_all_its_groups_at_once_where_brokers_can(
    newest: int, requests: int
) -> None:
    groups = ["a", "b", "c", "d"]
    # By their names "a" and "c" are coordinated by one of the two nodes, "b" and "d" by the other.
    with Broker(nodes=2) as broker, broker.faults.limit(OffsetFetchRequest, newest):
        broker.create_topic("t", 1)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for offset, group in enumerate(groups):
                admin.alter_consumer_group_offsets(group, {TopicPartition("t", 0): offset})
            with broker.faults.observe(OffsetFetchRequest) as asked:
                found = admin.list_offsets_of_groups(groups)
            assert [found[group][TopicPartition("t", 0)].offset for group in groups] == [0, 1, 2, 3]
            assert len(asked) == requests


def test_the_error_of_a_group_fails_that_group_only() -> None:
    """GROUP_AUTHORIZATION_FAILED stays; NOT_COORDINATOR is asked again, for its group alone."""
    moved = iter([ec.NOT_COORDINATOR])
    asked: list[list[str]] = []

    def refuse(answer: Answer) -> bytes:
        if isinstance(answer.response, OffsetFetchResponse):
            asked.append(sorted(each.group_id for each in answer.response.groups))
            for each in answer.response.groups:
                if each.group_id == "secret":
                    each.error_code, each.topics = ec.GROUP_AUTHORIZATION_FAILED, []
                elif each.group_id == "moved":
                    each.error_code = next(moved, ec.NONE)
        return answer.encoded()

    groups = ["mine", "secret", "moved"]
    with (
        Broker() as broker,
        lying_proxy(broker, refuse) as servers,
        Admin(bootstrap_servers=servers, retry_backoff_ms=1) as admin,
    ):
        found = admin.list_offsets_of_groups(groups, raise_errors=False)
        assert found == {"mine": {}, "moved": {}}
        assert asked == [["mine", "moved", "secret"], ["moved"]]
        assert isinstance(found.errors["secret"], GroupAuthorizationError)
        assert "group 'secret'" in str(found.errors["secret"])
        with pytest.raises(GroupAuthorizationError, match="group 'secret'"):
            admin.list_consumer_group_offsets("secret")


def test_offsets_of_a_topic_made_anew_are_refused_where_its_id_is_given(admin: Admin, name: str) -> None:
    partition = TopicPartition(name, 0)
    admin.create_topics({name: 1})
    old = admin.describe_topics([name])[name].topic_id
    admin.delete_topics([name])
    admin.create_topics({name: 1})
    outcomes = admin.alter_consumer_group_offsets(
        name, {partition: 0}, topic_ids={name: old}, raise_errors=False
    )
    assert getattr(outcomes.errors[partition], "code", None) == ec.UNKNOWN_TOPIC_ID
    now = admin.describe_topics([name])[name].topic_id
    admin.alter_consumer_group_offsets(name, {partition: 0}, topic_ids={name: now})
    assert admin.list_consumer_group_offsets(name)[partition].offset == 0


# ---------------------------------------------------------------- groups


def test_a_group_with_a_member(admin: Admin, servers: str, name: str) -> None:
    from confluent_kafka import Consumer as Theirs

    admin.create_topics({name: 2})
    member = Theirs({"bootstrap.servers": servers, "group.id": name, "client.id": "them"})
    try:
        member.subscribe([name])
        while not member.assignment():
            member.poll(0.1)
        group = admin.describe_consumer_groups([name])[name]
        assert (group.state, group.group_type, group.protocol_type) == ("Stable", "classic", "consumer")
        (described,) = group.members
        assert described.client_id == "them"
        assert described.assignment == {TopicPartition(name, 0), TopicPartition(name, 1)}
        with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([name])
        with pytest.raises(BrokerError, match="live members; stop its consumers first"):
            admin.alter_consumer_group_offsets(name, {TopicPartition(name, 0): 0})
        with pytest.raises(BrokerError, match="GROUP_SUBSCRIBED_TO_TOPIC"):
            admin.delete_consumer_group_offsets(name, [TopicPartition(name, 0)])
    finally:
        member.close()


def test_a_group_that_does_not_exist(admin: Admin) -> None:
    with pytest.raises(BrokerError, match=r"GROUP_ID_NOT_FOUND.*'nobody'"):
        admin.describe_consumer_groups(["nobody"])
    with pytest.raises(BrokerError, match=r"GROUP_ID_NOT_FOUND.*'nobody'"):
        admin.delete_consumer_groups(["nobody"])


def test_a_group_that_was_not_deleted_tells_the_brokers_reason(broker: Broker) -> None:
    """DeleteGroups 3."""
    answer = DeleteGroupsResponse(
        results=[DeletableGroupResult("g", ec.GROUP_DELETION_FAILED, "the plugin keeps it")]
    )
    with (
        broker.faults.respond(DeleteGroupsRequest, lambda call: answer),
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        pytest.raises(BrokerError, match=r"GROUP_DELETION_FAILED.*group 'g': the plugin keeps it"),
    ):
        admin.delete_consumer_groups(["g"])


@pytest.mark.parametrize(("newest", "look_ups"), [(6, 1), (4, 1), (3, 2), (0, 2)])
def test_the_coordinators_of_many_groups_are_looked_up_at_once_where_brokers_can(
    newest: int, look_ups: int
) -> None:
    partition = TopicPartition("t", 0)
    with Broker(nodes=3) as broker, broker.faults.limit(FindCoordinatorRequest, newest):
        broker.create_topic("t", 1)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for group in ("a", "b"):
                admin.alter_consumer_group_offsets(group, {partition: 3})
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            with broker.faults.observe(FindCoordinatorRequest) as asked:
                found = admin.describe_consumer_groups(["a", "b"])
                assert len(asked) == look_ups
                admin.describe_consumer_groups(["b", "a"])
                admin.list_consumer_group_offsets("a")
            assert {group: each.state for group, each in found.items()} == {"a": "Empty", "b": "Empty"}
            assert len(asked) == look_ups, "they are kept"


def test_a_new_kind_of_group(kafka: Any) -> None:
    """KIP-848 groups are described with their own API."""
    from confluent_kafka import Consumer as Theirs

    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({"admin-848": 2})
        member = Theirs(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "admin-848",
                "group.protocol": "consumer",
            }
        )
        try:
            member.subscribe(["admin-848"])
            while not member.assignment():
                member.poll(0.1)
            group = admin.describe_consumer_groups(["admin-848"])["admin-848"]
            assert (group.state, group.group_type, group.assignor) == ("Stable", "consumer", "uniform")
            assert group.members[0].assignment == {
                TopicPartition("admin-848", 0),
                TopicPartition("admin-848", 1),
            }
            listed = {listing.group_id: listing.group_type for listing in admin.list_groups()}
            assert listed["admin-848"] == "consumer"
        finally:
            member.close()


# ---------------------------------------------------------------- what may pass


def test_a_controller_that_moved(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    with broker.faults.error(CreateTopicsRequest, ec.NOT_CONTROLLER, times=3) as fault:
        admin.create_topics({"t": 1})
    assert fault.hits == 3


CREATED = NewTopic("t", 2, 1, {"retention.ms": 60_000, "unclean.leader.election.enable": True})


@pytest.mark.parametrize("lost", ["once", "twice"])
def test_changes_whose_answers_are_lost_are_done(flaky: tuple[Broker, Admin], lost: str) -> None:
    broker, admin = flaky
    times = 1 if lost == "once" else 2
    with broker.faults.disconnect(CreateTopicsRequest, served=True, times=times) as fault:
        made = admin.create_topics([CREATED, NewTopic("u", 1)])
        assert list(made) == ["t", "u"]
        assert (made["t"].partitions, made["t"].replication_factor) == (2, 1)
        assert fault.hits == times
    with broker.faults.disconnect(CreatePartitionsRequest, served=True, times=times):
        assert admin.create_partitions({"t": 3}) == {"t": 3}
    with broker.faults.disconnect(DeleteTopicsRequest, served=True, times=times):
        assert list(admin.delete_topics(["u", "t"])) == ["u", "t"]
    assert admin.list_topics() == {}


@pytest.mark.parametrize("times", [1, 2])
def test_groups_whose_deletion_was_not_answered_are_deleted(flaky: tuple[Broker, Admin], times: int) -> None:
    broker, admin = flaky
    admin.create_topics({"t": 1})
    for name in ("g", "h"):
        admin.alter_consumer_group_offsets(name, {TopicPartition("t", 0): 0})
    with broker.faults.disconnect(DeleteGroupsRequest, served=True, times=times) as fault:
        assert list(admin.delete_consumer_groups(["h", "g"])) == ["h", "g"]
        assert fault.hits == times
    assert admin.list_groups() == []
    # Without a request that may have done it, it is an error.
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups("g")


@pytest.mark.parametrize("frozen", [ConsumerGroupDescribeRequest, DescribeGroupsRequest])
def test_a_coordinator_that_stands_still_takes_no_other_group(frozen: type[Any]) -> None:
    """Also where the call's time is shorter than the request's: a second step would have no time left."""
    names = [f"g{number}" for number in range(6)]
    with Broker(nodes=3) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({"t": 1})
        for number, name in enumerate(names):
            broker.move_coordinator(name, 1 + number % 3)
            admin.alter_consumer_group_offsets(name, {TopicPartition("t", 0): 0})
        of_2 = {name for number, name in enumerate(names) if 1 + number % 3 == 2}
        with broker.faults.drop(frozen, node_id=2):
            found = with_time(
                lambda seconds: admin.describe_consumer_groups(names, timeout=seconds, raise_errors=False),
                lambda found: found.errors.keys() == of_2,
            )
        assert found.errors.keys() == of_2
        assert found.keys() == set(names) - of_2
        assert all(
            f"{frozen.__name__.removesuffix('Request')} was not answered" in str(e)
            for e in found.errors.values()
        )
        assert all("broker 2" in str(error) for error in found.errors.values())


@pytest.mark.parametrize("newest", [9, 7])
def test_a_coordinator_that_stands_still_takes_the_offsets_of_no_other_group(newest: int) -> None:
    """Of the frozen one it is not even known that it is as old as the others, which are asked for each group then."""
    names = [f"g{number}" for number in range(6)]
    with Broker(nodes=3) as broker, broker.faults.limit(OffsetFetchRequest, newest):
        broker.create_topic("t", 1)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for number, name in enumerate(names):
                broker.move_coordinator(name, 1 + number % 3)
                admin.alter_consumer_group_offsets(name, {TopicPartition("t", 0): 0})
        of_2 = {name for number, name in enumerate(names) if 1 + number % 3 == 2}
        first = broker.bootstrap_servers.split(",")[0]
        with Admin(bootstrap_servers=first) as admin, broker.faults.freeze(2):
            found = with_time(
                lambda seconds: admin.list_offsets_of_groups(names, timeout=seconds, raise_errors=False),
                lambda found: found.errors.keys() == of_2,
            )
        assert found == {name: {TopicPartition("t", 0): OffsetAndMetadata(0)} for name in set(names) - of_2}
        assert found.errors.keys() == of_2
        assert all("broker 2" in str(error) for error in found.errors.values())


@pytest.mark.parametrize(
    ("there", "wanted", "but"),
    [
        (NewTopic("t", 1), NewTopic("t", 3), "but it has 1 partitions and not 3"),
        (CREATED, NewTopic("t", configs={"retention.ms": 1}), "but its retention.ms is 60000 and not 1"),
    ],
)
def test_a_topic_that_is_not_as_asked_for_is_no_success_of_a_call_whose_answer_was_lost(
    flaky: tuple[Broker, Admin], there: NewTopic, wanted: NewTopic, but: str
) -> None:
    broker, admin = flaky
    admin.create_topics(there)
    with (
        broker.faults.disconnect(CreateTopicsRequest, times=1),
        pytest.raises(TopicAlreadyExistsError) as raised,
    ):
        admin.create_topics(wanted)
    [note] = raised.value.__notes__
    assert "an earlier request of this call was not answered" in note
    assert but in note


def test_a_topic_that_somebody_grew_further_is_no_success_either(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    admin.create_topics({"t": 5})
    with (
        broker.faults.disconnect(CreatePartitionsRequest, times=1),
        pytest.raises(BrokerError, match="INVALID_PARTITIONS") as raised,
    ):
        admin.create_partitions({"t": 3})
    assert "but it has 5 partitions and not 3" in raised.value.__notes__[0]


def test_a_controller_that_has_begun_may_have_ended(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    admin.create_topics({"t": 1})
    with broker.faults.error(CreateTopicsRequest, ec.REQUEST_TIMED_OUT, times=1):
        assert list(admin.create_topics({"t": 1})) == ["t"]


def test_a_change_that_was_refused_before_has_not_been_made_by_it(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    admin.create_topics({"t": 1})
    with (
        broker.faults.error(CreateTopicsRequest, ec.NOT_CONTROLLER, times=1),
        pytest.raises(TopicAlreadyExistsError) as raised,
    ):
        admin.create_topics({"t": 1})
    assert not hasattr(raised.value, "__notes__")


def test_settings_of_a_new_topic_may_be_numbers(admin: Admin, name: str) -> None:
    settings = {"retention.ms": 1234567, "unclean.leader.election.enable": True}
    admin.create_topics(NewTopic(name, 1, configs=settings))
    topic = ConfigResource("topic", name)
    found = admin.describe_configs(topic)[topic]
    assert [found[each].value for each in settings] == ["1234567", "true"]


@pytest.mark.parametrize(
    ("request_type", "code"),
    [
        (FindCoordinatorRequest, ec.COORDINATOR_NOT_AVAILABLE),
        (OffsetFetchRequest, ec.NOT_COORDINATOR),
        (OffsetFetchRequest, ec.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_coordinator_that_moved(flaky: tuple[Broker, Admin], request_type: type, code: int) -> None:
    broker, admin = flaky
    with broker.faults.error(request_type, code, times=3) as fault:
        assert admin.list_consumer_group_offsets("g") == {}
    assert fault.hits == 3


def test_a_broker_that_knows_of_no_broker_yet_is_asked_again() -> None:
    """As one that was just started: believed, it would have no topic, and the client no broker."""
    answered: list[bool] = []

    def empty_twice(answer: Answer) -> bytes:
        if isinstance(answer.response, MetadataResponse) and answer.response.topics:
            answered.append(len(answered) < 2)
            if answered[-1]:
                answer.response.brokers, answer.response.topics = [], []
        return answer.encoded()

    with Broker() as broker, lying_proxy(broker, empty_twice) as servers:
        broker.create_topic("t", 1)
        with Admin(bootstrap_servers=servers, retry_backoff_ms=1) as admin:
            assert set(admin.describe_topics(["t"])) == {"t"}
    assert answered == [True, True, False]


def test_a_connection_that_breaks(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    with broker.faults.disconnect(ListGroupsRequest, times=2) as fault:
        assert admin.list_groups() == []
    assert fault.hits == 2


def test_the_deadline_names_the_last_error(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    with broker.faults.error(CreateTopicsRequest, ec.NOT_CONTROLLER):
        overdue(
            # A request that was given up may still be done, so nothing else creates this topic.
            lambda seconds: admin.create_topics({"late": 1}, timeout=seconds),
            KafkaTimeoutError,
            match="late: not done in time; last error: NOT_CONTROLLER",
        )
    with broker.faults.error(DescribeGroupsRequest, ec.COORDINATOR_NOT_AVAILABLE):
        overdue(
            # Strangers choose such an id, and whoever asks for all groups hands it on.
            lambda seconds: admin.describe_consumer_groups(["g\n\x1b"], timeout=seconds),
            KafkaTimeoutError,
            match=r"g\\x0a\\x1b: not done in time",
        )
    partition = TopicPartition("t", 0)
    broker.create_topic("t", 1)
    with broker.faults.error(ListOffsetsRequest, ec.NOT_LEADER_OR_FOLLOWER):
        overdue(
            lambda seconds: admin.log_ranges(partition, timeout=seconds)[partition],
            KafkaTimeoutError,
            match="^the earliest offset of t-0: not done in time; last error: NOT_LEADER_OR_FOLLOWER",
        )
        overdue(
            lambda seconds: admin.list_offsets({partition: 1004}, timeout=seconds)[partition],
            KafkaTimeoutError,
            match="^the offset of t-0 at time 1004: not done in time",
        )


def test_the_deadline_names_the_request_without_an_answer() -> None:
    with Broker(topics={"t": 1}) as broker:

        def asked(call: Callable[[Admin, float], Any]) -> Callable[[float], Any]:
            """By a client of its own each time: what another call has waited for in vain costs it the connection."""

            def ask(seconds: float) -> Any:
                with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                    return call(admin, seconds)

            return ask

        with broker.faults.drop(ListOffsetsRequest):
            overdue(
                asked(lambda admin, seconds: admin.list_offsets({("t", 0): "latest"}, timeout=seconds)),
                KafkaTimeoutError,
                match=r"ListOffsets was not answered in time by broker \d+ \(127\.0\.0\.1:\d+\)$",
            )
        with broker.faults.drop(MetadataRequest):
            overdue(
                asked(lambda admin, seconds: admin.list_topics(timeout=seconds)),
                KafkaTimeoutError,
                match="Metadata was not answered in time",
            )


def test_kip1102_the_bootstrap_addresses_are_asked_again_when_no_broker_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The longest backoff is also the pause between two of these.
    backoff = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 1}
    settings = {"request_timeout_ms": 50, "metadata_recovery_rebootstrap_trigger_ms": 10, **backoff}
    with Broker() as broker:
        with Admin({"bootstrap.servers": broker.bootstrap_servers, **settings}) as admin:
            assert admin.describe_cluster().nodes
            with broker.faults.drop(MetadataRequest, times=1):
                assert admin.list_topics() == {}
            assert "asking bootstrap.servers for the brokers again" in caplog.text
        caplog.clear()
        # With time for the answer: one that comes too late says nothing.
        with Admin({"bootstrap.servers": broker.bootstrap_servers, **backoff}) as admin:
            assert admin.describe_cluster().nodes
            with broker.faults.error(MetadataRequest, ec.REBOOTSTRAP_REQUIRED, times=1):
                assert admin.list_topics() == {}
        assert "a broker said so: asking bootstrap.servers" in caplog.text


def test_kip899_strategy_none_never_does() -> None:
    with (
        Broker() as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers, metadata_recovery_strategy="none") as admin,
        broker.faults.error(MetadataRequest, ec.REBOOTSTRAP_REQUIRED, times=1),
        pytest.raises(BrokerError, match="REBOOTSTRAP_REQUIRED"),
    ):
        admin.list_topics()


def test_leaders_are_remembered_for_metadata_max_age() -> None:
    leaders = Leaders(1_000)
    leaders.at(50).coordinators["g"] = 1
    assert leaders.at(1_049).coordinators == {"g": 1}
    assert leaders.at(1_050).coordinators == {}
    leaders.at(1_100).coordinators["g"] = 2
    kept = leaders.at(1_200).coordinators
    leaders.forget()
    assert (kept, leaders.at(1_200).coordinators) == ({"g": 2}, {}), "who reads it keeps it"


def test_nobody_there() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        overdue(
            lambda seconds: admin.list_topics(timeout=seconds),
            KafkaTimeoutError,
            match=r"127\.0\.0\.1:1.*[Cc]onnection refused",
        )


def test_calls_of_many_threads_do_not_wait_for_each_other(flaky: tuple[Broker, Admin]) -> None:
    _, admin = flaky
    threads = [threading.Thread(target=lambda n=n: admin.create_topics({f"t{n}": 1})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admin.list_topics()) == 8


def test_a_call_is_done_while_another_threads_call_is_repeated(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    with broker.faults.error(CreateTopicsRequest, ec.NOT_CONTROLLER) as fault:
        slow = calling(lambda: admin.create_topics({"t": 1}, timeout=3600))
        until(lambda: fault.hits >= 2)
        probe = calling(admin.list_topics)
        assert probe.result(PATIENCE) == {}
        assert not slow.done()
    assert list(slow.result(PATIENCE)) == ["t"]


def test_a_call_keeps_its_time_beside_one_that_waits_for_an_answer(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    with broker.faults.drop(CreateTopicsRequest) as dropped:
        slow = calling(lambda: admin.create_topics({"t": 1}, timeout=3600))
        dropped.wait()
        probe = calling(lambda: admin.list_topics(timeout=0.1))
        assert isinstance(probe.exception(PATIENCE), KafkaTimeoutError), "it waits behind the other request"
        assert not slow.done()
        admin.close()
        assert isinstance(slow.exception(PATIENCE), ClosedError)


def test_calls_do_not_wait_for_a_frozen_broker_that_has_the_only_connection() -> None:
    with Broker(nodes=3) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with broker.faults.observe(MetadataRequest) as asked:
            admin.list_topics()
        frozen = asked.calls[0].node_id
        with broker.faults.freeze(frozen):
            stuck = calling(lambda: admin.list_topics(timeout=3600))
            until(lambda: calling(lambda: admin.list_topics(timeout=1)).exception(PATIENCE) is None)
            assert not stuck.done()
        assert stuck.result(PATIENCE) == {}


def test_thirty_calls_keep_their_times_beside_a_silent_broker() -> None:
    with (
        Broker(nodes=3) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        broker.faults.drop(DescribeLogDirsRequest, node_id=2) as dropped,
    ):
        silent = [calling(lambda: admin.describe_log_dirs(2, timeout=3600)) for _ in range(10)]
        dropped.wait()
        late = [calling(lambda: admin.describe_log_dirs(2, timeout=0.1)) for _ in range(10)]
        well = [calling(lambda: admin.describe_log_dirs(1)) for _ in range(10)]
        assert all(isinstance(each.exception(PATIENCE), KafkaTimeoutError) for each in late)
        assert all(each.result(PATIENCE).keys() == {1} for each in well)
        assert not any(each.done() for each in silent)
        admin.close()
        assert all(isinstance(each.exception(PATIENCE), ClosedError) for each in silent)


def test_an_answer_comes_to_its_call_after_the_call_that_asked_first_has_given_up(
    flaky: tuple[Broker, Admin],
) -> None:
    broker, admin = flaky
    admin.list_topics()
    with broker.faults.freeze():
        second = calling(lambda: admin.list_groups(timeout=3600))
        first = calling(lambda: admin.list_topics(timeout=0.1))
        assert isinstance(first.exception(PATIENCE), KafkaTimeoutError)
        assert not second.done()
    assert second.result(PATIENCE) == []


def test_a_signal_handler_may_make_a_call_during_another_one_and_close_the_client() -> None:
    made: list[object] = []
    with (
        Broker(nodes=3) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        broker.faults.drop(DescribeLogDirsRequest, node_id=2) as dropped,
    ):

        def handler(*_: object) -> None:
            made.append(admin.describe_log_dirs(1).keys())
            if len(made) == 2:
                admin.close()

        def ring() -> None:
            for count in (1, 2):
                dropped.wait()
                os.kill(os.getpid(), signal.SIGUSR1)
                until(partial(lambda count: len(made) == count, count))

        before = signal.signal(signal.SIGUSR1, handler)
        ringing = threading.Thread(target=ring)
        try:
            ringing.start()
            with pytest.raises(ClosedError, match="closed during the call"):
                admin.describe_log_dirs(2, timeout=3600)
            ringing.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert made == [{1}, {1}]


def test_an_exception_of_a_signal_handler_ends_the_call_that_it_interrupts_and_no_other() -> None:
    def handler(*_: object) -> None:
        raise ZeroDivisionError

    with (
        Broker(nodes=3) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        broker.faults.drop(DescribeLogDirsRequest, node_id=2) as dropped,
    ):
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            other = calling(lambda: admin.describe_log_dirs(2, timeout=3600))
            dropped.wait()
            ringing = once_inside(lambda: os.kill(os.getpid(), signal.SIGUSR1))
            with pytest.raises(ZeroDivisionError):
                admin.describe_log_dirs(2, timeout=3600)
            ringing.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert admin.describe_log_dirs(1).keys() == {1}
        assert not other.done()


def test_the_end(flaky: tuple[Broker, Admin]) -> None:
    broker, _ = flaky
    admin = Admin(bootstrap_servers=broker.bootstrap_servers, client_id="me")
    assert repr(admin) == f"<Admin me open {broker.bootstrap_servers}>"
    admin.close()
    admin.close()
    with pytest.raises(ClosedError):
        admin.list_topics()
    with pytest.raises(ConfigError, match="did you mean"):
        Admin({"bootstrap.server": "x:1"})
    forgotten = Admin(bootstrap_servers=broker.bootstrap_servers)
    with pytest.warns(ResourceWarning, match="Admin was not closed; use `with Admin"):
        del forgotten


def test_close_ends_a_call_of_another_thread(flaky: tuple[Broker, Admin]) -> None:
    broker, admin = flaky
    with broker.faults.drop(MetadataRequest):
        closing = once_inside(lambda: admin.close(timeout=5))
        with pytest.raises(ClosedError, match="closed during the call"):
            admin.list_topics(timeout=3600)
        closing.join()


# ---------------------------------------------------------------- settings, records, access rules


def test_settings_are_changed_one_by_one(admin: Admin, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1, {"retention.ms": "1234567"})])
    topic = ConfigResource("topic", name)

    def settings() -> dict[str, ConfigEntry]:
        return admin.describe_configs(topic)[topic]

    admin.incremental_alter_configs({topic: {"max.message.bytes": 2_000_000, "preallocate": True}})
    # Kafka's controller answers before each broker has the change.
    until(lambda: settings()["max.message.bytes"].value == "2000000")
    until(lambda: settings()["preallocate"].value == "true")
    assert settings()["retention.ms"].value == "1234567"
    admin.incremental_alter_configs({topic: {"retention.ms": None}})
    until(lambda: settings()["retention.ms"].is_default)
    admin.incremental_alter_configs(
        {topic: {"cleanup.policy": ConfigChange("set", "delete")}}, validate_only=True
    )
    with pytest.raises(BrokerError) as refused:
        admin.incremental_alter_configs({topic: {"max.message.bytes": "many", "retention.ms": 5}})
    assert refused.value.name == "INVALID_CONFIG"
    assert settings()["retention.ms"].is_default


def test_a_setting_is_added_to_a_list_and_taken_from_it(admin: Admin, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])
    topic, key = ConfigResource("topic", name), "leader.replication.throttled.replicas"
    admin.incremental_alter_configs({topic: {key: ConfigChange("append", "0:1,0:2")}})
    admin.incremental_alter_configs({topic: {key: ConfigChange("subtract", "0:1")}})
    # Kafka's controller answers before each broker has the change.
    until(lambda: admin.describe_configs(topic)[topic][key].value == "0:2")


def test_changes_that_are_none(admin: Admin) -> None:
    with pytest.raises(ValueError, match="the operation is one of set, delete, append, subtract"):
        admin.incremental_alter_configs({ConfigResource("topic", "t"): {"a": ConfigChange("add", "b")}})  # type: ignore[arg-type]


def test_records_are_deleted_below_an_offset(admin: Admin, servers: str, name: str) -> None:
    admin.create_topics({name: 2})
    fill(servers, name, 10)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    assert admin.delete_records({first: 4, second: "latest"}) == {first: 4, second: 0}
    assert admin.log_ranges([first])[first] == (4, 10)
    assert admin.delete_records({(name, 0): "latest"}) == {first: 10}
    outcome = admin.delete_records({first: 99, (name, 7): 1}, raise_errors=False, timeout=5)
    assert {partition.partition: type(error) for partition, error in outcome.errors.items()} == {
        0: OffsetOutOfRangeError, 7: UnknownTopicOrPartitionError,
    }  # fmt: skip
    with pytest.raises(ValueError, match="an offset >= 0 or 'latest', not -1"):
        admin.delete_records({first: -1})


def test_without_an_authorizer_there_are_no_access_rules(admin: Admin) -> None:
    with pytest.raises(BrokerError) as refused:
        admin.describe_acls()
    assert refused.value.name == "SECURITY_DISABLED"


@pytest.mark.kafka
def test_access_rules(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("kafka")  # says whether Kafka is here
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Kafka(properties) as node, Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        read = Acl("topic", "orders", "User:alice", "read")
        write = Acl("topic", "log-", "User:bob", "write", "deny", "10.0.0.1", "prefixed")
        assert list(admin.create_acls([read, write])) == [read, write]
        until(lambda: admin.describe_acls() == [write, read])
        assert admin.describe_acls(AclFilter(principal="User:alice")) == [read]
        assert admin.describe_acls(AclFilter("topic", "log-7", pattern_type="match")) == [write]
        with pytest.raises(BrokerError, match="alice"):
            admin.create_acls(Acl("topic", "orders", "alice", "read"))
        gone = AclFilter(operation="write")
        assert admin.delete_acls([gone, read]) == {gone: [write], as_filter(read): [read]}
        until(lambda: admin.describe_acls() == [])


def as_filter(acl: Acl) -> AclFilter:
    """The filter that finds this rule alone."""
    return AclFilter(
        acl.resource_type,
        acl.resource_name,
        acl.principal,
        acl.operation,
        acl.permission,
        acl.host,
        acl.pattern_type,
    )


def test_words_that_access_rules_do_not_have(admin: Admin) -> None:
    with pytest.raises(ValueError, match=r"operation is one of any, all, read, .* not 'look'"):
        admin.create_acls(Acl("topic", "orders", "User:alice", "look"))


TOPIC = ConfigResource("topic", "t")
REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "pairs": (
        lambda a: a.create_topics([("t", 3)]),
        "topics are {name: partitions}, names or NewTopic values, not ('t', 3)",
    ),
    "no topics": (
        lambda a: a.create_topics(None),
        "topics are {name: partitions}, names or NewTopic values, not None",
    ),
    "a number as text": (
        lambda a: a.create_topics({"t": "3"}),
        "topic 't': the number of partitions is a whole number, not '3'",
    ),
    "replicas as text": (
        lambda a: a.create_topics(NewTopic("t", 1, "1")),  # type: ignore[arg-type]
        "topic 't': numbers of partitions and replicas are whole numbers, not '1'",
    ),
    "a setting that is nothing": (
        lambda a: a.create_topics(NewTopic("t", configs={"retention.ms": None})),  # type: ignore[dict-item]
        "topic 't': the value of 'retention.ms' is text or a number; leave the setting out for its default, not None",
    ),
    "names that are none": (
        lambda a: a.delete_topics([3]),
        "names are wanted, such as 'orders' or ['orders', 'returns'], not 3",
    ),
    "totals as a list": (
        lambda a: a.create_partitions(["t"]),
        "numbers of partitions are given as {name: partitions}, not ['t']",
    ),
    "a name's settings": (
        lambda a: a.describe_configs("t"),
        "such as ConfigResource('topic', 'orders'), not 't'",
    ),
    "another kind": (
        lambda a: a.describe_configs(ConfigResource("topics", "t")),  # type: ignore[arg-type]
        "the kind of a ConfigResource is topic, broker or group, not 'topics'",
    ),
    "a broker by name": (
        lambda a: a.describe_configs(ConfigResource("broker", "b")),
        "a broker's name in a ConfigResource is its number, such as '1', or '' for all, not 'b'",
    ),
    "changes as text": (
        lambda a: a.incremental_alter_configs({TOPIC: "retention.ms=1"}),
        "changes are {ConfigResource('topic', 'orders'): {'retention.ms': 3600000}}, not 'retention.ms=1'",
    ),
    "partitions as a list": (
        lambda a: a.list_offsets([("t", 0)]),
        "a mapping from partitions is wanted, such as {TopicPartition('orders', 0): ...}, not",
    ),
    "an offset as text": (
        lambda a: a.alter_consumer_group_offsets("g", {("t", 0): "3"}),
        "t-0: an offset is a whole number or OffsetAndMetadata, not '3'",
    ),
    "a group that is no name": (lambda a: a.list_consumer_group_offsets(3), "a group is a str, not 3"),
    "a rule as a tuple": (
        lambda a: a.create_acls([("topic", "t")]),
        "access rules are Acl values, not ('topic', 't')",
    ),
    "a filter as text": (
        lambda a: a.describe_acls("User:a"),
        "access rules are found by an AclFilter, not 'User:a'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_call_does_not_take_is_refused_at_once(what: str) -> None:
    call, sentence = REFUSED[what]
    with (
        Admin(bootstrap_servers="127.0.0.1:1") as nobody,
        pytest.raises((TypeError, ValueError), match=re.escape(sentence)),
    ):
        call(nobody)
