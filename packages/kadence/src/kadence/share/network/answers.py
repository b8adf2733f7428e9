"""What the answers to share requests mean (KIP-932). Network thread, sans-IO.

    transport error                    the connection is gone, and with it the session and all locks at this broker
    SHARE_SESSION_NOT_FOUND            the same, without our having seen it
    INVALID_SHARE_SESSION_EPOCH        the locks hold: the session is opened anew, or closed if the member leaves, and
                                       what was said is said again
    SHARE_SESSION_LIMIT_REACHED        wait
    error of the whole answer          nothing of the request was done
    error of a partition               of its fetch and of its acknowledgements, each apart

Locks are counted from when the request was sent, so they end here first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from kadence.clock import FOREVER
from kadence.connection.request import Backoff, Completed, Loan
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.errors import AuthenticationError, KafkaError, UnsupportedVersionError, for_code
from kadence.logs import LogLimiter, logger
from kadence.protocol import error_codes as ec
from kadence.share.acknowledgements import Acquired, TopicIdPartition
from kadence.share.keys import ShareKeys
from kadence.share.network.acknowledging import Acknowledgements, locks_ended
from kadence.share.network.appetite import LOCK_MS, Appetite
from kadence.share.network.held import Held, Piece
from kadence.share.network.node import Sent, ShareNode
from kadence.share.network.offsets import Range, count, without
from kadence.share.share_state import AcquiredFetch, ShareState
from kadence.types import Node, TopicPartition

__all__ = ["ShareAnswers", "ShareCluster"]

log = logger("kadence.share")

_MOVED: Final = frozenset({ec.NOT_LEADER_OR_FOLLOWER, ec.FENCED_LEADER_EPOCH})
_UNKNOWN: Final = frozenset({ec.UNKNOWN_TOPIC_OR_PARTITION, ec.UNKNOWN_TOPIC_ID})
_REFUSED: Final = frozenset({ec.INVALID_RECORD_STATE, ec.INVALID_REQUEST})
"""One offset that is not ours, or not any more, has the whole partition refused."""
_DENIED: Final = frozenset({ec.TOPIC_AUTHORIZATION_FAILED, ec.GROUP_AUTHORIZATION_FAILED})


class ShareCluster(Protocol):
    """What is known of the cluster: a `kadence.consumer.positions.metadata.MetadataManager`."""

    version: int

    def leader(self, partition: TopicPartition) -> int | None: ...

    def has_node(self, node_id: int) -> bool: ...

    def request_update(self, now: int) -> None: ...

    def moved(
        self, now: int, partition: TopicPartition, leader: int, epoch: int, endpoints: Mapping[int, Node]
    ) -> bool: ...


class ShareAnswers:
    """Turns answers into records for the application and ends of acknowledgements.

    Attributes:
        brought: what the last answer acquired, to be put into the shared state.
    """

    def __init__(
        self,
        config: ShareKeys,
        metadata: ShareCluster,
        share_state: ShareState,
        acknowledgements: Acknowledgements,
        appetite: Appetite,
        add_event: AddBackgroundEvent,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._share_state = share_state
        self._measures = share_state.measures
        self._acknowledgements = acknowledgements
        self._appetite = appetite
        self._add_event = add_event
        self._log_limiter = LogLimiter()
        self.brought: list[AcquiredFetch] = []
        # Partitions whose fetch failed: until when they are not fetched, and how often in a row.
        self._retries: dict[TopicIdPartition, Backoff] = {}
        self._waiting: set[TopicIdPartition] = set()
        self._changes = 0

    # ------------------------------------------------------------ partitions that wait

    @property
    def next_retry(self) -> int:
        """When the first partition that waits may be fetched again."""
        return min((self._retries[each].until for each in self._waiting), default=FOREVER)

    def waits(self, now: int, partition: TopicIdPartition) -> bool:
        """Whether a partition is not to be fetched now, since that has failed just before."""
        return partition in self._waiting and not self._retries[partition].ready(now)

    def retry_version(self, now: int) -> int:
        """Grows whenever other partitions wait."""
        for partition in [each for each in self._waiting if self._retries[each].ready(now)]:
            self._waiting.discard(partition)
            self._changes += 1
        return self._changes

    def forget_all_but(self, partitions: Collection[TopicIdPartition]) -> None:
        """Only these are assigned: the others may be gone for good."""
        for partition in self._retries.keys() - partitions:
            del self._retries[partition]
            self._waiting.discard(partition)
            self._log_limiter.over(partition.topic_partition)

    def _wait(self, now: int, partition: TopicIdPartition) -> None:
        backoff = self._retries.get(partition)
        if backoff is None:
            backoff = self._retries[partition] = Backoff(
                self._config.retry_backoff_ms, self._config.retry_backoff_max_ms
            )
        backoff.failed(now)
        self._waiting.add(partition)
        self._changes += 1

    # ------------------------------------------------------------ whole answers

    def answered(self, now: int, sent: Sent, completed: Completed) -> None:
        if completed.error is not None:
            self._lost(now, sent, completed.error)
            return
        response: Any = completed.response
        code = response.error_code
        if sent.closes:
            # Whatever it says: the session is over.
            self._closed(now, sent, response)
        elif code == ec.NONE:
            self._taken(now, sent, response, completed.loan)
        elif code == ec.SHARE_SESSION_NOT_FOUND:
            self._void(
                now,
                sent.node,
                sent.pieces,
                for_code(code, f"broker {sent.node.node_id} has ended the share session"),
            )
            sent.node.backoff.failed(now)
        elif code == ec.INVALID_SHARE_SESSION_EPOCH:
            for piece in sent.pieces:
                self._acknowledgements.again(now, sent.node, piece)
            if sent.node.closing:
                sent.node.only_closes = True
            else:
                sent.node.session.reset()
            sent.node.backoff.failed(now)
        else:
            self._failed(now, sent, code, response.error_message)

    def _lost(self, now: int, sent: Sent, error: KafkaError) -> None:
        """No answer: nobody knows what became of the request."""
        node = sent.node
        if isinstance(error, UnsupportedVersionError):
            self._unsupported(now, sent, error)
            return
        self.disconnected(now, node, error, sent.pieces)
        if isinstance(error, AuthenticationError):
            self._add_event(Failed(error))

    def disconnected(
        self, now: int, node: ShareNode, error: KafkaError, sent: Collection[Piece] = ()
    ) -> None:
        """The connection is gone, and with it the session and all locks. ``sent``: what was under way."""
        self._void(now, node, sent, error)
        node.backoff.failed(now)
        self._metadata.request_update(now)

    def _unsupported(self, now: int, sent: Sent, error: UnsupportedVersionError) -> None:
        """The broker cannot be asked this. Nothing was sent."""
        node = sent.node
        if sent.fetched is None and (sent.renewals or any(piece.renews for piece in sent.pieces)):
            node.can_renew = False
            log.warning(
                "broker %d cannot renew locks (KIP-1222, Kafka 4.2): a record comes again when it is worked on for "
                "longer than its lock holds",
                node.node_id,
            )
        else:
            node.backoff.failed(now)
            self._add_event(Failed(error))
        for piece in sent.pieces:
            self._acknowledgements.end(now, piece, error)

    def _void(self, now: int, node: ShareNode, sent: Collection[Piece], error: KafkaError) -> None:
        """All locks at this broker are gone. ``sent``: what was under way."""
        node.session.reset()
        for fetch in node.held:
            fetch.void = error
        node.held.clear()
        for piece in (*sent, *node.pieces):
            piece.held.fetch.void = piece.held.fetch.void or error
            self._acknowledgements.end(now, piece, error)
        node.pieces = []
        # What is buffered is to be dropped.
        self._share_state.alert()

    def _closed(self, now: int, sent: Sent, response: Any) -> None:
        error = None if not response.error_code else for_code(response.error_code, response.error_message)
        codes = {} if error else {key: data.error_code for key, data in _partitions(response)}
        sent.node.session.reset()
        for piece in sent.pieces:
            code = codes.get((piece.partition.topic_id, piece.partition.partition), ec.INVALID_RECORD_STATE)
            self._acknowledgements.end(now, piece, error or (for_code(code) if code else None))

    def _failed(self, now: int, sent: Sent, code: int, message: str | None) -> None:
        """Nothing of the request was done."""
        node = sent.node
        node.backoff.failed(now)
        if code in ec.RETRIABLE or code == ec.SHARE_SESSION_LIMIT_REACHED:
            for piece in sent.pieces:
                self._again(now, sent.node, piece)
        else:
            for piece in sent.pieces:
                self._acknowledgements.end(now, piece, for_code(code, message))
            for held in sent.renewals:
                held.renewable = False
        if code in _DENIED:
            self._add_event(Failed(for_code(code, f"not allowed to read as {self._config.group_id!r}")))
        elif self._log_limiter.is_new(now, node.node_id, code):
            log.warning("broker %d refused a share request: %s", node.node_id, ec.name(code))

    def _again(self, now: int, node: ShareNode, piece: Piece) -> None:
        """Say it again after a while, if its call still waits for it."""
        if piece not in piece.call.waiting:
            self._acknowledgements.ended_before(now, piece)
            return
        if piece.backoff is None:
            piece.backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        piece.backoff.failed(now)
        self._acknowledgements.again(now, node, piece)

    # ------------------------------------------------------------ partitions

    def _taken(self, now: int, sent: Sent, response: Any, loan: Loan | None) -> None:
        """The request was done, as far as no partition says otherwise."""
        node, session = sent.node, sent.node.session
        named = [piece.partition for piece in sent.pieces]
        named += [held.fetch.partition for held in sent.renewals]
        tips = {
            (each.topic_id, each.partition): each
            for each in (*session.members, *(sent.fetched or ()), *named)
        }
        if sent.fetched is None:
            session.answered()
        else:
            session.fetched(sent.fetched)
        if sent.asked or sent.fetched is None:
            node.backoff.succeeded()
        if response.acquisition_lock_timeout_ms > 0:
            self._share_state.lock_timeout_ms = response.acquisition_lock_timeout_ms
        lock_ends = sent.sent_at + (self._share_state.lock_timeout_ms or LOCK_MS)
        endpoints = {
            each.node_id: Node(each.node_id, each.host, each.port, each.rack)
            for each in response.node_endpoints
        }
        codes: dict[tuple[bytes, int], int] = {}
        brought = 0
        sums: dict[str, tuple[int, int]] = {}
        for key, data in _partitions(response):
            tip = tips.get(key)
            code = data.error_code if sent.fetched is None else data.acknowledge_error_code
            codes[key] = code
            # First: what the same answer brings is locked, by who leads the partition now.
            if tip is not None and code in _MOVED | _UNKNOWN:
                self._moved(now, node, tip, data, endpoints, code)
            if sent.fetched is not None:
                if tip is not None and data.error_code:
                    self._not_fetched(now, sent, tip, data, endpoints)
                elif tip is not None and data.acquired_records and not node.closing:
                    if not brought:
                        node.redelivers = False
                    node.redelivers |= any(each.delivery_count > 1 for each in data.acquired_records)
                    brought += self._acquired(sent, tip, data, loan, lock_ends, sums)
        self._judge(now, sent, codes, lock_ends)
        if sent.asked:
            self._appetite.answered(now, sent, brought)
            self._measures.fetches.count(now, [sums] if sums else [])

    def _acquired(
        self,
        sent: Sent,
        tip: TopicIdPartition,
        data: Any,
        loan: Loan | None,
        lock_ends: int,
        sums: dict[str, tuple[int, int]],
    ) -> int:
        """Records for the application. Returns how many."""
        acquired = tuple(
            Acquired(each.first_offset, each.last_offset, each.delivery_count)
            for each in data.acquired_records
        )
        records = data.records or b""
        view = memoryview(records) if isinstance(records, bytes | bytearray) else records
        if loan is not None:
            loan.retain()
        fetch = AcquiredFetch(tip, sent.node.node_id, acquired, view, loan, lock_ends)
        sent.node.held[fetch] = Held(fetch, sent.sent_at)
        if (backoff := self._retries.pop(tip, None)) is not None:
            backoff.succeeded()
            self._waiting.discard(tip)
        in_bytes, in_records = sums.get(tip.topic, (0, 0))
        sums[tip.topic] = in_bytes + len(records), in_records + fetch.count
        self.brought.append(fetch)
        return fetch.count

    def _not_fetched(
        self, now: int, sent: Sent, tip: TopicIdPartition, data: Any, endpoints: Mapping[int, Node]
    ) -> None:
        code, partition = data.error_code, tip.topic_partition
        self._wait(now, tip)
        if code in _MOVED | _UNKNOWN:
            self._moved(now, sent.node, tip, data, endpoints, code)
        elif code == ec.TOPIC_AUTHORIZATION_FAILED:
            self._add_event(Failed(for_code(code, f"not allowed to read topic {tip.topic!r}")))
        elif code == ec.UNKNOWN_SERVER_ERROR:
            # Kafka says so of a partition that the group has not initialised yet.
            log.debug("%s cannot be read yet: %s", partition, data.error_message)
        elif self._log_limiter.is_new(now, partition, code):
            log.warning("fetch of %s failed: %s; trying again", partition, ec.name(code))

    def _moved(
        self,
        now: int,
        node: ShareNode,
        tip: TopicIdPartition,
        data: Any,
        endpoints: Mapping[int, Node],
        code: int,
    ) -> None:
        """The broker does not lead the partition any more, or it is gone: its locks here are void."""
        self._led_elsewhere(now, node, tip, code)
        told = data.current_leader
        self._metadata.request_update(now)
        if code in _MOVED and told.leader_id >= 0 and told.leader_epoch >= 0:
            self._metadata.moved(now, tip.topic_partition, told.leader_id, told.leader_epoch, endpoints)

    def _led_elsewhere(self, now: int, node: ShareNode, tip: TopicIdPartition, code: int) -> None:
        """What is held of the partition at this broker is void, and what is still to be said of it."""
        error = for_code(code, f"{tip.topic_partition} has another leader, or is gone: its locks are void")
        node.changed = True
        for fetch in [fetch for fetch in node.held if fetch.partition == tip]:
            fetch.void = error
            del node.held[fetch]
        for piece in [piece for piece in node.pieces if piece.partition == tip]:
            node.pieces.remove(piece)
            self._acknowledgements.end(now, piece, error)
        self._share_state.alert()

    def given_anew(self, now: int, node: ShareNode, fetch: AcquiredFetch, nodes: Iterable[ShareNode]) -> None:
        """``node`` has given us records: whose older locks are void by that, also if no broker has said so.

        A partition has one leader, so all that another broker gave us before is void. What this one gives out twice it
        did not know any more: it has led the partition anew since.
        """
        tip, new = fetch.partition, node.held[fetch]
        for other in nodes:
            if other is node:
                continue
            asked = [each.sent_at for each in other.held.values() if each.fetch.partition == tip]
            asked += [piece.held.sent_at for piece in other.pieces if piece.partition == tip]
            if asked:
                # An answer may come late: who was asked last leads the partition.
                void = other if max(asked) <= new.sent_at else node
                self._led_elsewhere(now, void, tip, ec.NOT_LEADER_OR_FOLLOWER)
        for older in [each for each in node.held.values() if each.fetch.partition == tip and each is not new]:
            older.expire(now)
            if without(older.open, new.open) != older.open:
                older.fetch.void = for_code(
                    ec.INVALID_RECORD_STATE,
                    f"records of {tip.topic_partition} were delivered again: their locks had ended",
                )
                del node.held[older.fetch]
                self._share_state.alert()

    def _judge(self, now: int, sent: Sent, codes: Mapping[tuple[bytes, int], int], lock_ends: int) -> None:
        """What became of what the request said. Of a partition that the answer leaves out nothing is known to count."""
        said = Counter(piece.partition for piece in sent.pieces)
        said.update(held.fetch.partition for held in sent.renewals)
        for piece in sent.pieces:
            tip = piece.partition
            code = codes.get((tip.topic_id, tip.partition), ec.INVALID_RECORD_STATE)
            if code == ec.NONE:
                if piece.renews:
                    ranges = [(each.first, each.last) for each in piece.ranges]
                    self._locked_longer(now, sent.node, piece.held, ranges, lock_ends)
                # After a pause of the process it may have been renewed until a time that is over.
                is_late = piece.renews and not piece.is_locked(now)
                self._acknowledgements.end(now, piece, locks_ended(piece.held.fetch) if is_late else None)
            elif code in _REFUSED and said[tip] > 1:
                piece.alone = True
                self._acknowledgements.again(now, sent.node, piece)
            elif code in ec.RETRIABLE and code not in _MOVED | _UNKNOWN:
                self._again(now, sent.node, piece)
            else:
                self._acknowledgements.end(now, piece, for_code(code))
        for held, ranges in sent.renewals.items():
            tip = held.fetch.partition
            code = codes.get((tip.topic_id, tip.partition), ec.INVALID_RECORD_STATE)
            self._renewed(now, sent.node, held, ranges, code, lock_ends, is_alone=said[tip] == 1)

    @staticmethod
    def _locked_longer(now: int, node: ShareNode, held: Held, ranges: list[Range], lock_ends: int) -> None:
        """The broker has renewed the locks of these offsets, of some of which something may be said by now.

        Those whose locks have ended by our clock are not held any more: the application may have seen that, and has
        dropped what lay in its buffer.
        """
        if now >= held.fetch.kept_until:
            held.expire(now)
        if found := without(ranges, without(ranges, held.open)):
            held.renewed(found, lock_ends)
        for piece in node.pieces:
            piece.renewed(held, ranges, lock_ends)

    def _renewed(
        self,
        now: int,
        node: ShareNode,
        held: Held,
        ranges: list[Range],
        code: int,
        lock_ends: int,
        *,
        is_alone: bool,
    ) -> None:
        """What became of a renewal that nobody asked for but us."""
        if code == ec.NONE:
            self._locked_longer(now, node, held, ranges, lock_ends)
            self._measures.renewed.record(now, count(ranges))
        elif code in _REFUSED and not is_alone:
            held.alone = True
        elif code in _MOVED | _UNKNOWN:
            # Its locks are void by now, see `_moved`.
            return
        elif code in ec.RETRIABLE:
            node.backoff.failed(now)
        else:
            held.renewable = False
            if not self._log_limiter.is_new(now, held.fetch.partition.topic_partition, "renewals"):
                return
            log.warning(
                "the locks of %d records of %s cannot be renewed (%s): they may come again. Is "
                "share.renew.acknowledge.enable of group %s off?",
                count(ranges),
                held.fetch.partition.topic_partition,
                ec.name(code),
                self._config.group_id,
            )


def _partitions(response: Any) -> Iterator[tuple[tuple[bytes, int], Any]]:
    """The partitions of an answer of either kind, by topic id and number."""
    for topic in response.responses:
        for data in topic.partitions:
            yield (topic.topic_id, data.partition_index), data
