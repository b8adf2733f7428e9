"""One consumer's application side, without a way to wait: subscriptions, commits, the end. Application side.

It is given its parts: `kadence.consumer.assembly.core_of` makes them. Polls are `polls.Polls`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kadence.client.engine import Engine
from kadence.client.waits import Waits
from kadence.clock import Clock
from kadence.config import ConsumerConfig
from kadence.consumer import events as m
from kadence.consumer.application.callbacks import AsyncRebalanceListener, Interceptors, Rebalancing
from kadence.consumer.application.client_core import Chosen, ClientCore
from kadence.consumer.application.commits import Commits
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.known_assignment import KnownAssignment
from kadence.consumer.application.polls import Polls
from kadence.consumer.application.processing import Stalls
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.errors import IllegalStateError, InvalidGroupIdError, KafkaTimeoutError
from kadence.types import TopicPartition

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import DeadLetters, LetterProducers
    from kadence.work.driver import Insides

__all__ = ["Core"]


class Core(ClientCore):
    """One consumer's application side.

    Attributes:
        known: the assignment as the program knows it. commits, polls, interceptors: other parts of it.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        shared_state: SharedState,
        engine: Engine,
        clock: Clock,
        *,
        chosen: Chosen,
        exchange: Exchange,
        known: KnownAssignment,
        commits: Commits,
        rebalancing: Rebalancing,
        polls: Polls,
        stalls: Stalls,
        interceptors: Interceptors | None,
        dead_letters: DeadLetters | None,
    ) -> None:
        super().__init__(
            shared_state,
            engine,
            clock,
            chosen=chosen,
            exchange=exchange,
            stalls=stalls,
            dead_letters=dead_letters,
            request_timeout_ms=config.request_timeout_ms,
            processing_timeout_ms=config.processing_timeout_ms,
        )
        self.config = config
        self.known = known
        self.commits = commits
        self.polls = polls
        self.interceptors = interceptors
        self._shared_state = shared_state
        self._rebalancing = rebalancing
        self.is_in_callback = rebalancing.is_inside
        self.is_inside_elsewhere = polls.steps.is_inside_elsewhere
        self.is_taking = lambda: polls.steps.is_taking
        self.has_deserializers = polls.decoding is not None

    @property
    def listener(self) -> AsyncRebalanceListener | None:
        """Told of partitions that come and go."""
        return self._rebalancing.listener

    @listener.setter
    def listener(self, listener: AsyncRebalanceListener | None) -> None:
        self._rebalancing.listener = listener

    @property
    def lost(self) -> frozenset[TopicPartition]:
        """What the group has taken from this member, of which no poll has told yet."""
        return frozenset() if self.chosen.by_hand else self.exchange.lost

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """What is assigned, whether the program was told of it or not. Any thread."""
        return frozenset(self._shared_state.shared_partitions)

    @property
    def rebalances(self) -> list[m.Rebalance]:
        """The last rebalances, oldest first."""
        return self.exchange.rebalances

    def subscribe(
        self,
        topics: frozenset[str] | None,
        pattern: str | None,
        regex: str | None,
        listener: AsyncRebalanceListener | None,
        deadline: int,
    ) -> Waits[None]:
        """Replace the subscription. Once this returns no record of a topic that left it is returned by a poll."""
        self.forgive()
        chosen = self.chosen
        chosen.times += 1
        chosen.subscribed, chosen.pattern, self.listener = topics, pattern or regex, listener
        chosen.patterns = pattern, regex
        self._shared_state.wants_polled = True
        self._shared_state.attention.up = True
        yield from self.hand_over(
            m.Subscribe,
            deadline,
            topics=topics,
            pattern=pattern,
            has_listener=listener is not None,
            regex=regex,
        )

    def seek(
        self, shared_partition: SharedPartition, offset: int, leader_epoch: int | None, deadline: int
    ) -> Waits[None]:
        """Read a partition from there on, while this assignment of it stands."""
        yield from self.hand_over(
            m.Seek, deadline, shared_partition=shared_partition, offset=offset, leader_epoch=leader_epoch
        )

    def placed(self, partition: TopicPartition, deadline: int) -> Waits[Origin]:
        """The position, as soon as it is known."""
        began = self.clock.now_ms()
        while (at := self.known.shared_partition(partition).current()) is None:
            self.check()
            if partition in self.lost:
                raise IllegalStateError(
                    f"{partition} was lost: the next poll reports it, and looks up its position"
                )
            now = self.clock.now_ms()
            if now >= deadline:
                raise KafkaTimeoutError(
                    f"no position for {partition} yet: {self.known.shared_partition(partition).why_unplaced()}"
                )
            yield min(deadline, self.exchange.grace.wait_until(now, began))
        return at

    def auto_commit_now(self, deadline: int, *, processed_only: bool) -> Waits[None]:
        """Commit before something ends (close, assign), if there is anything to read at all."""
        if self.chosen.is_anything:
            yield from self.commits.commit_now(deadline, processed_only=processed_only)

    def inside(self, run: Callable[[Waits[Any]], Any], producers: LetterProducers, aside: Aside) -> Insides:
        # Most consumers do not need it.
        from kadence.consumer.application.inside import Inside

        return Inside(self, self._shared_state, run, producers, aside)

    def need_group(self, what: str) -> None:
        if self.config.group_id is None:
            more = "; without a group assign_topics() reads all of a topic" if what == "subscribe()" else ""
            raise InvalidGroupIdError(f"{what} needs group.id{more}")

    # ------------------------------------------------------------ the end

    def _before_unsubscribing(self, deadline: int) -> Waits[None]:
        if self.chosen.by_hand:
            self.commits.commit_soon()
            # No callback tells of the end of it.
            self.known.forget()
        yield from self.commits.keep(self._half_way(deadline))

    def _before_closing(self, deadline: int, *, processed_only: bool) -> Waits[None]:
        yield from self.auto_commit_now(self._half_way(deadline), processed_only=processed_only)
        yield from self.commits.keep(self._half_way(deadline))

    def _serving_until(self, deadline: int) -> Callable[[], Waits[None]]:
        return partial(self._rebalancing.leave, self._half_way(deadline))

    def _run_callbacks(self) -> Waits[None]:
        return self.commits.run_callbacks()

    def _forget(self) -> None:
        self.listener = None
        self.known.forget()

    def _drop(self) -> None:
        self._shared_state.shared_partitions = {}
        self.known.forget()
        self.polls.collector.drop_all()
        if self.interceptors is not None:
            self.interceptors.close()
