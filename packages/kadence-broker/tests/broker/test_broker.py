"""`Broker` itself: construction, its address, what one may do behind the clients' backs."""

from __future__ import annotations

import errno
import gc
import os
import re
import socket
from pathlib import Path

import pytest
from tests.broker.wire import Wire

from kadence.errors import ClosedError, ConfigError, ConnectError, ForkedError
from kadence.protocol import error_codes as codes
from kadence.protocol.describe_cluster import DescribeClusterRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.metadata import MetadataRequest
from kadence_broker import Broker
from kadence_broker.faults import Observed
from kadence_broker.server import listener
from kadence_broker.settings import Settings


def test_it_listens_on_loopback_and_closes() -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        assert host == "127.0.0.1"
        assert repr(broker) == f"<Broker {broker.bootstrap_servers}, 0 topics, serving>"
        with Wire(broker) as wire:
            wire.call(MetadataRequest(topics=[]))
            broker.close()
            assert wire.is_closed()
    broker.close()
    assert repr(broker).endswith("closed>")
    with pytest.raises(ClosedError, match="closed"):
        broker.create_topic("t")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_leaves_its_parents_broker_alone(tmp_path: Path) -> None:
    with Broker(topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker) as wire:
        wire.produce("t", [b"first"])
        observed = broker.faults.observe()
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        if (child := os.fork()) == 0:
            _in_child(broker, observed)
        assert os.waitpid(child, 0)[1] == 0
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
        # The old connection and new ones are served on.
        assert wire.produce("t", [b"second"]).base_offset == 1
        with Wire(broker) as other:
            assert other.produce("t", [b"third"]).base_offset == 2


def _in_child(broker: Broker, observed: Observed) -> None:
    """Unwind a ``with`` of the broker, and try what must be refused; never return."""
    status = 1
    try:
        with broker, broker.faults.scope(), observed:
            for call in (
                lambda: broker.create_topic("u"),
                lambda: broker.offsets("t"),
                lambda: broker.faults.delay(None, 1),
                broker.faults.freeze,
                broker.faults.clear,
                observed.wait,
            ):
                with pytest.raises(ForkedError, match=f"in process {os.getppid()}"):
                    call()
        assert repr(broker).split(", ")[2] == f"serving in process {os.getppid()}"
        status = 0
    finally:
        os._exit(status)


def test_an_unclosed_broker_is_collected_without_a_warning_of_ours() -> None:
    broker = Broker()
    broker.close()
    del broker
    gc.collect()


def test_a_port_in_use_is_one_clear_error() -> None:
    with Broker() as first:
        port = int(first.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(
            ConnectError, match=rf"127\.0\.0\.1:{port}: the port is in use .* choose another port"
        ):
            Broker(port=port)


def test_a_node_whose_port_is_taken_leaves_no_listener_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []

    def listen(host: str, port: int) -> socket.socket:
        opened.append(made := listening(host, port))
        return made

    listening = listener.listen
    monkeypatch.setattr(listener, "listen", listen)
    while not opened:
        # The port before it may be another process's.
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConnectError):
            Broker(port=taken.getsockname()[1] - 1, nodes=2)
    assert [each.fileno() for each in opened] == [-1]


@pytest.mark.parametrize(("port", "nodes"), [(70_000, 1), (-1, 1), (65_535, 2)])
def test_a_port_that_cannot_be_is_refused(port: int, nodes: int) -> None:
    with pytest.raises(ConfigError, match="a port is 0 to 65535"):
        Broker(port=port, nodes=nodes)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (
            "192.0.2.1",
            "cannot listen on 192.0.2.1:0: this machine does not have the address; 127.0.0.1 is for clients ",
        ),
        ("a..b", "cannot listen on 'a..b': no address is known for this name"),
        (
            "a..b:9093",
            "cannot listen on 'a..b:9093': give the port apart from the host: host 'a..b', port 9093",
        ),
    ],
)
def test_a_host_that_is_not_ours_is_refused(host: str, said: str) -> None:
    with pytest.raises(ConnectError, match=f"^{re.escape(said)}"):
        Broker(host=host)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "this user may not open the port; choose one above 1023, or 0 for any free one"),
        (errno.ENOBUFS, os.strerror(errno.ENOBUFS)),
    ],
)
def test_what_the_system_says_against_a_port_is_one_sentence(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ConnectError, match=rf"^cannot listen on 127\.0\.0\.1:80: {said}$"):
        Broker(80)


