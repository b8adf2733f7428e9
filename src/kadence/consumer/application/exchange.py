"""Sends imperatives to the network side, receives facts, and completes the calls that wait for them. Application side.

A call sends an imperative, and its answer comes back as a fact with the same id (C2). Deadlines are enforced
by the reaper on the network thread; here they only bound the wait should that thread be late. Each wait is a
`Waits` generator: it yields an absolute deadline (ms) when something must cross the border first, or a `Run`
when user code is to be run. It looks at the border each time it is resumed, so a wake-up that was for something
else costs one more look and nothing is ever missed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from kadence.clock import Clock, add_ms
from kadence.consumer.border import messages as m
from kadence.consumer.border.buffer import Border
from kadence.errors import ClosedError, FatalNetworkError, KafkaTimeoutError, WakeupError
from kadence.logs import logger
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["Exchange", "Run", "Waits"]

log = logger("kadence.consumer")

T = TypeVar("T")

_GRACE_MS = 5_000
"""How much later than a call's deadline the application gives up on the network thread itself."""

_HISTORY = 100
"""Rebalances remembered."""


@dataclass(frozen=True, slots=True)
class Run:
    """User code for the shell to run: ``work()``, awaited by an asyncio shell when it returns an awaitable."""

    work: Callable[[], Any]


Waits = Generator[int | Run, None, T]
"""A call: yields deadlines to wait for or user code to run, returns the call's result."""


