"""One member of a group: its managers, put together as a consumer has them, and a small application before them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.worlds.cluster import FakeMetadata
from tests.worlds.hand import START, BackgroundEvents, Managers

from kadence.client.surroundings import Done, FinishedJobs
from kadence.config import ConsumerConfig
from kadence.connection.request import Request
from kadence.consumer import events as m
from kadence.consumer.application.callbacks import without_void
from kadence.consumer.client_state import Progress
from kadence.consumer.group.auto import AutoMembership
from kadence.consumer.group.classic_member import ClassicMembership
from kadence.consumer.group.commit import CommitRequestManager
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.heartbeat import HeartbeatRequestManager
from kadence.consumer.group.kip848_member import ConsumerMembership
from kadence.consumer.subscription import Subscription
from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = ["Member"]


class FakeJobs(FinishedJobs):
    """Jobs wait until `run`."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.waiting: list[tuple[Callable[[], object], Done]] = []

    def submit(self, work: Callable[[], object], done: Done) -> None:
        self.waiting.append((work, done))

    def run(self, now: int) -> None:
        waiting, self.waiting = self.waiting, []
        for work, done in waiting:
            self._do(work, done)
            self.deliver(now)


class Member(Managers):
    """The network side of one consumer, and an application that polls unless it is told to work.

    Attributes:
        busy: the application processes and does not poll, so callbacks wait.
        background_events: everything told to the application, in order.
        history: names of callbacks run, with their partitions.
    """

    def __init__(
        self,
        name: str,
        topics: Mapping[str, int],
        *,
        protocol: str = "classic",
        has_listener: bool = False,
        subscribe: Iterable[str] = (),
        **config: Any,
    ) -> None:
        self.name = name
        # As the consumer itself is made, without what the configuration's own reader would add or refuse.
        self.config = ConsumerConfig(**{"group_id": "g", "group_protocol": protocol, **config})
        self.background_events = BackgroundEvents()
        self.history: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.busy = False
        self.jobs = FakeJobs()
        self.metadata = FakeMetadata(topics)
        self.progress = Progress()
        self.subscription = Subscription()
        self.coordinator = CoordinatorRequestManager("g", self.config, self.background_events)
        self.membership: Any = self._membership(protocol)
        self.heartbeat = HeartbeatRequestManager(
            self.coordinator, self.membership, self.progress, self.config, self.background_events
        )
        self.commits = CommitRequestManager(
            self.coordinator, self.membership, self.metadata, self.config, self.background_events
        )
        super().__init__(self.coordinator, self.commits, self.heartbeat, self.membership)
        self._ids = itertools.count(1)
        self._has_listener = has_listener
        self._served = 0
        if subscribe:
            self.subscribe(START, subscribe)

    def _membership(self, protocol: str) -> Any:
        ids = itertools.count(1)

        def classic() -> ClassicMembership:
            return ClassicMembership(
                self.coordinator,
                self.subscription,
                self.metadata,
                self.config,
                self.jobs,
                self.background_events,
            )

        def kip848(min_version: int) -> ConsumerMembership:
            return ConsumerMembership(
                self.coordinator,
                self.subscription,
                self.metadata,
                self.config,
                self.background_events,
                lambda: f"{self.name}{next(ids)}",
                min_version=min_version,
            )

        if protocol == "classic":
            return classic()
        if protocol == "consumer":
            return kip848(0)
        self.parts = classic(), kip848(1)
        """The two that auto chooses from."""
        member, other = self.parts
        return AutoMembership(self.coordinator, other, self.config, self.jobs, lambda: lambda: member)

    # -- the application

    def subscribe(self, now: int, topics: Iterable[str]) -> None:
        self.subscription.subscribe(frozenset(topics), None, has_listener=self._has_listener)
        self.membership.subscription_changed(now)

    def work(self, now: int) -> None:
        """From now on the application processes and does not poll."""
        self.busy = True
        self.progress.leave_poll(now)

    def poll(self, now: int) -> None:
        """The application waits for records from now on."""
        self.busy = False
        self.progress.enter_poll(now)

    def serve(self, now: int) -> None:
        """What the application does inside poll: asking to join, and rebalance callbacks."""
        if self.busy:
            return
        if self.membership.needs_polled:
            self.membership.polled(now)
        self.run_callbacks(now)

    def run_callbacks(self, now: int) -> list[tuple[str, tuple[TopicPartition, ...]]]:
        """Run the callbacks that wait; returns them."""
        ran = []
        while unread := self.unread:
            self._served = len(self.background_events)
            for event in without_void(event for event in unread if isinstance(event, m.CallbackNeeded)):
                ran.append((type(event).__name__, event.partitions))
                self.membership.callback_done(now, event.id, None)
        self.history += ran
        return ran

    @property
    def unread(self) -> list[Any]:
        """Background events that the application has not looked at."""
        return self.background_events[self._served :]

    def commit(
        self,
        now: int,
        offsets: dict[TopicPartition, int],
        *,
        retry: bool = True,
        timeout: int = 60_000,
        parting: bool = False,
    ) -> int:
        call_id = next(self._ids)
        values = {p: OffsetAndMetadata(o) for p, o in offsets.items()}
        self.commits.commit(now, m.Commit(call_id, now + timeout, values, retry, parting))
        return call_id

    def fetch_committed(self, now: int, partitions: Iterable[TopicPartition], timeout: int = 60_000) -> int:
        call_id = next(self._ids)
        self.commits.fetch_committed(now, m.FetchCommitted(call_id, now + timeout, frozenset(partitions)))
        return call_id

    # -- to look at

    @property
    def owned(self) -> list[TopicPartition]:
        return sorted(self.subscription.partitions)

    @property
    def flowing(self) -> list[TopicPartition]:
        """Owned, and handed out."""
        return [p for p in self.owned if not self.subscription.partitions[p].shared_partition.revoking]

    def of(self, kind: type[Any]) -> list[Any]:
        return self.background_events.of(kind)

    def answer_to(self, call_id: int) -> m.Answer | None:
        return next((event for event in self.of(m.Answer) if event.id == call_id), None)

    @property
    def causes(self) -> list[str]:
        return self.background_events.causes

    # -- the network thread

    def turn(self, now: int) -> tuple[list[Request], int]:
        """One pass over the managers: what they send, and when they must be asked again."""
        self.jobs.run(now)
        requests, wake_at = self.poll_all(now)
        return requests, now if self.jobs.waiting else wake_at
