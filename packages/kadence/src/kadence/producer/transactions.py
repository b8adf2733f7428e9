"""The transactions of a producer: the requests of each state. Sans-IO (KIP-98, KIP-360, KIP-890).

Two versions of the protocol. In the old one the producer adds each partition at the coordinator before it writes
there, and requests a higher epoch after an abort that left something undecided. In transactions v2 (Kafka 4.0, feature
transaction.version) leaders add partitions by themselves, and the end of each transaction raises the epoch, so that
late requests cannot become part of the next one.

The application's thread begins and ends under the producer's lock (`transaction_states`) and waits for the state to
change; the network thread polls, and takes the lock to change it. One request to a coordinator is in flight at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kadence.client.coordinators import KeyType, find, first_version, read
from kadence.client.gate import Gate
from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import add_ms
from kadence.config import ProducerConfig
from kadence.connection.request import ANY_NODE, Backoff, Completed, Request
from kadence.errors import (
    BrokerError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from kadence.lazy_dataclasses import dataclass, field
from kadence.producer import transaction_requests as requests
from kadence.producer.transaction_requests import Outcome
from kadence.producer.transaction_states import ENDING, SENDING, Done, Lifecycle, State
from kadence.protocol import error_codes as ec
from kadence.protocol.txn_offset_commit import TxnOffsetCommitRequest
from kadence.types import GroupMetadata, Node, OffsetAndMetadata, OpenTransaction, TopicPartition

__all__ = ["Transactions"]

_ADD_AGAIN_MS: Final = 20
"""The delay before a request is repeated that came before the previous transaction had ended; as Java's."""

_PATIENCE_MS: Final = 2_000
"""A new topic takes a moment to spread among the brokers. If a coordinator does not know it for longer, it was
deleted. A member of a group has read the topic, so it is not new, and was deleted: the name may come back with another

A member of a group has read the topic, so it is not new, and is gone at once: the name may come back with another
topic, for which the same offsets, sent again, would be committed.
"""

_NO_TOPIC: Final = (ec.UNKNOWN_TOPIC_OR_PARTITION, ec.UNKNOWN_TOPIC_ID)

_NAMED: Final = 5
"""The number of partitions that the text of an error names."""


@dataclass(slots=True, eq=False)
class _Offsets:
    """Offsets of a group on their way into the transaction.

    Attributes:
        is_added: the group was added to the transaction.
        unknown_since: the time (ms) since which the group's coordinator has not known one of their topics.
    """

    group: GroupMetadata
    pending: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    is_added: bool = False
    unknown_since: int | None = None