def test_ipv6_loopback() -> None:
    try:
        broker = Broker(host="::1")
    except ConnectError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        socket.create_connection(("::1", port), timeout=5).close()


def test_every_interface_is_advertised_as_loopback_unless_told() -> None:
    with Broker(host="0.0.0.0") as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
    with Broker(host="", config={"advertised.host.name": "localhost"}) as broker:
        assert broker.bootstrap_servers.startswith("localhost:")


def test_several_nodes_share_the_partitions() -> None:
    with Broker(nodes=3, topics={"a": 4, "b": 3}) as broker, Wire(broker, 2) as wire:
        answer = wire.call(MetadataRequest(topics=None))
        assert [each.node_id for each in answer.brokers] == broker.node_ids == [1, 2, 3]
        leaders = {each.name: [p.leader_id for p in each.partitions] for each in answer.topics}
        assert leaders == {"a": [1, 2, 3, 1], "b": [2, 3, 1]}
        assert {each.broker_id for each in wire.call(DescribeClusterRequest()).brokers} == {1, 2, 3}


def test_groups_belong_to_one_node() -> None:
    with Broker(nodes=2) as broker, Wire(broker, 1) as first, Wire(broker, 2) as second:
        request = HeartbeatRequest(group_id="g", member_id="m")
        answers = {each.call(request).error_code for each in (first, second)}
        assert answers == {codes.NOT_COORDINATOR, codes.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 0}, "nodes must be at least 1"),
        ({"topics": {"a/b": 1}}, "'a/b' is not a topic name"),
        ({"topics": {"..": 1}}, "not a topic name"),
        ({"topics": {"a": 0}}, "at least 1 partition"),
        ({"config": {"num.partition": 3}}, "did you mean 'num.partitions'"),
        (
            {"config": {"utterly": 3}},
            r"no configuration key 'utterly'; docs/configuration\.md lists its keys$",
        ),
        ({"config": {"num.partitions": "many"}}, "num.partitions must be a whole number, not 'many'"),
        ({"config": {"num.partitions": True}}, "must be a whole number"),
        ({"config": {"auto.create.topics.enable": "perhaps"}}, "must be true or false"),
    ],
)
def test_what_cannot_be_used_is_refused_with_advice(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Broker(**arguments)  # type: ignore[arg-type]


def test_settings_take_text_and_give_it_back() -> None:
    settings = Settings.parse({"num.partitions": "3", "auto.create.topics.enable": "FALSE"})
    assert settings.num_partitions == 3
    described = settings.describe()
    assert (described["num.partitions"], described["auto.create.topics.enable"]) == ("3", "false")


def test_topics_behind_the_clients_backs(broker: Broker, wire: Wire) -> None:
    broker.create_topic("more", 3)
    assert broker.offsets("more") == [(0, 0)] * 3
    wire.produce("more", [b"a", b"b"], 1)
    broker.delete_records("more", 1, 1)
    assert broker.offsets("more") == [(0, 0), (1, 2), (0, 0)]
    for action, message in (
        (lambda: broker.create_topic("more"), "exists"),
        (lambda: broker.offsets("none"), "no topic 'none'"),
        (lambda: broker.delete_records("more", 7, 0), "no partition more-7"),
        (lambda: broker.move_leader("more", 0, 9), r"no node 9; there are \[1\]"),
    ):
        with pytest.raises(ConfigError, match=message):
            action()


def test_clients_can_be_disconnected_and_come_back(broker: Broker, wire: Wire) -> None:
    wire.call(MetadataRequest(topics=[]))
    broker.disconnect_clients()
    assert wire.is_closed()
    with Wire(broker) as again:
        assert again.call(MetadataRequest(topics=[])).brokers
