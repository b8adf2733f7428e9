"""How many connections a node takes: `max.connections`, `max.connections.per.ip`."""

from __future__ import annotations

import pytest
from tests.broker.wire import Wire, pass_time
from tests.patience import until

from kadence.errors import ConfigError
from kadence.protocol.metadata import MetadataRequest
from kadence_broker import Broker
from kadence_broker.server.quotas import ConnectionQuotas
from kadence_testing import FakeClock


def connections(broker: Broker) -> int:
    return broker._on_loop(lambda: len(broker._core.server.connections))


def is_full(broker: Broker, node: int = 1) -> bool:
    return broker._on_loop(lambda: broker._core.server._listeners[node]._is_full)


def test_at_max_connections_who_comes_waits_until_a_connection_ends() -> None:
    with Broker(config={"max.connections": 2}) as broker, Wire(broker) as one, Wire(broker) as other:
        one.call(MetadataRequest(topics=[]))
        other.call(MetadataRequest(topics=[]))
        assert is_full(broker)
        with Wire(broker) as third:
            third.send(MetadataRequest(topics=[]))
            # The others are served on, and the third is not even accepted.
            one.call(MetadataRequest(topics=[]))
            assert connections(broker) == 2
            other.sock.close()
            assert third.receive().topics == []
            assert connections(broker) == 2
            assert is_full(broker)
        until(lambda: not is_full(broker))


def test_who_is_idle_makes_room() -> None:
    config = {"max.connections": 1, "connections.max.idle.ms": 300}
    clock = FakeClock()
    with Broker(config=config, clock=clock) as broker, Wire(broker) as idle, Wire(broker) as next_one:
        next_one.send(MetadataRequest(topics=[]))
        until(lambda: is_full(broker))
        pass_time(broker, clock, 300)
        assert idle.is_closed()
        assert next_one.receive().topics == []


def test_each_node_has_its_own_count() -> None:
    with (
        Broker(nodes=2, config={"max.connections": 1}) as broker,
        Wire(broker, 1) as one,
        Wire(broker, 2) as other,
    ):
        one.call(MetadataRequest(topics=[]))
        other.call(MetadataRequest(topics=[]))
        broker.stop_node(1)
        broker.start_node(1)
        with Wire(broker, 1) as again:
            again.call(MetadataRequest(topics=[]))
        assert is_full(broker, 2)


def test_a_node_that_may_have_no_connection_accepts_none_after_a_restart_either() -> None:
    with Broker(config={"max.connections": 0}) as broker:
        assert is_full(broker)
        broker.stop_node(1)
        broker.start_node(1)
        assert is_full(broker)


def test_above_max_connections_per_ip_the_new_connection_is_closed() -> None:
    with Broker(config={"max.connections.per.ip": 2}) as broker, Wire(broker) as one:
        with Wire(broker) as other:
            one.call(MetadataRequest(topics=[]))
            other.call(MetadataRequest(topics=[]))
            with Wire(broker) as third:
                assert third.is_closed()
            one.call(MetadataRequest(topics=[]))
        until(lambda: connections(broker) == 1)
        with Wire(broker) as fourth:
            fourth.call(MetadataRequest(topics=[]))


def test_addresses_count_each_for_itself_and_are_forgotten() -> None:
    quotas = ConnectionQuotas(3, 1)
    assert quotas.add(1, "10.0.0.1")
    assert not quotas.add(1, "10.0.0.1")
    assert quotas.add(1, "10.0.0.2")
    assert quotas.add(2, "10.0.0.1")
    assert quotas.has_slot(1)
    assert quotas.add(1, "10.0.0.3")
    assert not quotas.has_slot(1)
    for each in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        quotas.remove(1, each)
    assert list(quotas._by_ip) == [(2, "10.0.0.1")]


@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip"])
def test_less_than_none_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections"):
        Broker(config={key: -1})
