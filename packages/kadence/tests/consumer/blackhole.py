"""A path to a broker that can go silent: bytes are neither delivered nor refused, as behind a firewall that forgot."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from tests.patience import PATIENCE

from kadence import Broker
from kadence_broker.cluster import BrokerNode

__all__ = ["Path", "mapped", "path_to"]


class Path:
    """Relays between clients and one broker.

    Attributes:
        dark: connections that come now are accepted and lead nowhere.
        accepted: the number of connections that came.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.dark = False
        self.accepted = 0
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="path", daemon=True)
        self._thread.start()

    def swallow(self) -> None:
        """From now on nothing passes any more on the connections that there are."""
        with self._lock:
            for key in list(self._selector.get_map().values()):
                if key.fileobj is not self._listener:
                    self._selector.unregister(key.fileobj)

    def close(self) -> None:
        self._ended = True
        self._thread.join(PATIENCE)
        for sock in (self._listener, *self._open):
            sock.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(0.02):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fd in self._selector.get_map():
                        self._relay(key.fileobj, key.data)  # type: ignore[arg-type]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self._open.append(client)
        self.accepted += 1
        if self.dark:
            return
        server = socket.create_connection(self.target)
        self._open.append(server)
        self._selector.register(client, selectors.EVENT_READ, server)
        self._selector.register(server, selectors.EVENT_READ, client)

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        try:
            data = source.recv(65536)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for sock in (source, target):
            with suppress(KeyError):
                self._selector.unregister(sock)
            sock.close()


@contextmanager
def path_to(broker: Broker) -> Iterator[Path]:
    """The only way to a broker of one node, for clients that come after this: it advertises the path as its address."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    path = Path((host, int(port)))
    nodes = broker._core.cluster.nodes
    (node_id,) = nodes
    nodes[node_id] = BrokerNode(node_id, "127.0.0.1", path.port)
    try:
        yield path
    finally:
        path.close()


@contextmanager
def mapped(nodes: int) -> Iterator[tuple[Broker, list[Path]]]:
    """A broker whose nodes advertise paths to them, as behind a mapping of ports."""
    with ExitStack() as opened:
        paths = [Path(("127.0.0.1", 0)) for _ in range(nodes)]
        for each in paths:
            opened.callback(each.close)
        listeners = ",".join(f"PLAINTEXT://127.0.0.1:{each.port}" for each in paths)
        broker = opened.enter_context(Broker(nodes=nodes, config={"advertised.listeners": listeners}))
        for each, port in zip(paths, broker._core.nodes.ports.values(), strict=True):
            each.target = ("127.0.0.1", port)
        yield broker, paths
