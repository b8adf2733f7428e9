"""`NetworkClient`: all connections of one network thread, with one poller.

Requests are queued by `send` and everything else happens in `poll`: requests find a node, channels dial, bytes
move, deadlines pass. A request ends exactly once, in the list that some `poll` returns.

A request for any node goes to a connected broker with the fewest requests under way; else to one that is being
connected; else to one that may be tried now; else to a bootstrap address, one after the other (with
``metadata.recovery.strategy=none`` only while no broker is known). While a dead address is tried the request waits with
it, and moves on when that attempt has failed. A connected broker that has not answered for a while is the last choice:
a new request would wait behind the old one, until request.timeout.ms.
"""

from __future__ import annotations

import random
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kadence.clock import FOREVER, Clock, add_ms
from kadence.connection.connection import WrongNodeError
from kadence.connection.request import (
    ANY_NODE,
    Arrivals,
    Backoff,
    Completed,
    ConnectionPurpose,
    NativeHeartbeatPlan,
    PlainPollWait,
    PollWait,
    Request,
)
from kadence.errors import (
    AuthenticationError,
    ClosedError,
    ConnectError,
    DisconnectedError,
    KafkaError,
    RequestTimedOutError,
)
from kadence.logs import logger
from kadence.metrics.sensors import NetworkMeters
from kadence.net import drain
from kadence.net.arena import ArenaPool
from kadence.net.channel import Channel, IdleError
from kadence.net.config import ConnectionConfig
from kadence.net.dial import Found, Lookup, Resolver
from kadence.net.native_heartbeat import OnNativeHeartbeats
from kadence.net.nodes import FIRST_BOOTSTRAP, KnownNode, Outages
from kadence.net.sockets import SYSTEM, Sockets
from kadence.types import Node

if TYPE_CHECKING:
    from kadence.net.direct import DirectUser
    from kadence.net.logins import Logins
    from kadence.net.names import BootstrapNames

__all__ = ["NetworkClient"]

_log = logger("kadence.net")

_LATE_MS: Final = 200
"""A thread that returns this much (ms) later than planned was kept from running."""

_LONGEST_WAIT_MS: Final = 86_400_000
"""A day (ms), which every system's wait accepts; the wait is then repeated."""


