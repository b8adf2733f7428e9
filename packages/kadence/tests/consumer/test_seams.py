"""A client that fetches nothing, has no position and commits nothing stands on the parts of the consumer as they are.

So will a share consumer. Its message here is a consumer's heartbeat, of which it uses the fields that its own has, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.worlds.cluster import FakeMetadata, id_of

from kadence.client.request_manager import RequestManager
from kadence.client.waits import Waits
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, ConnectionPurpose, Request
from kadence.consumer import events as m
from kadence.consumer.application.client_core import Chosen, ClientCore
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.processing import Stalls
from kadence.consumer.application.shell import Shell
from kadence.consumer.background_events import BackgroundEventHandler, Reaper
from kadence.consumer.client_state import ClientState
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.epoch_member import EpochMember, Target
from kadence.consumer.group.heartbeat import HeartbeatRequestManager
from kadence.consumer.group.leaving import Departure, Departures
from kadence.consumer.group.member_states import State
from kadence.consumer.group.membership import Liveness
from kadence.consumer.measures import ClientMeasures
from kadence.consumer.turn import EventProcessor, Turn
from kadence.errors import KafkaError, for_code
from kadence.protocol import error_codes
from kadence.protocol.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence.types import GroupMetadata, Node, TopicPartition
from kadence_testing import FakeClock

OWNED = frozenset({TopicPartition("t", 1)})


class Goodbyes(Departures):
    def _goodbye(self, departure: Departure) -> Any:
        return ConsumerGroupHeartbeatRequest(
            group_id="q", member_id=departure.member_id, member_epoch=-1, instance_id=None
        )


class Member(EpochMember):
    """Owns what it is assigned at once; nothing is revoked, acknowledged or committed."""

    REJOINS = frozenset({error_codes.FENCED_MEMBER_EPOCH, error_codes.UNKNOWN_MEMBER_ID})

    def __init__(self, coordinator: CoordinatorRequestManager, metadata: Any, config: Any, tell: Any) -> None:
        super().__init__(
            coordinator, metadata, config, tell, Goodbyes(config, coordinator), iter("abc").__next__
        )
        self.topics: frozenset[str] = frozenset()
        self.owned: frozenset[TopicPartition] = frozenset()
        self._said: frozenset[str] | None = None

    @property
    def managed(self) -> bool:
        return bool(self.topics)

    @property
    def urgent(self) -> bool:
        return self._listens or self._said != self.topics

    def native_heartbeat(self) -> Any:
        return None

    @property
    def _names_something(self) -> bool:
        return bool(self.topics)

    def _new_heartbeat(self, node_id: int, deadline: int) -> Request:
        message = ConsumerGroupHeartbeatRequest(
            group_id="q",
            member_id=self.group.member_id,
            member_epoch=0 if self.state is State.JOINING else self.group.generation_id,
            subscribed_topic_names=None if self._said == self.topics else sorted(self.topics),
        )
        self._said = self.topics
        return Request(message, node_id, deadline, ConnectionPurpose.GROUP)

    def _may_bring_partitions(self, message: Any) -> bool:
        return message.subscribed_topic_names is not None

    def _forget_said(self) -> None:
        self._said = None

    def _assign(self, now: int, request: Request, target: Target | None) -> None:
        if target is not None and target != self._target:
            self._target = target
            self._reconcile(now)

    def _reconcile(self, now: int) -> None:
        self.owned = frozenset(self._resolve(now))

    def _look_at_cluster(self, now: int) -> None: ...

    def _lose(self, *, leaves: bool) -> None:
        self.owned = frozenset()

    def _joins(self, now: int, cause: str) -> None: ...

    def _gave_up(self, now: int, why: str) -> None: ...

    def _explained(self, code: int, message: str | None) -> KafkaError:
        return for_code(code, message)

    def _explained_transport(self, error: KafkaError) -> KafkaError:
        return error


class Processor(EventProcessor):
    """Adds what subscribe() means to this client's member."""

    def __init__(self, member: Member, tell: Callable[[m.BackgroundEvent], None]) -> None:
        super().__init__(member, tell)
        self._member = member
        self._steps[m.Subscribe] = self._subscribe

    @property
    def _is_member(self) -> bool:
        return self._member.managed

    @property
    def _is_pending(self) -> bool:
        return False

    def _forget(self) -> None:
        self._member.topics = frozenset()

    def _subscribe(self, now: int, call: m.Subscribe) -> None:
        self._member.topics = call.topics or frozenset()
        self._member.subscription_changed(now)
        self._answer(call)


