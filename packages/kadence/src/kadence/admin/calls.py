"""Makes admin calls: finds out whom to ask, asks, and repeats after retriable errors until the deadline.

A call is a generator of waits (`kadence.client.waits`), which a shell carries: `shell.AdminShell` on the calling
thread, `async_shell.AsyncAdminShell` on an event loop. `Calls.settle` repeats a function of the items still open for
those whose error is retriable. Calls of several threads and tasks run side by side; `network.Network` sends the
requests of all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kadence.admin.asking import Ask, Asking
from kadence.admin.direct_calls import KnownTopics
from kadence.admin.values import Outcomes
from kadence.client.coordinators import FindCoordinatorRequest, KeyType, find, first_version, read
from kadence.client.metadata import by_names, fault_of
from kadence.client.waits import Waits
from kadence.clock import add_ms
from kadence.connection.request import ANY_NODE, Backoff
from kadence.errors import (
    BrokerError,
    KafkaError,
    KafkaTimeoutError,
    MalformedMessageError,
    UnsupportedVersionError,
    for_code,
)
from kadence.printable import printable
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataResponse, MetadataResponseTopic
from kadence.types import Node, TopicPartition

__all__ = ["ANY_NODE", "Ask", "Attempt", "Calls", "operation", "refusal"]

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

Attempt = Callable[[Collection[K], int], Waits[Mapping[K, V | KafkaError]]]
"""One try for the open items with a deadline (absolute ms): the value or the error of each."""

PATIENCE_MS: Final = 1_000
"""The time for which a topic may be unknown to a broker without an error: a new one takes a moment to spread."""

_PRESENCE: Final = frozenset({ec.UNKNOWN_TOPIC_OR_PARTITION, ec.UNKNOWN_TOPIC_ID})


class Calls(Asking):
    """One call: repeats what failed until the deadline, and finds out whom to ask."""

    def settle(
        self,
        items: Iterable[K],
        attempt: Attempt[K, V],
        deadline: int,
        *,
        patience_ms: int = PATIENCE_MS,
    ) -> Waits[Outcomes[K, V]]:
        """Try until each item has a value or an error that does not pass, or the deadline comes.

        Args:
            patience_ms: how long UNKNOWN_TOPIC_OR_PARTITION counts as passing.
        """
        open_items = list(dict.fromkeys(items))
        result: Outcomes[K, V] = Outcomes()
        order = {item: index for index, item in enumerate(open_items)}
        patient_until = add_ms(self._clock.now_ms(), patience_ms)
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        again: dict[K, KafkaError] = {}
        while open_items:
            try:
                answers = yield from attempt(open_items, deadline)
            except KafkaError as error:
                answers = dict.fromkeys(open_items, error)
            if any(isinstance(answer, KafkaError) for answer in answers.values()):
                self._leaders.forget()
            now = self._clock.now_ms()
            before, again = again, {}
            for item in open_items:
                answer = answers.get(item)
                if not isinstance(answer, KafkaError):
                    if item not in answers:
                        result.errors[item] = MalformedMessageError(
                            f"the broker's answer lacks {printable(str(item))}"
                        )
                    else:
                        result[item] = answer  # type: ignore[assignment]
                elif _passes(answer, now < patient_until):
                    again[item] = answer
                elif isinstance(answer, KafkaTimeoutError) and item in before:
                    # Why it had to be tried again says more than that the last try was cut short.
                    result.errors[item] = self._gave_up(item, before[item])
                else:
                    result.errors[item] = answer
            if not (before or again):
                # All have ended at once, in the order in which they were given.
                return result
            open_items = list(again)
            backoff.failed(now)
            if again and backoff.until >= deadline:
                for item, last_error in again.items():
                    result.errors[item] = self._gave_up(item, last_error)
                break
            if again:
                yield from self._wait(backoff.until, lambda: False)
        return Outcomes(
            {item: result[item] for item in sorted(result, key=order.__getitem__)},
            {item: result.errors[item] for item in sorted(result.errors, key=order.__getitem__)},
        )

    def settle_one(self, attempt: Callable[[int], Waits[V]], deadline: int) -> Waits[V]:
        """As `settle`, for a call without items; raises what remains."""
        try:
            return (yield from attempt(deadline))
        except KafkaError as error:
            failed = [error]

        def of_one(items: Collection[str], deadline: int) -> Waits[dict[str, V | KafkaError]]:
            if failed:
                raise failed.pop()
            answer = yield from attempt(deadline)
            return dict.fromkeys(items, answer)

        outcomes: Outcomes[str, V] = yield from self.settle(["the answer"], of_one, deadline)
        outcomes.raise_errors()
        return outcomes["the answer"]

    def _gave_up(self, item: object, error: KafkaError) -> KafkaError:
        late = KafkaTimeoutError(f"{printable(str(item))}: not done in time; last error: {error}")
        late.__cause__ = error
        return late

    # ------------------------------------------------------------ who to ask

    def metadata(self, topics: Iterable[str] | None, deadline: int) -> Waits[MetadataResponse]:
        """A broker's metadata of these topics (None: all) and of the brokers. Never creates a topic."""
        response: MetadataResponse = yield from self.ask(Ask(by_names(topics), min_version=4), deadline)
        if self.known_as(response) is None:
            fault = fault_of(response, rebootstraps=self._network.begins_again)
            if fault is not None:
                raise fault
        if topics is not None:
            self._leaders.at(self._clock.now_ms()).topics.update(
                {topic.name: topic for topic in response.topics if topic.name}
            )
        return response

    def known_as(self, response: MetadataResponse) -> KnownTopics | None:
        """What is known of this response from an earlier call, or already from this one."""
        direct = self._network.direct
        known = None if direct is None else direct.known
        return known if known is not None and known.response is response else None

    def topics(
        self, partitions: Collection[TopicPartition], deadline: int
    ) -> Waits[Mapping[str, MetadataResponseTopic]]:
        """The topics of these partitions; requests metadata unless the cache has a leader of each partition."""
        names = sorted({tp.topic for tp in partitions})
        known = self._leaders.at(self._clock.now_ms()).topics
        led = {
            (name, each.partition_index)
            for name in names
            if (topic := known.get(name)) is not None and not topic.error_code
            for each in topic.partitions
            if each.leader_id >= 0
        }
        if led.issuperset(partitions):
            return known
        response = yield from self.metadata(names, deadline)
        return {topic.name: topic for topic in response.topics if topic.name}

    def controller(self, deadline: int) -> Waits[int]:
        """The broker that takes changes of topics."""
        response = yield from self.metadata([], deadline)
        if response.controller_id < 0:
            raise for_code(ec.NOT_CONTROLLER, "the cluster has no controller at the moment")
        return response.controller_id

    def coordinators(self, groups: Collection[str], deadline: int) -> Waits[dict[str, int | KafkaError]]:
        """The coordinator of each group. They are kept."""
        kept = self._leaders.at(self._clock.now_ms()).coordinators
        unknown = [group for group in groups if group not in kept]
        found: dict[str, int | KafkaError] = {}
        if unknown:
            found = yield from self._find(unknown, deadline, KeyType.GROUP)
        kept.update({group: node for group, node in found.items() if isinstance(node, int)})
        return {group: found[group] if group in found else kept[group] for group in groups}

    def _find(
        self, names: Collection[str], deadline: int, key_type: KeyType
    ) -> Waits[dict[str, int | KafkaError]]:
        yield from self.metadata([], deadline)
        found = yield from self._look_up([find(key_type, *names)], deadline)
        if len(names) > 1 and any(isinstance(each, UnsupportedVersionError) for each in found.values()):
            # Brokers before 3.0.
            found = yield from self._look_up([find(key_type, name) for name in names], deadline)
        return {name: node.node_id if isinstance(node, Node) else node for name, node in found.items()}

    def _look_up(
        self, messages: Sequence[FindCoordinatorRequest], deadline: int
    ) -> Waits[dict[str, Node | KafkaError]]:
        asks = [Ask(each, min_version=first_version(each)) for each in messages]
        answers = yield from self.ask_all(asks, deadline)
        found: dict[str, Node | KafkaError] = {}
        for message, answer in zip(messages, answers, strict=True):
            found |= read(message, answer)
        return found

    def transaction_coordinators(
        self, names: Collection[str], deadline: int
    ) -> Waits[dict[str, int | KafkaError]]:
        """The coordinator of each transactional id. They are kept."""
        kept = self._leaders.at(self._clock.now_ms()).of_transactions
        unknown = [name for name in names if name not in kept]
        found: dict[str, int | KafkaError] = {}
        if unknown:
            found = yield from self._find(unknown, deadline, KeyType.TRANSACTION)
        kept.update({name: node for name, node in found.items() if isinstance(node, int)})
        return {name: found[name] if name in found else kept[name] for name in names}

    def remember_coordinators(self, found: Mapping[str, int]) -> None:
        """Keep the coordinators of these transactional ids from a response."""
        self._leaders.at(self._clock.now_ms()).of_transactions.update(found)

    def coordinator(self, group: str, deadline: int) -> Waits[int]:
        """The coordinator of one group; raises instead of giving an error."""
        found = yield from self.coordinators([group], deadline)
        node = found[group]
        if isinstance(node, KafkaError):
            raise node
        return node


def operation(function: F) -> F:
    """Mark a function as a call of `Admin` and `AsyncAdmin`, which ``tools/generate.py`` makes of it.

    It gets the call, the deadline (absolute ms) and what the user has given, which it checks.
    """
    return function


def refusal(code: int, what: object, message: str | None = None) -> KafkaError:
    """The error of a broker's answer about ``what``, with the broker's own words where it has any."""
    return for_code(code, f"{what}: {message or ec.MESSAGES.get(code, 'the broker refused')}")


def _passes(error: KafkaError, is_patient: bool) -> bool:
    """True if the same call may succeed in a moment."""
    if isinstance(error, BrokerError):
        if error.code in _PRESENCE:
            return is_patient
        return error.retriable
    # A KafkaTimeoutError means that the deadline is over; anything else retriable is the way to a broker.
    return error.retriable and not isinstance(error, KafkaTimeoutError)