class NetworkClient:
    """See the top of the file. One thread calls everything but `wakeup`.

    Args:
        config: the settings. clock: the time; the poller does the waiting. lookup: `socket.getaddrinfo`, or a test's.
            rng: the jitter of the backoff.
        meters: record measurements for the caller. sockets: the network.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        clock: Clock,
        *,
        lookup: Lookup = socket.getaddrinfo,
        rng: random.Random | None = None,
        meters: NetworkMeters | None = None,
        sockets: Sockets = SYSTEM,
    ) -> None:
        self._config = config
        self._clock = clock
        # It comes from the process's generator, which a test can seed and a fork reseeds.
        self._random = rng or random.Random(random.getrandbits(64))
        self._meters = meters or NetworkMeters()
        self._sockets = sockets
        self._poller, self._wakeup = sockets.poller()
        self._resolver = Resolver(self._wakeup.wake, lookup)
        self._logins = self._logins_of(config)
        self._outages = Outages()
        self._names = _names_of(config)
        self.arenas = ArenaPool(config.spare_arena_bytes)
        """The memory of Fetch responses; ``arenas.in_use``: bytes that they hold. Network thread only."""
        self._known = {
            FIRST_BOOTSTRAP - place: self._learn(Node(FIRST_BOOTSTRAP - place, host, port))
            for place, (host, port) in enumerate(config.bootstrap)
        }
        self._cluster_id: str | None = None
        self._channels: dict[tuple[int, ConnectionPurpose], Channel] = {}
        # Whether one of them may be for a bootstrap address.
        self._has_bootstrap = False
        # Requests for any node that have not found one.
        self._homeless: deque[Request] = deque()
        # The start among equals, so that not all clients ask the same broker first.
        self._offset = self._random.randrange(1024)
        self._done: list[Completed] = []
        self._closed = False
        self.was_woken = False
        """Whether another thread has ended the latest `poll`."""
        # Whether `_work` is due before `_due_at`: for the stirred channels, or for all.
        self._stirred = True
        self._stirred_all = True
        self._due_at = 0
        self.on_wrong_node: Callable[[], None] = lambda: None
        """Called when a broker is not the node that metadata says: all brokers are to be forgotten."""
        self.on_lost: Callable[[int, ConnectionPurpose, KafkaError], None] = lambda *what: None
        """Called when a connection has ended, also when no request was under way on it."""
        self.on_native_heartbeats: OnNativeHeartbeats | None = None
        """Called with the heartbeats sent by the native thread. Set before the first one is passed to it."""
        self.on_native_renewals: OnNativeHeartbeats | None = None
        """The same for renewals of locks, on the connections of share sessions. Set before the first of these."""
        self.direct_users: dict[ConnectionPurpose, DirectUser] = {}
        """Whose requests threads of the application write by themselves, by connection. Set before one is opened."""
        # The channel on which the native thread may send heartbeats.
        self._left_to: Channel | None = None
        self._is_late = False
        self._woke_at = self._clock.now_ms()

    # -- the cluster

    def set_nodes(self, nodes: Iterable[Node], cluster_id: str | None = None) -> None:
        """Set the brokers of the cluster, from metadata. Bootstrap addresses stay as a last resort (KIP-1102).

        Args:
            cluster_id: the cluster's; None: as before.
        """
        now = self._clock.now_ms()
        self._stir_all()
        wanted = {node.node_id: node for node in nodes}
        for node_id in [known for known in self._known if known >= 0]:
            node = wanted.get(node_id)
            old = self._known[node_id].node
            if node is not None and (node.host, node.port) == (old.host, old.port):
                self._known[node_id].node = node
                continue
            del self._known[node_id]
            reason = "left the cluster" if node is None else f"moved to {node.host}:{node.port}"
            for channel in [item for item in self._channels.values() if item.known.node.node_id == node_id]:
                self._end(
                    channel, DisconnectedError(f"broker {node_id} at {old.host}:{old.port} {reason}"), now
                )
        for node_id, node in wanted.items():
            if node_id not in self._known:
                self._known[node_id] = self._learn(node)
                self._adopt(self._known[node_id])
        self._cluster_id = cluster_id or self._cluster_id
        for known in self._known.values():
            known.cluster_id = self._cluster_id if self._config.checks_cluster else None

    def rebootstrap(self) -> None:
        """Forget the brokers and begin again at the bootstrap addresses, whose names are looked up again (KIP-1102)."""
        now = self._clock.now_ms()
        self._stir_all()
        for channel in tuple(self._channels.values()):
            self._end(
                channel,
                DisconnectedError(f"{channel.known} was closed to begin again at bootstrap.servers"),
                now,
            )
        self._cluster_id = None
        self._known = {node_id: known for node_id, known in self._known.items() if known.is_bootstrap}
        for known in self._known.values():
            known.forgive()

    def disconnect(
        self,
        node_id: int,
        purpose: ConnectionPurpose | None = None,
        *,
        unless_heard_since: int | None = None,
        why: str = "the broker does not answer",
    ) -> None:
        """Close connections to a silent broker: requests under way end, and the next ones open a new connection.

        A network path that drops packets looks like a slow broker until request.timeout.ms, and all requests queue up.

        Args:
            purpose: only that one; None: all.
            unless_heard_since: leave alone those on which anything was read at that time (ms) or later.
            why: for the message.
        """
        now = self._clock.now_ms()
        for channel in [
            item
            for item in self._channels.values()
            if item.known.node.node_id == node_id
            and purpose in (None, item.purpose)
            and (unless_heard_since is None or item.heard_at < unless_heard_since)
        ]:
            self._end(channel, DisconnectedError(f"{channel.known} was closed: {why}"), now)

    def nodes(self) -> tuple[Node, ...]:
        """The brokers of the last `set_nodes`."""
        return tuple(known.node for known in self._known.values() if not known.is_bootstrap)

    def broker(self, node_id: int) -> str | None:
        """A broker of `set_nodes` and its address, for a message; None if it is not known. Any thread."""
        known = self._known.get(node_id)
        return None if known is None or known.is_bootstrap else str(known)

    def api_range(self, node_id: int, api_key: int) -> tuple[int, int] | None:
        """The versions of an API that a broker offers (`ANY_NODE`: any broker seen); None before its first answer."""
        for known in self._candidates() if node_id == ANY_NODE else filter(None, [self._known.get(node_id)]):
            if known.ranges is not None:
                return known.ranges.get(api_key)
        return None

    def trouble(self) -> str | None:
        """Why no broker can be reached, each address with its reason; None when one is connected or none failed."""
        if any(channel.is_ready for channel in self._channels.values()):
            return None
        brokers = {
            known.address for known in self._known.values() if known.trouble and not known.is_bootstrap
        }
        told = [
            known.trouble
            for known in self._known.values()
            if known.trouble and not (known.is_bootstrap and known.address in brokers)
        ]
        return "; ".join(told) or None

    def is_cut_off(self) -> bool:
        """Whether no broker can be reached: none is connected or connecting, and all addresses failed."""
        if any(channel.is_started for channel in self._channels.values()):
            return False
        return all(known.is_away for known in self._candidates())

    # -- requests

    def send(self, request: Request) -> None:
        """Queue a request; `poll` opens the connection if there is none, and returns the ended request.

        Raises:
            ClosedError: after `close`.
        """
        if self._closed:
            raise ClosedError("the network client is closed")
        self._stirred = True
        request.queued_at = self._clock.now_ms()
        if request.node_id == ANY_NODE:
            self._homeless.append(request)
        elif (known := self._known.get(request.node_id)) is not None:
            self._channel(known, request.purpose).put(request)
        else:
            unknown = ConnectError(f"broker {request.node_id} is not among the cluster's nodes")
            self._done.append(Completed(request, None, unknown, -1, self._clock.now_ms()))

    def arm_native_heartbeat(self, plan: NativeHeartbeatPlan | None) -> None:
        """Set the heartbeat for the native thread to send if this thread cannot; None: none.

        Opens its connection. The purpose is that of heartbeats.
        """
        now = self._clock.now_ms()
        channel: Channel | None = None
        if plan is not None and (known := self._known.get(plan.request.node_id)) is not None:
            channel = self._channel(known, ConnectionPurpose.GROUP)
        before, self._left_to = self._left_to, channel
        if before is not None and before is not channel:
            before.arm_native_heartbeat(None, now)
        if channel is not None:
            channel.arm_native_heartbeat(plan, now)
            if not channel.is_started:
                self._stirred = channel.is_stirred = True

    def arm_native_renewal(self, node_id: int, plan: NativeHeartbeatPlan | None) -> None:
        """As `arm_native_heartbeat`, on the connection of a share session. Its locks end with it, so none is opened."""
        channel = self._channels.get((node_id, ConnectionPurpose.FETCH))
        if channel is not None:
            channel.arm_native_heartbeat(plan, self._clock.now_ms())

    def can_send(self, node_id: int, purpose: ConnectionPurpose, now: int) -> bool:
        """Whether a request would be sent, or a connection tried, without waiting for a backoff or a throttle."""
        if node_id == ANY_NODE:
            return any(self.can_send(known.node.node_id, purpose, now) for known in self._candidates())
        known = self._known.get(node_id)
        if known is None:
            return False
        channel = self._channels.get((node_id, purpose))
        if channel is not None and channel.is_started:
            return not channel.is_throttled(now)
        return not known.waits(now)

    def in_flight(self, node_id: int | None = None, purpose: ConnectionPurpose | None = None) -> int:
        """Requests queued and sent.

        None counts all; requests for any node that have no node yet count for `ANY_NODE`.
        """
        count = sum(
            channel.in_flight
            for (known_id, known_purpose), channel in self._channels.items()
            if node_id in (None, known_id) and purpose in (None, known_purpose)
        )
        if node_id in (None, ANY_NODE):
            count += sum(purpose in (None, request.purpose) for request in self._homeless)
        return count

    # -- the loop

    def poll(self, wait_ms: int | None) -> list[Completed]:
        """Do all I/O once, waiting at most ``wait_ms`` (None: for ever) for an event.

        Returns sooner, perhaps with an empty list, after any event: a wake-up, a connection, a deadline.

        Raises:
            ClosedError: after `close`. BootstrapResolutionError: names had no address for too long.
        """
        if self._closed:
            raise ClosedError("the network client is closed")
        meters = self._meters
        self.was_woken = False
        now = self._clock.now_ms()
        if self._is_late or now - self._woke_at > _LATE_MS:
            # This thread was kept from running. Read what has arrived meanwhile before calling anything overdue.
            self._look(0)
        self._work(now)
        meters.works.record(now, now - self._woke_at)
        # A wake-up seen by the first look ends this poll: it is not repeated.
        patience = 0 if self.was_woken else self._patience(wait_ms, now)
        woke_at = self._look(patience)
        meters.waits.record(woke_at, woke_at - now)
        self._is_late = patience is not None and woke_at - now > patience + _LATE_MS
        if found := self._resolver.results():
            self._deliver_found(found, woke_at)
        if self._names is not None:
            self._names.check(woke_at)
        if self._logins is not None and self._logins.deliver(woke_at):
            for channel in tuple(self._channels.values()):
                self._step(channel, woke_at, channel.resume)
            self._logins.served()
        ended = self._done.copy()
        self._done.clear()
        return ended

    def next_deadline(self, now: int) -> int:
        """When `poll` has work without any byte arriving (ms); ``now`` if at once."""
        if self._done:
            return now
        deadline = min((channel.next_deadline() for channel in self._channels.values()), default=FOREVER)
        if self._names is not None:
            deadline = min(deadline, self._names.due)
        return max(now, min(deadline, self._homeless_due()) if self._homeless else deadline)

    def wakeup(self) -> None:
        """End the present `poll`, or the next one. Any thread; a flood costs one byte."""
        self._wakeup.wake()

    def pass_on(self) -> Arrivals | None:
        """Let fetched records go to another thread without the interpreter. None: that is not possible here."""
        return self._poller.pass_on()

    @staticmethod
    def new_poll_wait() -> PollWait:
        """For the one application of a share consumer."""
        return drain.drain.PollWait() if drain.COMPILED else PlainPollWait()

    def close(self, timeout_ms: int = 0) -> None:
        """Close every connection; unwritten bytes get ``timeout_ms`` to be sent.

        Unfinished requests are not returned: poll until `in_flight` is 0 first if their responses matter.
        """
        if self._closed:
            return
        until = add_ms(self._clock.now_ms(), timeout_ms)
        while self._has_unwritten() and (left := until - self._clock.now_ms()) > 0:
            self.poll(left)
        self._closed = True
        for channel in self._channels.values():
            channel.close(self._clock.now_ms())
        self._channels.clear()
        self._resolver.close()
        if self._logins is not None:
            self._logins.close()
        self._poller.close()
        self._wakeup.close()
        for item in self._done:
            if item.loan is not None:
                item.loan.release()
        self._done.clear()
        self.arenas.close()

    def __repr__(self) -> str:
        ready = sum(channel.is_ready for channel in self._channels.values())
        state = (
            "closed"
            if self._closed
            else f"connections={ready}/{len(self._channels)} in_flight={self.in_flight()}"
        )
        return f"<NetworkClient {self._config.client_id} nodes={len(self.nodes())} {state}>"

    # -- inside

    def _look(self, wait_ms: int | None) -> int:
        """Wait, and let each channel do what its socket is ready for. Returns when that began (ms)."""
        ready = self._poller.wait(wait_ms)
        self._woke_at = woke_at = self._clock.now_ms()
        for channel, events in ready:
            if channel is None:
                self.was_woken = True
            else:
                self._step(channel, woke_at, channel.on_ready, events)
        return woke_at

    def _has_unwritten(self) -> bool:
        return bool(self._homeless) or any(channel.has_unwritten for channel in self._channels.values())

    def _logins_of(self, config: ConnectionConfig) -> Logins | None:
        """Imported only for clients with SASL."""
        if config.credentials is None:
            return None
        from kadence.net.logins import Logins

        return Logins(config, config.credentials, self._wakeup.wake)

    def _learn(self, node: Node) -> KnownNode:
        config = self._config
        backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, self._random)
        return KnownNode(node, backoff)

    def _adopt(self, known: KnownNode) -> None:
        """A bootstrap connection to the same host and port becomes the broker's."""
        for (node_id, purpose), channel in tuple(self._channels.items()):
            old, node = channel.known, known.node
            if (
                old.is_bootstrap
                and channel.is_ready
                and (old.node.host, old.node.port) == (node.host, node.port)
            ):
                del self._channels[node_id, purpose]
                self._channels[node.node_id, purpose] = channel
                channel.belong(known)
                known.ranges = old.ranges

    def _on_sent_natively(self, purpose: ConnectionPurpose) -> OnNativeHeartbeats | None:
        """Who counts what the native thread sends on connections of a purpose; None: it sends nothing there."""
        if purpose is ConnectionPurpose.GROUP:
            return self.on_native_heartbeats
        return self.on_native_renewals if purpose is ConnectionPurpose.FETCH else None

    def _channel(self, known: KnownNode, purpose: ConnectionPurpose) -> Channel:
        key = (known.node.node_id, purpose)
        channel = self._channels.get(key)
        if channel is None:
            channel = Channel(
                known,
                purpose,
                self._config,
                self._poller,
                self.arenas,
                self._done,
                self._logins,
                self._meters,
                self._sockets,
                self._outages,
                self._on_sent_natively(purpose),
                self.direct_users.get(purpose),
            )
            self._channels[key] = channel
            self._has_bootstrap = self._has_bootstrap or known.is_bootstrap
        return channel

    def _candidates(self) -> list[KnownNode]:
        """The nodes to try for any node, the best first: fewest failures, brokers before bootstrap addresses."""
        count = max(1, len(self._known))

        def rank(known: KnownNode) -> tuple[int, bool, int]:
            node_id = known.node.node_id
            place = -node_id if known.is_bootstrap else (node_id + self._offset) % count
            return known.failures, known.is_bootstrap, place

        known = list(self._known.values())
        if not self._config.returns_to_bootstrap:
            known = [each for each in known if not each.is_bootstrap] or known
        return sorted(known, key=rank)

    def _home(self, purpose: ConnectionPurpose, now: int) -> Channel | None:
        """The channel for a request for any node, None while every broker is in its backoff."""
        channels = [item for item in self._channels.values() if item.purpose is purpose]
        ready = [item for item in channels if item.is_ready and not item.is_throttled(now)]
        silent = [item for item in ready if item.is_silent(now)]
        if len(ready) > len(silent):
            return min((item for item in ready if item not in silent), key=lambda item: item.rank(now))
        dialling = [item for item in channels if item.is_started and item not in silent]
        if dialling:
            return dialling[0]
        avoided = {item.known.address for item in silent}
        for known in self._candidates():
            if not known.waits(now) and known.address not in avoided:
                return self._channel(known, purpose)
        return min(silent, key=lambda item: item.rank(now)) if silent else None

    def _stir_all(self) -> None:
        """Something changed that any channel may depend on: the brokers, or the times when they may be tried."""
        self._stirred = self._stirred_all = True

    def _work(self, now: int) -> None:
        """Work that does not depend on incoming bytes: deadlines, routing of requests, new connections, bytes to write.

        Only for channels that were stirred or are due: a turn of the network thread should cost microseconds.
        """
        if not self._stirred and now < self._due_at:
            return
        everything, self._stirred_all = self._stirred_all, False
        for channel in tuple(self._channels.values()):
            if now >= channel.due_at:
                self._step(channel, now, channel.tick)
            elif everything or channel.is_stirred:
                channel.is_stirred = True
                if channel.queue:
                    channel.drop_overdue(now)
        if self._has_bootstrap:
            self._retire_bootstrap(now)
        if self._homeless:
            self._find_homes(now)
        unsent, due_at = len(self._homeless), FOREVER
        for channel in tuple(self._channels.values()):
            if channel.is_stirred:
                self._advance(channel, now)
        for channel in self._channels.values():
            unsent += len(channel.queue)
            if channel.due_at < due_at:  # noqa: PLR1730 - min() costs more, in each turn
                due_at = channel.due_at
        self._meters.unsent = unsent
        # A channel that ended meanwhile may matter to all: next time.
        self._stirred = self._stirred_all
        self._due_at = min(due_at, self._homeless_due()) if self._homeless else due_at

    def _advance(self, channel: Channel, now: int) -> None:
        """Start to connect if requests wait, else send them."""
        channel.is_stirred = False
        if channel.is_started:
            if channel.queue:
                self._step(channel, now, channel.pump)
        elif channel.is_wanted and not channel.known.waits(now):
            if self._names is not None and channel.known.is_bootstrap:
                self._names.sought(now)
            self._step(channel, now, channel.start, self._resolver)
        channel.due_at = channel.next_deadline()

    def _find_homes(self, now: int) -> None:
        for _ in range(len(self._homeless)):
            request = self._homeless.popleft()
            if request.deadline <= now:
                self._never_sent(request, now)
            elif (home := self._home(request.purpose, now)) is not None:
                home.put(request)
            else:
                self._homeless.append(request)

    def _homeless_due(self) -> int:
        """When a request for any node is late, or a broker may be tried for it."""
        late = min(request.deadline for request in self._homeless)
        return min([late, *(known.retry_at for known in self._candidates())])

    def _retire_bootstrap(self, now: int) -> None:
        """Once the brokers are known, and at least one is not known to be away, close bootstrap connections."""
        self._has_bootstrap = any(channel.known.is_bootstrap for channel in self._channels.values())
        if all(known.is_bootstrap or known.failures > 0 for known in self._known.values()):
            return
        for channel in tuple(self._channels.values()):
            if channel.known.is_bootstrap and channel.is_idle:
                self._end(channel, IdleError(f"{channel.known} is not needed any more"), now)

    def _deliver_found(self, found: Iterable[Found], now: int) -> None:
        """Pass on finished name look-ups."""
        for item in found:
            if self._names is not None:
                self._names.found(item)
            for channel in tuple(self._channels.values()):
                self._step(channel, now, channel.found, item)

    def _never_sent(self, request: Request, now: int) -> None:
        reason = self.trouble() or "no broker was ready"
        late = RequestTimedOutError(f"{request.name} could not be sent in time: {reason}")
        self._done.append(Completed(request, None, late, -1, now))

    def _step(self, channel: Channel, now: int, action: Callable[..., None], *arguments: object) -> None:
        """One step of a channel that may have ended meanwhile, and that this step may end."""
        if self._channels.get(channel.key) is not channel:
            return
        self._stirred = channel.is_stirred = True
        try:
            action(*arguments, now)
        except KafkaError as error:
            self._end(channel, error, now)

    def _end(self, channel: Channel, error: KafkaError, now: int) -> None:
        known = channel.known
        self._stir_all()
        if isinstance(error, WrongNodeError):
            self.on_wrong_node()
        if isinstance(error, AuthenticationError):
            self._meters.refused(now, again=channel.is_ready)
        if isinstance(error, IdleError):
            _log.debug("closed %s (%s): %s", known, channel.purpose.name, error)
        else:
            is_counted = known.failed(now, str(error))
            if isinstance(error, DisconnectedError):
                # Not a problem yet: either it reconnects, or the failure to do so is logged.
                _log.info("%s", _naming(known, error))
            elif channel.is_ready:
                _log.warning("%s", _naming(known, error))
            else:
                known.is_away = known.is_away or isinstance(error, ConnectError)
                if is_counted:
                    self._outages.failed(now, known.address, error)
        del self._channels[channel.key]
        self._homeless.extendleft(reversed(channel.end(error, now)))
        lost = DisconnectedError(str(error)) if isinstance(error, IdleError) else error
        self.on_lost(known.node.node_id, channel.purpose, lost)

    def _patience(self, wait_ms: int | None, now: int) -> int | None:
        """How long the poller may wait (ms; None: for ever)."""
        deadline = now if self._done else self._due_at
        if self._names is not None:
            deadline = min(deadline, self._names.due)
        if wait_ms is not None:
            deadline = min(deadline, add_ms(now, max(0, wait_ms)))
        return None if deadline >= FOREVER else min(max(deadline - now, 0), _LONGEST_WAIT_MS)


def _names_of(config: ConnectionConfig) -> BootstrapNames | None:
    """What watches names is loaded where they have a limit."""
    if config.resolve_timeout_ms <= 0:
        return None
    from kadence.net.names import BootstrapNames

    return BootstrapNames(config.bootstrap, config.resolve_timeout_ms)


def _naming(known: KnownNode, error: KafkaError) -> str:
    """The error with the broker's name, unless that is in it already."""
    text = str(error)
    return text if known.address in text else f"{known}: {text}"
