"""Elections of leaders and log directories."""

from __future__ import annotations

import pytest
from tests.patience import until

from kadence.admin import Admin
from kadence.errors import BrokerError
from kadence.producer import Producer
from kadence.protocol import error_codes as ec
from kadence.protocol.elect_leaders import ElectLeadersRequest
from kadence.types import TopicPartition
from kadence_broker import Broker


def test_a_partition_that_has_its_leader_counts_as_elected(admin: Admin, name: str) -> None:
    admin.create_topics({name: 2})
    until(lambda: name in admin.list_topics(), what="the topic is known")
    wanted = [TopicPartition(name, 0), TopicPartition(name, 1)]
    assert admin.elect_leaders("preferred", wanted) == dict.fromkeys(wanted)
    assert admin.elect_leaders("unclean", wanted[0]) == {wanted[0]: None}
    assert not set(wanted) & admin.elect_leaders("preferred", raise_errors=False).keys(), "none needs one"
    outcomes = admin.elect_leaders("preferred", [wanted[0], (name, 9)], raise_errors=False)
    assert outcomes == {wanted[0]: None}
    assert {
        str(tp): error.name for tp, error in outcomes.errors.items() if isinstance(error, BrokerError)
    } == {f"{name}-9": "UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_partition_gets_its_leader_back_when_the_broker_of_its_replica_runs_again() -> None:
    with Broker(nodes=3) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({"t": 3})
        leaders = {each.partition: each.leader for each in admin.describe_topics("t")["t"].partitions}
        number, node = next((partition, leader) for partition, leader in leaders.items() if leader)
        tp = TopicPartition("t", number)
        broker.stop_node(node, elect=False)
        outcomes = admin.elect_leaders("preferred", tp, raise_errors=False)
        assert isinstance(error := outcomes.errors[tp], BrokerError)
        assert error.name == "PREFERRED_LEADER_NOT_AVAILABLE", "told at once, not after the timeout"
        broker.start_node(node)
        assert tp in admin.elect_leaders("preferred") or admin.elect_leaders("preferred", tp) == {tp: None}
        assert admin.describe_topics("t")["t"].partitions[number].leader == node


def test_an_election_goes_to_the_next_controller_and_an_unknown_kind_is_refused() -> None:
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as admin:
        admin.create_topics({"t": 1})
        with broker.faults.error(ElectLeadersRequest, ec.NOT_CONTROLLER, times=1):
            assert admin.elect_leaders("preferred", [("t", 0)]) == {TopicPartition("t", 0): None}
        with pytest.raises(ValueError, match="election_type is one of preferred, unclean, not 'clean'"):
            admin.elect_leaders("clean", [("t", 0)])  # type: ignore[arg-type]


def test_log_directories_tell_how_large_replicas_are(admin: Admin, servers: str, name: str) -> None:
    admin.create_topics({name: 1})
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(name, bytes(10_000), partition=0).result()
    leader = admin.describe_topics(name)[name].partitions[0].leader
    assert leader is not None
    described = admin.describe_log_dirs()
    assert sorted(described) == sorted(node.node_id for node in admin.describe_cluster().nodes)
    assert admin.describe_log_dirs(leader).keys() == {leader}
    found = [
        info
        for directory in described[leader].values()
        for tp, info in directory.replicas.items()
        if tp == TopicPartition(name, 0)
    ]
    assert [(info.offset_lag, info.is_future) for info in found] == [(0, False)]
    assert found[0].size > 10_000
    assert all(directory.error is None for directory in described[leader].values())


def test_a_broker_that_does_not_run_has_no_log_directories(admin: Admin) -> None:
    outcomes = admin.describe_log_dirs([99], raise_errors=False)
    assert isinstance(error := outcomes.errors[99], BrokerError)
    assert error.name == "BROKER_NOT_AVAILABLE"
    with pytest.raises(TypeError, match="brokers are named by their ids"):
        admin.describe_log_dirs("1")  # type: ignore[arg-type]