class Transactions(Lifecycle):
    """Runs the transactions of one producer with its coordinator.

    It takes the place of `kadence.producer.identity.Identity` in the sender.

    Args:
        gate: the producer's lock. admit: called with whether records may come in, under the lock.

    Attributes:
        coordinators: brokers that the client must know.
        wanted: returns whether records are undecided or on their way. Called under the lock: a record may come in, and
            the end of its transaction begin, at any time before.
        on_refused: called when records that wait for a producer id will never be sent.
        on_known: called once the reason for the transaction's failure is known, if it was in doubt; with the error if
            the coordinator's differs from the leader's.
    """

    def __init__(self, config: ProducerConfig, gate: Gate, admit: Callable[[bool], None]) -> None:
        assert config.transactional_id is not None
        super().__init__(config.transactional_id, admit)
        self.coordinators: dict[int, Node] = {}
        self.wanted: Callable[[], bool] = lambda: False
        self.on_refused: Callable[[KafkaError], None] = lambda error: None
        self.on_known: Callable[[KafkaError | None], None] = lambda why: None
        self._config = config
        self._gate = gate
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._in_flight: Request | None = None
        self._on_answer: Callable[[int, Any], None] = lambda now, response: None
        # The coordinators of the transactional id, which may change, and of the groups whose offsets are sent.
        self._found: dict[tuple[KeyType, str], int] = {}
        self._is_v2: bool | None = None
        self._id: tuple[int, int] = (-1, -1)
        self._raise_epoch = False
        # Of the open transaction.
        self._partitions: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._offsets: list[_Offsets] = []
        self._is_started = False
        self._is_unsure = False
        self._is_ended = False
        self._asks_why = False

    # ------------------------------------------------------------ the application's side, under the lock

    def begin_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> Done:
        """Make a group's offsets part of the transaction."""
        self.check_open()
        sent = _Offsets(group, dict(offsets))
        if offsets:
            self._offsets.append(sent)

        def done() -> bool:
            if not sent.pending:
                return True
            if self.state in (State.ABORTABLE, State.FAILED) and not self.is_in_doubt:
                self._refuse("send_offsets_to_transaction()")
            if self.state is State.ABORTING or sent not in self._offsets:
                raise IllegalStateError("the offsets are not sent: abort_transaction() was called meanwhile")
            return False

        return done

    def leave_open(self) -> OpenTransaction | None:
        """Leave the transaction open, for another process to end. All records are acknowledged, all offsets committed.

        The producer continues with `begin_as`; closing it ends no transaction.

        Returns:
            The identity of the transaction; None if the brokers know none.
        """
        self.check_open()
        left = (
            OpenTransaction(self.transactional_id, *self._id, bool(self._is_v2)) if self._is_started else None
        )
        self._move(State.UNINITIALIZED)
        return left

    def begin_as(self, transactional_id: str) -> Done:
        """As `begin_init`, with another transactional id."""
        if self.state is State.UNINITIALIZED:
            self._forget()
            self.transactional_id = transactional_id
            self._id = (-1, -1)
        return self.begin_init()

    # ------------------------------------------------------------ the sender's side, network thread

    @property
    def known(self) -> tuple[int, int] | None:
        """Producer id and epoch of records that are sent now; None while nothing may be sent."""
        return self._id if self.state in SENDING else None

    @property
    def is_in_doubt(self) -> bool:
        """True if the transaction has failed, and the coordinator has not yet said if the producer was fenced."""
        return self._asks_why and self.state is State.ABORTABLE

    def is_reason_of_doubt(self, error: KafkaError) -> bool:
        """True if records were refused with this error, and the coordinator is asked whether it means fencing.

        The abort that asks may be the application's own.
        """
        return self._awaits_reason and _is_old_epoch(error)

    @property
    def _awaits_reason(self) -> bool:
        return self._asks_why and self.state in (State.ABORTABLE, State.ABORTING)

    @property
    def max_produce_version(self) -> int | None:
        """The last Produce version before leaders add partitions: in the old protocol the producer adds them."""
        return None if self._is_v2 else requests.LAST_PRODUCE_OF_V1

    def may_forget(self, producer_id: int, epoch: int) -> bool:
        """True if the numbering of a partition under this id and epoch will not continue, and may be forgotten."""
        return (producer_id, epoch) != self._id

    def admits(self, tp: TopicPartition) -> bool:
        """True if ``tp`` is part of the transaction, so that it can be written to; if not, it is to be added."""
        if tp in self._partitions:
            return True
        if self._is_v2:
            self._partitions.add(tp)
            self._is_started = True
            return True
        self._to_add.add(tp)
        return False

    def not_written(self, error: KafkaError, *, was_sent: bool) -> None:
        """Records were not written: the transaction, or the producer, fails. Under the lock."""
        # Sequence numbers that the broker lacks would stop the next transaction.
        self._raise_epoch = self._raise_epoch or was_sent
        if isinstance(error, BrokerError) and error.code in requests.FATAL_TO_RECORDS:
            self._fail(self._fenced() if error.code == ec.PRODUCER_FENCED else error)
        else:
            self._fail_transaction(error)

    def not_taken(self, error: KafkaError) -> None:
        """A call failed before it queued its records or offsets, so the transaction is incomplete. Under the lock.

        A commit that the coordinator was asked for is complete without them, and the error is that call's alone.
        """
        if not self.transaction.is_commit_asked:
            self.not_written(error, was_sent=False)

    def _fail_transaction(self, error: KafkaError) -> None:
        if self.state in SENDING:
            self._move(State.ABORTABLE, error)
            # Another producer of this name has raised the epoch, or the brokers have, to abort what was open for too
            # long. Only the coordinator knows; it is asked by the abort that must follow anyway.
            self._asks_why = _is_old_epoch(error) and self._is_started

    def poll(self, now: int) -> Poll:
        """The request to send now, if any, and the time of the next poll."""
        if self._in_flight is not None:
            return NOTHING
        if not self._backoff.ready(now):
            return Poll(wake_at=self._backoff.until)
        with self._gate:
            if self.state is State.INITIALIZING:
                self._ask_for_id(now)
            elif self.state in SENDING and (self._to_add or self._offsets):
                self._ask_for_more(now)
            elif (self.state in ENDING or self.is_in_doubt) and not self.wanted():
                self._ask_for_end(now)
        self.lines.write()
        return Poll(list(filter(None, [self._in_flight])))

    def on_response(self, now: int, completed: Completed) -> None:
        """Handle a response."""
        self._in_flight = None
        awaited_reason = self._awaits_reason
        with self._gate:
            if completed.error is not None:
                # The coordinator may have added them although no response came.
                self._is_unsure = self._is_unsure or isinstance(completed.request.message, requests.ADDING)
                self._not_answered(now, completed.error)
            else:
                self._on_answer(now, completed.response)
            self._gate.notify_all()
        self.lines.write()
        if awaited_reason and not self._awaits_reason:
            self.on_known(self.error)
        if self.state is State.FAILED and self.error is not None:
            self.on_refused(self.error)

    # ------------------------------------------------------------ requests

    def _ask(
        self,
        now: int,
        message: Any,
        to: int,
        then: Callable[[int, Any], None],
        *,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> None:
        self._on_answer = then
        deadline = add_ms(now, self._config.request_timeout_ms)
        self._in_flight = Request(message, to, deadline, min_version=min_version, max_version=max_version)

    def _coordinator(self, now: int, group: str = "") -> int | None:
        """The coordinator of the transactional id, or of a group; if it is unknown, it is requested now."""
        if self._is_v2 is None:
            self._ask(now, requests.api_versions(), ANY_NODE, self._on_features)
            return None
        key = self._key(group)
        if key not in self._found:
            message = find(*key)

            def found(now: int, response: Any) -> None:
                (node,) = read(message, response).values()
                if isinstance(node, Node):
                    self._backoff.succeeded()
                    self.coordinators[node.node_id], self._found[key] = node, node.node_id
                elif isinstance(node, BrokerError):
                    self._is_well(now, node.code, group=group, adds=bool(group))
                else:
                    self._fail(node)

            self._ask(now, message, ANY_NODE, found, min_version=first_version(message))
            return None
        return self._found[key]

    def _key(self, group: str) -> tuple[KeyType, str]:
        return (KeyType.GROUP, group) if group else (KeyType.TRANSACTION, self.transactional_id)

    def _on_features(self, now: int, response: Any) -> None:
        self._is_v2 = requests.is_v2(response)
        if self._is_v2 is None:
            self._fail(
                UnsupportedVersionError("the brokers have no transactions; leave out transactional.id")
            )

    def _ask_for_id(self, now: int) -> None:
        to = self._coordinator(now)
        if to is not None:
            message = requests.init_producer_id(
                self.transactional_id, self._config.transaction_timeout_ms, self._id
            )
            self._ask(
                now, message, to, self._on_id, min_version=None if self._id[0] < 0 else requests.RAISES_EPOCH
            )

    def _on_id(self, now: int, response: Any) -> None:
        if not self._is_well(now, response.error_code):
            self._try_again_soon(now, response.error_code)
        else:
            self._id = (response.producer_id, response.producer_epoch)
            self.lines.add(logging.INFO, "%s: producer id %d epoch %d", self.transactional_id, *self._id)
            self._begin_next()

    def _ask_for_more(self, now: int) -> None:
        """Add partitions, and offsets of groups, to the transaction."""
        to = self._coordinator(now)
        if to is None:
            return
        if self._to_add:
            self._ask(
                now,
                requests.add_partitions(self.transactional_id, self._id, self._to_add),
                to,
                self._on_added,
            )
            return
        sent = self._offsets[0]
        if not self._is_v2 and not sent.is_added:
            message = requests.add_offsets(self.transactional_id, self._id, sent.group.group_id)
            self._ask(now, message, to, partial(self._on_group_added, sent))
            return
        to = self._coordinator(now, sent.group.group_id)
        if to is not None:
            commit = requests.commit_offsets(self.transactional_id, self._id, sent.group, sent.pending)
            self._is_started = True
            newest = None if requests.has_topic_ids(commit) else requests.LAST_COMMIT_WITH_NAMES
            if not self._is_v2:
                newest = requests.LAST_COMMIT_OF_V1
            self._ask(
                now,
                commit,
                to,
                partial(self._on_offsets, sent, commit),
                min_version=requests.NAMES_MEMBER,
                max_version=newest,
            )

    def _on_added(self, now: int, response: Any) -> None:
        codes = requests.codes_of_partitions(response)
        added = {tp for tp, code in codes.items() if code == ec.NONE}
        self._partitions |= added
        self._to_add -= added
        if added:
            self._is_started, self._is_unsure = True, False
        code = requests.worst(codes.values())
        if not self._is_well(now, code, adds=True):
            self._try_again_soon(now, code)

    def _try_again_soon(self, now: int, code: int) -> None:
        if code == ec.CONCURRENT_TRANSACTIONS:
            # The end of the previous transaction is being written, which takes milliseconds.
            self._backoff.until = min(self._backoff.until, now + _ADD_AGAIN_MS)

    def _on_group_added(self, sent: _Offsets, now: int, response: Any) -> None:
        if self._is_well(now, response.error_code, adds=True):
            sent.is_added = self._is_started = True
            self._is_unsure = False

    def _on_offsets(self, sent: _Offsets, commit: TxnOffsetCommitRequest, now: int, response: Any) -> None:
        codes = requests.codes_of_offsets(commit, response)
        for tp in [tp for tp, code in codes.items() if code == ec.NONE]:
            sent.pending.pop(tp, None)
        if not sent.pending:
            self._offsets.remove(sent)
        code = requests.worst(codes.values())
        if code == ec.INVALID_PRODUCER_EPOCH and self._is_v2:
            # Like a leader, the group's coordinator does not know the reason for an old epoch.
            self._fail_transaction(for_code(code))
        elif code in _NO_TOPIC and self._is_gone(now, sent):
            unknown = frozenset(tp for tp, each in codes.items() if each in _NO_TOPIC)
            self._abort_for(
                UnknownTopicOrPartitionError(
                    f"the group's coordinator does not know {', '.join(map(str, sorted(unknown)[:_NAMED]))}, so the "
                    "offsets cannot be part of the transaction",
                    partitions=unknown,
                ),
                adds=True,
            )
        else:
            self._is_well(now, code, group=sent.group.group_id, adds=True)

    def _is_gone(self, now: int, sent: _Offsets) -> bool:
        """True if a topic that the coordinator does not know was deleted."""
        if sent.unknown_since is None:
            sent.unknown_since = now
        return bool(sent.group.member_id) or now - sent.unknown_since >= _PATIENCE_MS

    def _ask_for_end(self, now: int) -> None:
        if (self._is_started or self._is_unsure) and not self._is_ended:
            to = self._coordinator(now)
            if to is not None:
                commits = self.transaction.is_commit_asked = self.state is State.COMMITTING
                message = requests.end(self.transactional_id, self._id, committed=commits)
                version = None if self._is_v2 else requests.LAST_END_OF_V1
                then = self._on_committed if commits else self._on_aborted
                self._ask(now, message, to, then, max_version=version)
        elif self._needs_id:
            self._ask_for_id(now)
        else:
            # Nothing was begun at the brokers, or it has ended there.
            self.transaction.is_committed |= self.state is State.COMMITTING
            self._begin_next()
            self._gate.notify_all()

    @property
    def _needs_id(self) -> bool:
        """True if the next transaction needs another producer id or epoch than the end of this one leaves."""
        # A request to add partitions whose answer was lost may arrive late. With the old epoch it would open
        # a transaction.
        return self._id[0] < 0 or ((self._raise_epoch or self._is_unsure) and not self._is_v2)

    def _on_committed(self, now: int, response: Any) -> None:
        if response.error_code == ec.INVALID_TXN_STATE and self._is_v2:
            # The coordinator takes the next abort for a repetition of its own, and answers with the new epoch.
            self._fail_transaction(self._aborted_by_brokers(ec.INVALID_TXN_STATE))
        elif self._is_well(now, response.error_code):
            self.transaction.is_committed = True
            self._on_ended(response)

    def _on_aborted(self, now: int, response: Any) -> None:
        code = response.error_code
        if code == ec.INVALID_PRODUCER_ID_MAPPING:
            # The coordinator has forgotten the id (transactional.id.expiration.ms), so it has nothing to abort.
            self._id = (-1, -1)
        elif code == ec.INVALID_TXN_STATE and not self._is_started:
            # The request whose response was lost did not reach the coordinator.
            self.lines.add(logging.INFO, "%s: the coordinator has nothing to abort", self.transactional_id)
        elif not self._is_well(now, code):
            return
        self._on_ended(response)

    def _on_ended(self, response: Any) -> None:
        self._is_ended, self._asks_why = True, False
        if response.producer_id >= 0:
            self._id = (response.producer_id, response.producer_epoch)
        if self.state is State.ABORTABLE:
            # The application has not aborted yet; its abort will find it done.
            self.error = self._aborted_by_brokers(ec.INVALID_PRODUCER_EPOCH)
        elif self._needs_id:
            self._backoff.succeeded()  # the next poll asks for it
        else:
            self._begin_next()

    def _begin_next(self) -> None:
        self._forget()
        # The producer may have failed while the response was on its way.
        if self.state is not State.FAILED:
            self._move(State.READY)

    def _forget(self) -> None:
        """Drop the state of the transaction that has ended, or was left open."""
        self._partitions.clear()
        self._to_add.clear()
        self._offsets.clear()
        self._is_started = self._is_unsure = self._is_ended = self._raise_epoch = self._asks_why = False

    # ------------------------------------------------------------ responses

    def _is_well(self, now: int, code: int, group: str = "", *, adds: bool = False) -> bool:
        """True if a response has no error; handles the error otherwise.

        Args:
            group: the one whose coordinator sent it. adds: it is about something to be added to the transaction.
        """
        outcome = requests.outcome_of(code)
        if outcome is Outcome.WELL:
            self._backoff.succeeded()
            return True
        self.lines.add(
            logging.INFO, "%s: %s in state %s", self.transactional_id, ec.name(code), self.state.name
        )
        if outcome is Outcome.FENCED:
            self._fail(self._fenced())
        elif outcome is Outcome.ABORT and self.state in (*SENDING, State.ABORTING, State.ABORTABLE):
            self._abort_for(for_code(code), adds=adds)
        elif outcome in (Outcome.RETRY, Outcome.FIND_AGAIN):
            if outcome is Outcome.FIND_AGAIN:
                self._found.pop(self._key(group), None)
            self._backoff.failed(now)
        else:
            self._fail(for_code(code))
        return False

    def _abort_for(self, error: KafkaError, *, adds: bool) -> None:
        self._raise_epoch, self._asks_why = True, False
        # An abort does not need what could not be added.
        if self.state in SENDING or (self.state is State.ABORTING and not adds):
            self._move(State.ABORTABLE, error)

    def _aborted_by_brokers(self, code: int) -> KafkaError:
        return for_code(
            code,
            "the brokers have aborted the transaction, as when it is open for longer than "
            f"transaction.timeout.ms={self._config.transaction_timeout_ms}",
        )

    def _fenced(self) -> ProducerFencedError:
        return ProducerFencedError(
            f"another producer with transactional.id={self.transactional_id!r} took over, or the brokers aborted the "
            f"transaction after transaction.timeout.ms={self._config.transaction_timeout_ms}"
        )

    def _not_answered(self, now: int, error: KafkaError) -> None:
        if error.retriable:
            self._found.clear()
            self._backoff.failed(now)
            self.lines.add(logging.INFO, "%s: no response, asking again: %s", self.transactional_id, error)
        else:
            self._fail(error)

    def __repr__(self) -> str:
        return (
            f"<Transactions {self.transactional_id} {self.state.name} producer {self._id[0]} epoch {self._id[1]} "
            f"{len(self._partitions)} partitions>"
        )


def _is_old_epoch(error: KafkaError) -> bool:
    """True if a leader refused records because the producer's epoch is old; it does not say why."""
    return isinstance(error, BrokerError) and error.code == ec.INVALID_PRODUCER_EPOCH
