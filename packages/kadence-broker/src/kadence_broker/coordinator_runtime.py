"""Serves both coordinators of this broker: passes requests to them, stores their records and sends their answers.

A coordinator serves the keys (groups, or transactional ids) of all nodes; a node answers for those whose partition
of the coordinator's topic it leads. An answer is sent once all records of its key that were appended before it are
durable, so a crash loses nothing that a client knows. A response that depends on no record, as of most heartbeats, is
sent at once. If records cannot be stored, the keys of that partition are loaded again from the log, and waiting clients
get NOT_COORDINATOR, as in Kafka when an append fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.wire import WireError
from kadence_broker.cluster import BrokerNode, coordinator_partition
from kadence_broker.coordinator import Answer, Caller, Outcome, Record
from kadence_broker.pending_responses import PendingResponses, deliver, refuse
from kadence_broker.state_topic import Ended, StateTopic
from kadence_broker.storage import BatchError, Partition

if TYPE_CHECKING:
    from kadence_broker.server.loop import Loop
    from kadence_broker.service import Call

__all__ = ["CoordinatorRuntime", "Owns", "kept_in"]

_log = logger("kadence.broker")

Owns = Callable[[str], bool]
"""Returns whether a key is selected."""

Step = TypeVar("Step", bound=Outcome)
_Step_co = TypeVar("_Step_co", bound=Outcome, covariant=True)


class Coordinator(Protocol[_Step_co]):
    """A coordinator as its runtime knows it; see `kadence_broker.coordinator.GroupCoordinator`."""

    def handle(self, now: int, caller: Caller, request: Any) -> _Step_co: ...

    def poll(self, now: int) -> _Step_co: ...

    def abandon(self) -> _Step_co: ...

    def next_deadline(self) -> int: ...

    def replay(self, record: Record) -> None: ...

    def loaded(self, now: int, owns: Owns) -> _Step_co: ...

    def unload(self, now: int, owns: Owns) -> _Step_co: ...

    def snapshot(self, owns: Owns) -> Iterator[Record]: ...


class CoordinatorRuntime(ABC, Generic[Step]):
    """The shell of a coordinator. The broker's thread owns it.

    Args:
        coordinator: the one whose requests and records these are.
        topic: where the records lie.
    """

    def __init__(self, coordinator: Coordinator[Step], topic: StateTopic, loop: Loop) -> None:
        self._coordinator = coordinator
        self._loop = loop
        self._amendments: dict[Call, Callable[[Any], None]] = {}
        """By call that was not answered at once."""
        self._pending: dict[str, PendingResponses] = {}
        """By key: the newest step whose records are not durable yet."""
        self.topic = topic

    # Differences between the coordinators

    @abstractmethod
    def _key_of(self, record: Record) -> str:
        """The key that the record is about."""

    @abstractmethod
    def _asked_for(self, request: Any) -> Collection[str] | None:
        """The keys that the request is about; None: it may be about any."""

    def _is_free(self, answer: Answer) -> bool:
        """True if an answer without records of its own depends on nothing that is stored."""
        return False

    def _ended(self, marker: Ended, owns: Owns) -> None:
        """The log that is being loaded has the marker of a transaction here. ``owns`` names the partition's keys."""

    def _follow(self, step: Step) -> None:
        """The records of ``step`` are stored for good, and its answers delivered: do what is left of it."""

    def _waits_of(self, step: Step) -> Iterable[Caller]:
        """Who waits for what `_follow` will do: they are refused if the step could not be stored."""
        return ()

    # Requests and timers

    def node_of(self, key: str) -> BrokerNode | None:
        """The node that coordinates the key; None while its partition has no leader."""
        return self.topic.node_of(key)

    def coordinator_error(self, call: Call, key: str | None) -> int:
        """NONE if the node that was asked coordinates the key. An empty key is the coordinator's to refuse."""
        if not key:
            return codes.NONE
        node = self.node_of(key)
        return codes.NONE if node is not None and node.node_id == call.node_id else codes.NOT_COORDINATOR

    def serve(self, call: Call, amend: Callable[[Any], None] | None = None) -> None:
        """Let the coordinator serve the call, and send its answers to this client and others.

        Args:
            amend: the broker's additions to this call's answer.
        """
        try:
            step = self._coordinator.handle(call.now, call.caller(), call.message)
        except Exception:
            self._abandon(call)
            raise
        if amend is not None:
            self._amendments[call] = amend
        self._settle(step)

    def poll(self, now: int) -> None:
        """Fire the coordinator's timers that are due."""
        if self.next_deadline() <= now:
            try:
                step = self._coordinator.poll(now)
            except Exception:
                self._abandon()
                raise
            self._settle(step)

    def _abandon(self, failed: Call | None = None) -> None:
        """A rule has raised half-way. Its changes are reverted to the stored state; no client gets an answer of it.

        Args:
            failed: the call that raised; the caller of this method ends its connection.
        """
        step = self._coordinator.abandon()
        waiting = (each.caller for each in step.answers)
        refuse(each for each in (*waiting, *self._waits_of(step)) if each.ticket is not failed)
        changed = {self._key_of(record) for record in step.records}
        if failed is not None:
            changed.update(self._asked_for(failed.message) or ())
        for index in {coordinator_partition(key) for key in changed}:
            self.reload(index)

    def next_deadline(self) -> int:
        return self._coordinator.next_deadline()

    def _now(self) -> int:
        return self._loop.clock.now_ms()

    # Storing

    def _settle(self, step: Step) -> None:
        """Store the records, and deliver the answers once that is for good."""
        answers = self._amended(step.answers)
        if not step.records:  # as most: a heartbeat stores nothing
            if self._pending:
                deliver(each for each in answers if self._is_free(each))
                answers = [each for each in answers if not self._is_free(each)]
            if not (self._pending and answers):
                deliver(answers)
                self._follow(step)
                return
        by_partition: dict[int, list[Record]] = {}
        for record in step.records:
            by_partition.setdefault(coordinator_partition(self._key_of(record)), []).append(record)
        pending = PendingResponses(answers, partial(self._follow, step), lambda: refuse(self._waits_of(step)))
        for earlier in self._waited_for(answers):
            pending.follow(earlier)
        for index, records in by_partition.items():
            self._store(index, records, pending)
        pending.done(codes.NONE)
        for index in by_partition:
            if self.topic.exists and self.topic.is_grown(index):
                self._rewrite(index)

    def _amended(self, answers: list[Answer]) -> list[Answer]:
        """The answers with the broker's additions."""
        if self._amendments:
            for answer in answers:
                amend = self._amendments.pop(answer.caller.ticket, None)
                if amend is not None:
                    amend(answer.response)
        return answers

    def _store(self, index: int, records: Iterable[Record], pending: PendingResponses) -> None:
        try:
            partition = self.topic.append(index, records)
        except (BatchError, OSError, WireError) as error:
            # A WireError: some client's name is too long for a record. Steps of other clients must not suffer.
            pending.fail()
            self._not_stored(index, str(error))
            return
        keys = {self._key_of(each) for each in records}
        pending.begin()
        for key in keys:
            self._pending[key] = pending
        partition.on_durable(partial(self._stored, index, keys, pending))

    def _stored(self, index: int, keys: Iterable[str], pending: PendingResponses, code: int) -> None:
        for key in keys:
            if self._pending.get(key) is pending:
                del self._pending[key]
        if code != codes.NONE:
            self._not_stored(index, codes.name(code))
        pending.done(code)

    def _not_stored(self, index: int, why: str) -> None:
        _log.error("records of %s-%d could not be stored: %s", self.topic.name, index, why)
        self.reload(index)

    def _waited_for(self, answers: Iterable[Answer]) -> set[PendingResponses]:
        """The steps whose records the answers may depend on."""
        waited: set[PendingResponses] = set()
        for answer in answers:
            keys = self._asked_for(answer.caller.ticket.message)
            waited.update(
                self._pending.values()
                if keys is None
                else [self._pending[each] for each in keys if each in self._pending]
            )
        return waited

    def _rewrite(self, index: int) -> None:
        try:
            self.topic.rewrite(index, self._coordinator.snapshot(kept_in(index)))
        except (BatchError, OSError) as error:
            # The stored records stay valid; the next step that grows the partition tries again.
            _log.warning("%s-%d could not be rewritten: %s", self.topic.name, index, error)

    # Loading and giving up

    def start(self) -> None:
        """Load what an earlier broker has stored."""
        if self.topic.exists:
            for partition in self.topic.partitions():
                self._load(partition.index)

    def reload(self, index: int) -> None:
        """Forget the keys of one partition and load them from the log, as a node does that takes it over."""
        self._unload(kept_in(index))
        self._load(index)

    def on_new_leader(self, partition: Partition) -> None:
        """A partition has another leader, or none: if it keeps keys of ours, they have another coordinator."""
        if partition.topic.name == self.topic.name:
            self.reload(partition.index)

    def topic_deleted(self, topic: str) -> None:
        """With the topic that keeps them, all keys go."""
        if topic == self.topic.name:
            self.topic.forget()
            self._unload(lambda _: True)

    def _unload(self, owns: Owns) -> None:
        deliver(self._amended(self._coordinator.unload(self._now(), owns).answers))

    def _load(self, index: int) -> None:
        """A partition without a leader has no coordinator: its keys are loaded when it gets one."""
        if not self.topic.exists or self.topic.partition(index).leader_id < 0:
            return
        owns = kept_in(index)
        for each in self.topic.read(index):
            if isinstance(each, Ended):
                self._ended(each, owns)
            else:
                self._coordinator.replay(each)
        self._settle(self._coordinator.loaded(self._now(), owns))


def kept_in(index: int) -> Owns:
    """Returns whether the partition ``index`` of the topic keeps a key."""
    return lambda key: coordinator_partition(key) == index