class Exchange:
    """Sends the application's calls to the network thread, and receives its answers and events.

    Attributes:
        group: this member's identity, as last told. identity: the one that goes with the records that polls have
            returned (C12). rebalances: the last of them.
        callbacks: steps of a rebalance that the application must take (C5), each until its end was told.
        failures: errors that no call caused, for the next poll (B6). fatal: one that every call raises.
        woken: `wakeup` was called and nothing has raised it yet. stopping: `stop` was called: polls return nothing.
        has_records: whether anything that was fetched of a partition under a lease is still to be returned.
        on_commit: takes the end of an asynchronous commit.
        stalled: the stall that was told of and that no poll has ended (B4).
    """

    def __init__(self, border: Border, clock: Clock, group: GroupMetadata) -> None:
        self.group = self.identity = group
        self.rebalances: list[m.Rebalance] = []
        self.callbacks: list[m.CallbackNeeded] = []
        self.failures: list[m.Failed] = []
        self.fatal: Exception | None = None
        self.woken = False
        self.stopping = False
        self.stalled: m.Stalled | None = None
        self.has_records: Callable[[TopicPartition, int], bool] = lambda partition, lease: False
        self.on_commit: Callable[[m.CommitCompleted], None] = lambda fact: None
        self._border = border
        self._clock = clock
        self._ids = 0
        self._answers: dict[int, m.Answer] = {}
        self._expected: set[int] = set()

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def call(self, kind: type[m.Imperative], deadline: int, **fields: Any) -> Waits[Any]:
        """Send an imperative and wait for its answer.

        Raises:
            ClosedError, FatalNetworkError: the network thread has ended. KafkaTimeoutError: the deadline passed.
            WakeupError: wakeup() was called. Or what the answer says.
        """
        self._ready()
        self.raise_wakeup()
        call_id = self.start(kind, deadline, **fields)
        return (yield from self.finish(kind, call_id, deadline))

    def hand_over(self, kind: type[m.Imperative], deadline: int, **fields: Any) -> Waits[None]:
        """Send an imperative and wait until the network thread has carried it out, which needs no broker.

        So there is nothing that a wakeup would have to end: it is for the next call, and so is an error of the
        background. Raises as `call` does apart from that.
        """
        self._ready()
        call_id = self.start(kind, deadline, **fields)
        yield from self.finish(kind, call_id, deadline, heeds_wakeup=False)

    def _ready(self) -> None:
        self.take_facts()
        if self._border.ended:
            self._raise_dead()

    def finish(
        self, kind: type[m.Imperative], call_id: int, deadline: int, *, heeds_wakeup: bool = True
    ) -> Waits[Any]:
        """Wait for the answer to what `start` sent; raises as `call` does."""
        until = add_ms(deadline, _GRACE_MS)
        try:
            while (answer := self.answer(call_id)) is None:
                if heeds_wakeup:
                    self.raise_wakeup()
                if self._border.ended:
                    self._raise_dead()
                until = self._patience(kind, until)
                yield until
                self.take_facts()
        finally:
            self.ignore(call_id)
        if answer.error is not None:
            raise answer.error
        return answer.value

    def start(self, kind: type[m.Imperative], deadline: int, **fields: Any) -> int:
        """Send an imperative whose answer is looked for by `answer`, now and then. Returns its id."""
        call_id = self.next_id()
        self._expected.add(call_id)
        self._border.send(kind(call_id, deadline, **fields))
        return call_id

    def answer(self, call_id: int) -> m.Answer | None:
        """The answer to what `start` sent, once; None while there is none."""
        answer = self._answers.pop(call_id, None)
        if answer is not None:
            self._expected.discard(call_id)
        return answer

    def ignore(self, call_id: int) -> None:
        """Forget the answer to what `start` sent: nobody waits for it any more."""
        self._expected.discard(call_id)
        self._answers.pop(call_id, None)

    def leave(
        self, kind: type[m.Imperative], deadline: int, serve: Callable[[], Waits[None]], **fields: Any
    ) -> Waits[None]:
        """An imperative during which the group asks for callbacks: ``serve`` runs them."""
        call_id = self.start(kind, deadline, **fields)
        until = add_ms(deadline, _GRACE_MS)
        error: Exception | None = None
        while call_id not in self._answers and not self._border.ended:
            self.take_facts()
            try:
                yield from serve()
            except Exception as raised:  # noqa: BLE001 - raised below, once the group is left
                error = error or raised
            if call_id in self._answers:
                break
            until = self._patience(kind, until)
            yield until
        answer = self.answer(call_id)
        if answer is not None and answer.error is not None:
            log.info("%s: %s", m.what_of(kind), answer.error)
        if error is not None:
            raise error

    def _patience(self, kind: type[m.Imperative], until: int) -> int:
        """Until when the network thread may take to answer, which was ``until``.

        Raises:
            KafkaTimeoutError: that is over.
        """
        now = self._clock.now_ms()
        if now >= add_ms(until, _GRACE_MS):
            # Nobody looked for so long: the machine was paused, and the network thread with it.
            return add_ms(now, _GRACE_MS)
        if now >= until:
            raise KafkaTimeoutError(_unanswered(kind))
        return until

    def wakeup(self) -> None:
        """From any thread: end the blocking call under way, or the next one."""
        self.woken = True
        self._border.alert()

    def stop(self) -> None:
        """From any thread, and from a signal handler: polls return nothing from now on."""
        self.stopping = True
        self._border.alert()

    # ------------------------------------------------------------ what came back

    def take_facts(self) -> None:
        facts = self._border.facts
        if not facts:
            return
        began = self._clock.now_ms()
        while facts:
            # Taken out last, and what is done with it may be done again: an interruption loses no fact.
            fact = facts[0]
            if isinstance(fact, m.Answer):
                # An answer nobody waits for belongs to a call that was ended by a wakeup or Ctrl-C.
                if fact.id in self._expected:
                    self._answers[fact.id] = fact
            elif isinstance(fact, m.CallbackNeeded):
                if not self.callbacks or self.callbacks[-1] is not fact:
                    self.callbacks.append(fact)
            elif isinstance(fact, m.CommitCompleted):
                self.on_commit(fact)
            elif isinstance(fact, m.IdentityChanged):
                self.group = fact.group
            elif isinstance(fact, m.RebalanceFinished):
                self.group = fact.group
                if not self.rebalances or self.rebalances[-1] is not fact.rebalance:
                    self.rebalances.append(fact.rebalance)
                del self.rebalances[:-_HISTORY]
            elif isinstance(fact, m.Failed):
                self._failed(fact)
            elif isinstance(fact, m.Stalled):
                self.stalled = fact
            facts.popleft()
        self._border.measures.facts.taken(began, self._clock.now_ms())

    @property
    def lost(self) -> frozenset[TopicPartition]:
        """What was lost, and is told by the next poll. Until then the application may hold records of it."""
        losses = [fact.partitions for fact in self.callbacks if isinstance(fact, m.LosePartitions)]
        return frozenset().union(*losses)

    def adopt_identity(self) -> None:
        """What polls return from now on goes with the present identity, unless a loss is still to be told.

        Only polls call this, and what ends a subscription: whatever else takes facts must not give records of an
        earlier membership the identity of the present one, or a worker that was away commits what others have read.
        """
        if self.identity is not self.group and not self.lost:
            self.identity = self.group

    def _failed(self, fact: m.Failed) -> None:
        """Keep an error for the next call. What is repeated in the background is told once."""
        if fact.fatal:
            self.fatal = fact.error
        # The same words under another lease are another error: the earlier one is void by now.
        elif (str(fact.error), fact.lease) not in ((str(each.error), each.lease) for each in self.failures):
            self.failures.append(fact)

    # ------------------------------------------------------------ what must end a call

    def raise_failure(self) -> None:
        """Raise the first error of the background that is true and in its place.

        One of a position comes after the records that were fetched before it, and again with each poll until a seek
        answers it. Any other is told once.
        """
        place = 0
        while place < len(self.failures):
            failure = self.failures[place]
            if failure.partition is None:
                # Nothing stands in between: Ctrl-C must not take the place of an error that is told only once.
                del self.failures[place]
                raise failure.error
            if not self._stands(failure):
                del self.failures[place]
            elif self.has_records(failure.partition, failure.lease):
                place += 1
            else:
                # Behind the others, so that each of several is told.
                self.failures.append(failure)
                del self.failures[place]
                raise copy.copy(failure.error) from failure.error
        self.raise_fatal()
        if self._border.ended:
            self._raise_dead()

    def raise_fatal(self) -> None:
        """What the group refused this member for, for good: calls that need the group raise it, until subscribe()."""
        if self.fatal is not None:
            raise copy.copy(self.fatal) from self.fatal

    def raise_wakeup(self) -> None:
        if self.woken:
            self.woken = False
            raise WakeupError("wakeup() was called")

    def _stands(self, failure: m.Failed) -> bool:
        """Whether it is still true: an error of a position is void once a seek or an assignment has changed it."""
        if failure.partition is None:
            return True
        cell = self._border.assignment.get(failure.partition)
        return cell is not None and cell.lease == failure.lease

    def _raise_dead(self) -> None:
        cause = self._border.dead
        if cause is None:
            raise ClosedError("this consumer is closed")
        raise FatalNetworkError(
            f"the network thread ended with a bug: {cause!r}; only close() works now"
        ) from cause


def _unanswered(kind: type[m.Imperative]) -> str:
    why = "a C call that holds the GIL may keep it from running"
    return f"{m.what_of(kind)}: the network thread did not answer in time; {why}"