class Broker:
    """The network: a coordinator that answers each heartbeat at once, in its next turn."""

    def __init__(self, clock: FakeClock) -> None:
        self.heard: list[Any] = []
        self.code = 0
        self._clock = clock
        self._sent: list[tuple[RequestManager, Request]] = []

    def send(self, owner: RequestManager, requests: Iterable[Request]) -> None:
        self._sent += [(owner, request) for request in requests]

    def poll(self, wait_ms: int | None) -> list[Completed]:
        if not self._sent:
            self._clock.advance(1_000 if wait_ms is None else min(wait_ms, 1_000))
        return []

    def deliver(self, now: int, completed: object) -> None:
        sent, self._sent = self._sent, []
        for owner, request in sent:
            message: Any = request.message
            self.heard.append(message)
            joins = message.subscribed_topic_names is not None
            assigned = [TopicPartitions(topic_id=id_of("t"), partitions=[1])]
            code, self.code = self.code, 0
            response = ConsumerGroupHeartbeatResponse(
                error_code=code,
                member_id=message.member_id,
                member_epoch=-1 if message.member_epoch < 0 else 7,
                heartbeat_interval_ms=5_000,
                assignment=Assignment(topic_partitions=assigned) if joins and not code else None,
            )
            owner.on_response(now, Completed(request, response, None, 1, now))


class World:
    """Both sides of the client, on one thread: each wait of a call is a turn of the network side."""

    has_thread = False

    def __init__(self) -> None:
        self.clock = clock = FakeClock()
        self.state = state = ClientState(lambda: None, ClientMeasures(), clock)
        config = ConsumerConfig.parse({"bootstrap.servers": "nowhere:1", "group.id": "q"})
        reaper = Reaper(lambda: None)
        handler = BackgroundEventHandler(state, reaper)
        coordinator = CoordinatorRequestManager("q", config, handler)
        coordinator.node, coordinator.found_at = Node(7, "b7", 9092), clock.now_ms()
        self.member = member = Member(coordinator, FakeMetadata({"t": 2}), config, handler)
        heartbeats = HeartbeatRequestManager(coordinator, member, state.progress, config, handler)
        liveness: Liveness = member
        self.broker = Broker(clock)
        network: Any = self.broker
        jobs: Any = SimpleNamespace(deliver=lambda now: None, close=lambda: None)
        self.turn = Turn(
            clock,
            state,
            network,
            Processor(member, handler),
            reaper,
            handler,
            jobs,
            liveness,
            (heartbeats, member),
        )
        self.is_over = False
        exchange = Exchange(state, clock, GroupMetadata("q"))
        stalls = Stalls("q", lambda: (0, {}), None, state.wall_offset_ms)
        engine: Any = self
        self.core = Core(
            state,
            engine,
            clock,
            chosen=Chosen(),
            exchange=exchange,
            stalls=stalls,
            dead_letters=None,
            request_timeout_ms=30_000,
            processing_timeout_ms=300_000,
        )
        self.shell = Shell(self.core, state, clock)

    def join(self, seconds: float | None = None) -> None:
        assert self.is_over, "the network side has ended by itself"

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.is_over = not self.turn.run_once()
            if self.is_over:
                self.state.refuse(None)
                self.turn.finish(None)
                return

    def carry(self, call: Waits[Any]) -> Any:
        with self.shell:
            try:
                while True:
                    next(call)
                    self.turns(1)
            except StopIteration as stop:
                return stop.value


