"""Every call of a share consumer as a generator of waits: one text for the thread and the asyncio shell (G1, KIP-932).

The public classes document the calls and carry them out, each in its way. Application side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from kadence.client.waits import Waits
from kadence.clock import Clock, Seconds
from kadence.config import ShareConsumerConfig
from kadence.consumer.application.arguments import (
    callback_of,
    cap,
    refuse_own_dead_letters,
    topic_name,
    topic_names,
)
from kadence.consumer.application.client_calls import ClientCalls
from kadence.consumer.decoded_records import Records
from kadence.errors import IllegalStateError, KafkaError
from kadence.metrics import MetricName
from kadence.records import ALL_COLUMNS, Record
from kadence.share.acknowledgements import AcknowledgeType
from kadence.share.application.core import ShareCore
from kadence.share.application.polls import as_pairs
from kadence.share.share_state import ShareState
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kadence.consumer.application.health import Health
    from kadence.share.application.metrics import ShareMetrics

__all__ = ["ShareCalls"]


class ShareCalls(ClientCalls):
    """What each call of a share consumer does."""

    _core: ShareCore
    _config: ShareConsumerConfig

    def __init__(
        self,
        config: ShareConsumerConfig,
        shared_state: ShareState,
        core: ShareCore,
        clock: Clock,
        *,
        awaits: bool,
    ) -> None:
        super().__init__(config, shared_state, core, clock, awaits=awaits)
        self._shared_state = shared_state
        self._metrics: ShareMetrics | None = None

    # ------------------------------------------------------------ what to read

    def subscribe(self, topics: str | Iterable[str]) -> Waits[None]:
        core = self._core
        core.results.refuse_inside("subscribe()")
        names = topic_names(topics)
        if not names:
            yield from core.unsubscribe(self._deadline(None))
            return
        refuse_own_dead_letters(self._config.dead_letter_topic, names)
        yield from core.subscribe(names, self._deadline(None))

    def unsubscribe(self, timeout: Seconds | None) -> Waits[None]:
        self._core.results.refuse_inside("unsubscribe()")
        return super().unsubscribe(timeout)

    def subscription(self) -> frozenset[str]:
        return self._core.chosen.subscribed or frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        return self._shared_state.assignment

    # ------------------------------------------------------------ records

    def poll_buffered(self, timeout: Seconds, max_records: int | None) -> Records[Any, Any] | None:
        """What can be had without waiting or looking at anything else (C6); None when there is more to do."""
        core = self._core
        core.results.refuse_inside("poll()")
        limit = cap(max_records, self._config.max_poll_records)
        if (decoding := core.buffer.decoding) is not None:
            decoding.until = self._until(timeout)
        found = core.polls.poll_buffered(limit)
        return None if found is None else Records(found)

    def poll(self, timeout: Seconds, max_records: int | None) -> Waits[Records[Any, Any]]:
        self._look_at_unit(timeout)
        limit = cap(max_records, self._config.max_poll_records)
        return Records(as_pairs((yield from self._core.polls.poll(self._until(timeout), limit))))

    def poll_arrow(
        self, timeout: Seconds, max_records: int | None, headers: bool, columns: Sequence[str] | None
    ) -> Waits[pyarrow.Table]:
        # pyarrow is an extra, and takes a third of a second to import.
        from kadence.share.application.tables import ShareTable

        core = self._core
        core.results.refuse_inside("poll_arrow()")
        table = ShareTable(columns, headers=headers)
        limit = cap(max_records, self._config.max_poll_records)
        # A row that is renewed comes back as a record.
        made = ALL_COLUMNS if core.holding.is_explicit else table.own
        chunks = yield from core.polls.poll(self._until(timeout), limit, decodes=False, columns=made)
        return table.of(chunks)

    # ------------------------------------------------------------ acknowledging

    def acknowledge(self, what: Any, place: tuple[Any, ...], kind: AcknowledgeType | None) -> None:
        core = self._core
        if core.results.running:
            core.results.refuse_inside("acknowledge()")
        holding = core.holding
        if not holding.is_explicit:
            raise IllegalStateError(
                "acknowledge() needs share.acknowledgement.mode=explicit; in implicit mode the next poll() or commit() "
                "accepts what the last poll() returned"
            )
        core.polls.end_steps()
        if type(what) is Record:
            holding.say(what.topic, what.partition, what.offset, _type_of(place, kind))
        elif isinstance(what, str):
            if not 2 <= len(place) <= 3:
                raise TypeError(
                    "acknowledge(topic, partition, offset, type): a partition and an offset are wanted"
                )
            said = _type_of(place[2:], kind)
            holding.say(topic_name(what), index(place[0]), index(place[1]), said)
        elif hasattr(what, "column_names"):
            from kadence.share.application.tables import runs_of

            holding.say_of_runs(runs_of(what), _type_of(place, kind))
        elif isinstance(what, Iterable) and not (
            isinstance(what, bytes | Mapping) or hasattr(what, "columns")
        ):
            holding.say_of_all(tuple(what), _type_of(place, kind))
        else:
            # It may be the value of a record (S3).
            raise TypeError(
                "acknowledge() takes a record, several, a table of poll_arrow(), or a topic's name, not "
                f"{type(what).__name__}"
            )
        if not core.polls.is_taking:
            holding.marks.open()

    def commit(self, timeout: Seconds | None) -> Waits[dict[TopicPartition, KafkaError | None]]:
        self._core.results.refuse_inside("commit()")
        return self._core.commit(self._deadline(timeout))

    def commit_async(self) -> Waits[None]:
        self._core.results.refuse_inside("commit_async()")
        return self._core.commit_async()

    def set_callback(self, callback: Callable[..., Any] | None) -> None:
        self._core.results.call(
            callback_of(callback, awaits=self._awaits, takes="(partition, offsets, error)")
        )

    def lock_timeout(self) -> float | None:
        ms = self._shared_state.lock_timeout_ms
        return None if ms is None else ms / 1000

    # ------------------------------------------------------------ what was measured

    def health(self) -> Health:
        # Most consumers are never asked.
        from kadence.consumer.application.health import Health, hindrances, ills

        now = self._clock.now_ms()
        core = self._core
        wrong = tuple(ills(core, self._shared_state, now))
        hindering = tuple(hindrances(core, self._shared_state.measures.group, now))
        if core.exchange.fatal is not None and not core.exchange.closed:
            hindering = (*hindering, f"the group refuses it: {core.exchange.fatal}")
        return Health(not wrong, not (wrong or hindering), (*wrong, *hindering))

    def metrics(self) -> Mapping[MetricName, float]:
        metrics = self._metrics
        if metrics is None:
            # Not loaded before they are asked for, which most consumers never are.
            from kadence.share.application.metrics import ShareMetrics

            metrics = self._metrics = ShareMetrics(self._config.client_id, self._shared_state, self._core)
        return metrics.read(self._clock.now_ms())

    # ------------------------------------------------------------ the end

    def close(self, deadline: int, *, processed_only: bool = False, leave: bool | None = None) -> Waits[None]:
        self._core.results.refuse_inside("close()")
        return super().close(deadline, processed_only=processed_only, leave=leave)

    def describe(self, kind: str) -> str:
        """One line of state, for the repr."""
        return self._described(kind, len(self._shared_state.assignment))


def _type_of(place: tuple[Any, ...], kind: AcknowledgeType | None) -> int:
    """The type that was given by its place or its name; accept when none was."""
    if len(place) > 1 or (place and kind is not None):
        raise TypeError("acknowledge() takes one type")
    given = place[0] if place else kind
    if given is None:
        return _ACCEPT
    if type(given) is not AcknowledgeType:
        raise TypeError(f"a type is AcknowledgeType.ACCEPT, RELEASE, REJECT or RENEW, not {given!r}")
    return given.value


_ACCEPT = AcknowledgeType.ACCEPT.value
