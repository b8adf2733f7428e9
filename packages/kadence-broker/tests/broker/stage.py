"""A broker's insides without its outside: requests in, answers out, and a clock that the test moves."""

from __future__ import annotations

import random
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

from kadence.protocol.registry import encode_request
from kadence.records import encode_batch
from kadence.wire import VersionError
from kadence_broker.cluster import BrokerNode, Cluster
from kadence_broker.coordination import Coordination
from kadence_broker.coordinator import ClassicGroup
from kadence_broker.dispatch import Dispatcher
from kadence_broker.faults import Faults
from kadence_broker.server.loop import Loop
from kadence_broker.server.security import Security
from kadence_broker.server.session import Session
from kadence_broker.service import Services
from kadence_broker.sessions import SessionCache
from kadence_broker.settings import Settings
from kadence_broker.share.assembly import share_leader
from kadence_broker.transactions import Transactions
from kadence_testing.clock import FakeClock

__all__ = ["Nobody", "Stage"]

NUMBERS = [-(2**31), -3, -2, -1, 0, 0, 1, 1, 2, 3, 5, 100, 10_000, 2**31 - 1]
TEXTS = ["t", "t", "g", "g", "", "new", "range", "consumer", "a/b", "1", "x" * 300, "retention.ms", "5", "\0"]
BATCH = encode_batch([(1, b"k", b"v", ())])


class Nobody:
    """In place of a connection: remembers what was sent."""

    host = "nobody"
    peer = "nobody:1"

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.is_closed = False
        self.session = Session(Security(), 0)
        self.principal = "User:ANONYMOUS"
        self.on_gone: Any = None
        self.sent: list[bytes] = []

    def send(self, buffers: Any) -> None:
        self.sent.append(b"".join(bytes(each) for each in buffers))

    def let_request_go(self) -> None:
        return

    def finish(self) -> None:
        return

    def end(self, buffers: Any, _delay_ms: int) -> None:
        self.send(buffers)

    def allow_frames_of(self, _max_bytes: int) -> None:
        return

    def expect_tokens(self, _expected: bool) -> None:
        return

    def close(self, _reason: str | None = None) -> None:
        self.is_closed = True


class Stage:
    """A broker's insides without its outside."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.cluster = Cluster("c", lambda: self.random.randbytes(16))
        self.cluster.nodes = {each: BrokerNode(each, "h", each) for each in (1, 2)}
        self.cluster.create_topic("t", 2)
        self.loop = Loop(self.clock, lambda _now: 0)
        self.coordination = Coordination(
            Settings.parse({"group.min.session.timeout.ms": 1}).coordinator(),
            self.cluster,
            self.loop,
            new_id=lambda: "id",
        )
        transactions = Transactions(Settings().transactions(), self.cluster, self.coordination, self.loop)
        self.services = Services(
            Settings(),
            self.cluster,
            self.coordination,
            transactions,
            SessionCache(4),
            share_leader(Settings(), self.cluster, self.loop),
            self.loop,
        )
        self.dispatcher = Dispatcher(self.services, Faults())

    def ids(self) -> list[bytes]:
        return [bytes(16), b"?" * 16, *(each.topic_id for each in self.cluster.topics.values())]

    def texts(self) -> list[str]:
        groups = [
            each for each in self.coordination.coordinator.groups.values() if isinstance(each, ClassicGroup)
        ]
        members = [name for group in groups for name in group.members]
        pending = [name for group in groups for name in group.pending_joins]
        return TEXTS + members + pending

    def draw(self, hint: Any, name: str) -> Any:
        """A value of a field's type; often one that means something here."""
        pick = self.random.choice
        if get_origin(hint) in (Union, types.UnionType):
            options = [each for each in get_args(hint) if each is not type(None)]
            if name == "records":
                return pick([None, b"", BATCH, BATCH, BATCH * 2, self.random.randbytes(70)])
            if len(options) < len(get_args(hint)) and self.random.random() < 0.2:
                return None
            return self.draw(options[0], name)
        if get_origin(hint) is list:
            return [self.draw(get_args(hint)[0], name) for _ in range(pick([0, 1, 1, 2, 3]))]
        if hint is bool:
            return pick([True, False])
        if hint is int:
            # The few numbers that fit every width, more often than those that do not.
            return pick(NUMBERS) if self.random.random() < 0.5 else pick([-1, 0, 1, 2])
        if hint is str:
            return pick(self.texts())
        if hint is bytes:
            return pick(self.ids()) if "id" in name else self.random.randbytes(pick([0, 1, 16]))
        return self.message(hint)

    def message(self, kind: type[Any]) -> Any:
        hints = get_type_hints(kind.__init__)
        return kind(
            **{
                name: self.draw(hint, name)
                for name, hint in hints.items()
                if name not in ("return", "unknown_tags")
            }
        )

    def frame(self, kind: type[Any], version: int) -> bytes | None:
        """A request of random content; None if the content does not fit the version or the field's width."""
        for _ in range(20):
            try:
                return encode_request(self.message(kind), version, 1, "nobody")
            except (VersionError, ValueError):
                continue
        return None

    def pass_time(self) -> None:
        self.clock.advance(self.random.choice([0, 1, 100, 10_000]))
        now = self.clock.now_ms()
        self.loop._run_timers(now)
        self.coordination.poll(now)