class Core(ClientCore):
    """Adds nothing but what is sent before it leaves."""

    def __init__(self, *arguments: Any, **parts: Any) -> None:
        super().__init__(*arguments, **parts)
        self.said: list[str] = []

    def subscribe(self, topics: frozenset[str], deadline: int) -> Waits[None]:
        self.forgive()
        self.chosen.times += 1
        self.chosen.subscribed = topics
        yield from self.hand_over(m.Subscribe, deadline, topics=topics, pattern=None, has_listener=False)
        self._client_state.send(m.Polled(0, 0))

    def _say(self, text: str) -> Waits[None]:
        self.said.append(text)
        yield from ()

    def _before_unsubscribing(self, deadline: int) -> Waits[None]:
        return self._say("unsubscribes")

    def _before_closing(self, deadline: int, *, processed_only: bool) -> Waits[None]:
        return self._say("closes")

    def _serving_until(self, deadline: int) -> Callable[[], Waits[None]]:
        return lambda: self._say("serves")

    def _run_callbacks(self) -> Waits[None]:
        return self._say("callbacks")

    def _forget(self) -> None:
        self.said.append("forgets")

    def _drop(self) -> None:
        self.said.append("drops")

    def inside(self, *arguments: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def world() -> World:
    made = World()
    made.carry(made.core.subscribe(frozenset({"t"}), made.clock.now_ms() + 1_000))
    made.turns(6)
    return made


def epochs(world: World) -> list[int]:
    return [message.member_epoch for message in world.broker.heard]


def test_it_joins_and_owns_what_it_is_assigned_without_a_word_more(world: World) -> None:
    assert (world.member.state, world.member.owned) == (State.STABLE, OWNED)
    assert epochs(world)[0] == 0
    assert set(epochs(world)[1:]) <= {7}
    assert all(message.topic_partitions is None for message in world.broker.heard)
    world.core.exchange.take_background_events()
    assert world.core.group == GroupMetadata("q", 7, "a")


def test_a_fenced_member_joins_again_under_its_id(world: World) -> None:
    world.broker.code = error_codes.FENCED_MEMBER_EPOCH
    before = len(world.broker.heard)
    world.turns(14)
    assert epochs(world)[before : before + 2] == [7, 0]
    assert {message.member_id for message in world.broker.heard} == {"a"}
    assert (world.member.state, world.member.owned) == (State.STABLE, OWNED)


def test_unsubscribe_leaves_the_group_and_the_next_membership_is_another(world: World) -> None:
    world.carry(world.core.unsubscribe(world.clock.now_ms() + 10_000))
    assert epochs(world)[-1] == -1
    assert world.member.left
    assert [text for text in world.core.said if text != "serves"] == ["unsubscribes", "forgets"]
    assert not world.core.chosen.is_anything
    world.carry(world.core.subscribe(frozenset({"t"}), world.clock.now_ms() + 1_000))
    world.turns(6)
    assert (world.member.group.member_id, world.member.owned) == ("b", OWNED)


def test_close_sends_leaves_runs_callbacks_and_ends(world: World) -> None:
    world.carry(world.core.close(world.clock.now_ms() + 10_000, processed_only=False, leave=None))
    assert epochs(world)[-1] == -1
    said = [text for text in world.core.said if text != "serves"]
    assert said == ["closes", "callbacks", "drops"]
    assert world.core.exchange.closed
    assert world.is_over


def test_a_client_that_polls_no_more_leaves_by_itself(world: World) -> None:
    world.state.progress.polled(world.clock.now_ms())
    polled = world.clock.now_ms()
    while world.member.state is not State.STALE:
        world.turns(1)
    assert 0 <= world.clock.now_ms() - polled - 300_000 <= 1_000
    assert epochs(world)[-1] == -1
    assert world.member.state is State.STALE
    world.core.exchange.take_background_events()
    assert world.core.exchange.stalled is not None
    assert world.core.exchange.stalled.left
