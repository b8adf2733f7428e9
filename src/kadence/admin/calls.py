"""Makes admin calls: sends requests, waits for answers, and repeats after retriable errors until the deadline.

There is no thread here: the thread that makes a call drives the network client, one call at a time under a lock. A
call is a function of the items still open; `Calls.settle` repeats it for those whose error is retriable.

It remembers leaders and coordinators from one call to the next, so that a call that is repeated often costs one
round trip. After any error it forgets all of them. Old ones do no harm: brokers refuse requests for partitions and
groups that they do not lead or coordinate.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from kadence.admin.values import Outcomes
from kadence.clock import Clock, Seconds, add_ms, to_ms
from kadence.config import AdminConfig
from kadence.connection.backoff import Backoff
from kadence.connection.request import ANY_NODE, Request
from kadence.errors import (
    BrokerError,
    ClosedError,
    ConnectError,
    ForkedError,
    KafkaError,
    KafkaTimeoutError,
    MalformedMessageError,
    for_code,
)
from kadence.net import ConnectionConfig, NetworkClient
from kadence.protocol import error_codes as ec
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kadence.types import Node, TopicPartition

__all__ = ["ANY_NODE", "Ask", "Attempt", "Calls", "refusal"]

K = TypeVar("K")
V = TypeVar("V")

Attempt = Callable[[Collection[K], int], Mapping[K, V | KafkaError]]
"""One try for the open items with a deadline (absolute ms): the value or the error of each."""

PATIENCE_MS: Final = 1_000
"""How long a topic may be unknown to a broker before that is an error: a new one takes a moment to spread."""

_PRESENCE: Final = frozenset({ec.UNKNOWN_TOPIC_OR_PARTITION, ec.UNKNOWN_TOPIC_ID})


class Ask:
    """One request of a call: what, to whom, and in which versions."""

    __slots__ = ("max_version", "message", "min_version", "node_id")

    def __init__(
        self,
        message: Any,
        node_id: int = ANY_NODE,
        *,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> None:
        self.message = message
        self.node_id = node_id
        self.min_version = min_version
        self.max_version = max_version


class Calls:
    """Sends the admin client's requests, waits for the answers and repeats what failed until the deadline."""

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._client = NetworkClient(ConnectionConfig.of(config), clock)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._is_ending = False
        self._is_closed = False
        self._given_up: threading.Event | None = None
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._coordinators: dict[str, int] = {}

    def deadline(self, timeout: Seconds | None) -> int:
        """When a call that starts now must end; None takes ``default.api.timeout.ms``."""
        wait_ms = to_ms(timeout)
        return add_ms(
            self._clock.now_ms(), self._config.default_api_timeout_ms if wait_ms is None else wait_ms
        )

    def left_ms(self, deadline: int) -> int:
        """How long brokers may take: until the deadline, and at most for ``request.timeout.ms``."""
        return max(0, min(deadline - self._clock.now_ms(), self._config.request_timeout_ms))

    @contextmanager
    def until(self, given_up: threading.Event) -> Iterator[None]:
        """Make one call that ends once ``given_up`` is set and `wakeup` was called."""
        with self._lock:
            self._given_up = given_up
            try:
                yield
            finally:
                self._given_up = None

    def wakeup(self) -> None:
        """Let a call look whether it was given up. Any thread."""
        self._client.wakeup()

    # ------------------------------------------------------------ one request, several requests

    def ask(self, ask: Ask, deadline: int) -> Any:
        """The answer to one request.

        Raises:
            TransportError: it could not be sent or was not answered.
        """
        (answer,) = self.ask_all([ask], deadline)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def ask_all(self, asks: Sequence[Ask], deadline: int) -> list[Any | KafkaError]:
        """The answer or the transport error of each, asked at the same time."""
        with self._lock:
            self.check_usable()
            now = self._clock.now_ms()
            send_by = min(deadline, add_ms(now, self._config.request_timeout_ms))
            requests = [
                Request(
                    ask.message,
                    ask.node_id,
                    send_by,
                    min_version=ask.min_version,
                    max_version=ask.max_version,
                )
                for ask in asks
            ]
            answers: dict[Request, Any | KafkaError] = {}
            for request in requests:
                self._client.send(request)
            while len(answers) < len(requests):
                now = self._clock.now_ms()
                if now >= deadline and answers.keys() != set(requests):
                    # Answers that still come belong to nobody.
                    for request in requests:
                        answers.setdefault(request, self._too_late(request))
                    break
                self._check_wanted()
                for completed in self._client.poll(max(0, deadline - now)):
                    if completed.loan is not None:
                        completed.loan.release()
                    answers[completed.request] = (
                        completed.response if completed.error is None else completed.error
                    )
                answers = {request: answers[request] for request in requests if request in answers}
            return [answers[request] for request in requests]

    def _too_late(self, request: Request) -> KafkaTimeoutError:
        why = self._client.trouble()
        late = KafkaTimeoutError(
            f"{request.name} was not answered in time by {','.join(self._config.bootstrap_servers)}"
            + (f": {why}" if why else "")
        )
        if why and self._client.is_cut_off():
            late.__cause__ = ConnectError(why)
        return late

    # ------------------------------------------------------------ repeating

    def settle(
        self,
        items: Iterable[K],
        attempt: Attempt[K, V],
        deadline: int,
        *,
        patience_ms: int = PATIENCE_MS,
    ) -> Outcomes[K, V]:
        """Try until each item has a value or an error that does not pass, or the deadline comes.

        Args:
            patience_ms: how long UNKNOWN_TOPIC_OR_PARTITION counts as passing.
        """
        with self._lock:
            open_items = list(dict.fromkeys(items))
            result: Outcomes[K, V] = Outcomes()
            order = {item: index for index, item in enumerate(open_items)}
            patient_until = add_ms(self._clock.now_ms(), patience_ms)
            backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
            again: dict[K, KafkaError] = {}
            while open_items:
                try:
                    answers = attempt(open_items, deadline)
                except KafkaError as error:
                    answers = dict.fromkeys(open_items, error)
                if any(isinstance(answer, KafkaError) for answer in answers.values()):
                    self._topics.clear()
                    self._coordinators.clear()
                now = self._clock.now_ms()
                before, again = again, {}
                for item in open_items:
                    answer = answers.get(item)
                    if not isinstance(answer, KafkaError):
                        if item not in answers:
                            result.errors[item] = MalformedMessageError(f"the broker's answer lacks {item}")
                        else:
                            result[item] = answer  # type: ignore[assignment]
                    elif _passes(answer, now < patient_until):
                        again[item] = answer
                    elif isinstance(answer, KafkaTimeoutError) and item in before:
                        # Why it had to be tried again says more than that the last try was cut short.
                        result.errors[item] = self._gave_up(item, before[item])
                    else:
                        result.errors[item] = answer
                open_items = list(again)
                backoff.failed(now)
                if again and backoff.until >= deadline:
                    for item, last_error in again.items():
                        result.errors[item] = self._gave_up(item, last_error)
                    break
                if again:
                    self._pause(backoff.until)
            return Outcomes(
                {item: result[item] for item in sorted(result, key=order.__getitem__)},
                {item: result.errors[item] for item in sorted(result.errors, key=order.__getitem__)},
            )

    def settle_one(self, attempt: Callable[[int], V], deadline: int) -> V:
        """As `settle`, for a call without items; raises what remains."""
        outcomes: Outcomes[str, V] = self.settle(
            ["the answer"], lambda items, deadline: dict.fromkeys(items, attempt(deadline)), deadline
        )
        outcomes.raise_errors()
        return outcomes["the answer"]

    def _gave_up(self, item: object, error: KafkaError) -> KafkaError:
        late = KafkaTimeoutError(f"{item}: not done in time; the last error was {error}")
        late.__cause__ = error
        return late

    def _pause(self, until: int) -> None:
        while (now := self._clock.now_ms()) < until:
            self._check_wanted()
            self._client.poll(until - now)

    # ------------------------------------------------------------ who to ask

    def metadata(self, topics: Iterable[str] | None, deadline: int) -> MetadataResponse:
        """What a broker knows of these topics (None: all) and of the brokers. Never creates a topic."""
        message = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        response: MetadataResponse = self.ask(Ask(message, min_version=4), deadline)
        self._client.set_nodes(
            Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        )
        if topics is not None:
            self._topics.update({topic.name: topic for topic in response.topics if topic.name})
        return response

    def topics(
        self, partitions: Collection[TopicPartition], deadline: int
    ) -> Mapping[str, MetadataResponseTopic]:
        """What is known of the topics of these partitions; asks unless each partition has a leader by what is kept."""
        names = sorted({tp.topic for tp in partitions})
        led = {
            (name, each.partition_index)
            for name in names
            if name in self._topics and not self._topics[name].error_code
            for each in self._topics[name].partitions
            if each.leader_id >= 0
        }
        if not led.issuperset(partitions):
            self.metadata(names, deadline)
        return self._topics

    def controller(self, deadline: int) -> int:
        """The broker that takes changes of topics."""
        response = self.metadata([], deadline)
        if response.controller_id < 0:
            raise for_code(ec.NOT_CONTROLLER, "the cluster has no controller at the moment")
        return response.controller_id

    def coordinators(self, groups: Collection[str], deadline: int) -> dict[str, int | KafkaError]:
        """The coordinator of each group."""
        self.metadata([], deadline)
        # Versions above 3 take many keys at once, but every broker still has the old form.
        answers = self.ask_all(
            [Ask(FindCoordinatorRequest(key=group), max_version=3) for group in groups], deadline
        )
        found: dict[str, int | KafkaError] = {}
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, KafkaError):
                found[group] = answer
            elif answer.error_code:
                found[group] = for_code(
                    answer.error_code, f"group {group!r}: {answer.error_message or 'no coordinator'}"
                )
            else:
                found[group] = answer.node_id
        return found

    def coordinator(self, group: str, deadline: int) -> int:
        """The coordinator of one group, which is kept; raises instead of giving an error."""
        if group not in self._coordinators:
            found = self.coordinators([group], deadline)[group]
            if isinstance(found, KafkaError):
                raise found
            self._coordinators[group] = found
        return self._coordinators[group]

    # ------------------------------------------------------------ the end

    def check_usable(self) -> None:
        """Raise if this client cannot be used (any more)."""
        if os.getpid() != self._pid:
            raise ForkedError("this admin client was made before fork(); make one in the child")
        if self._is_ending:
            raise ClosedError("this admin client is closed")

    def _check_wanted(self) -> None:
        if self._is_ending or (self._given_up is not None and self._given_up.is_set()):
            raise ClosedError("this admin client was closed during the call")

    def close(self) -> None:
        """Close the connections. A call that another thread makes ends with `ClosedError`."""
        self._is_ending = True
        if os.getpid() != self._pid:
            # The parent's sockets; nothing here is ours to end.
            self._is_closed = True
            return
        self.wakeup()
        with self._lock:
            self._is_closed = True
            self._client.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed


def refusal(code: int, what: object, message: str | None = None) -> KafkaError:
    """The error of a broker's answer about ``what``, with the broker's own words where it has any."""
    return for_code(code, f"{what}: {message or ec.MESSAGES.get(code, 'the broker refused')}")


def _passes(error: KafkaError, is_patient: bool) -> bool:
    """Whether the same call may succeed in a moment."""
    if isinstance(error, BrokerError):
        if error.code in _PRESENCE:
            return is_patient
        return error.retriable
    # A KafkaTimeoutError means that the deadline is over; anything else retriable is the way to a broker.
    return error.retriable and not isinstance(error, KafkaTimeoutError)
