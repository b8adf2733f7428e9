"""One connection for a (node, purpose), from the first request until it is closed: dialling, then frames both ways.

    waiting ──start──▶ dialling ──stream is open─▶ ApiVersions, SASL ──accepted──▶ ready ──▶ (closed)
                          ▲                              │
                          └──── next address ◀── failed ─┘

A channel waits while its node is in its reconnect backoff. Requests that end go to one list, the client's, as they
end; the channel itself ends by an exception from one of its methods, which the client passes to `end`.
"""

from __future__ import annotations

import selectors
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kadence.clock import FOREVER
from kadence.connection.connection import BrokerConnection, Phase, WrongNodeError
from kadence.connection.request import ANY_NODE, Completed, ConnectionPurpose, NativeHeartbeatPlan, Request
from kadence.connection.sent import LENGTH_BYTES, OPENING_LIMIT
from kadence.errors import (
    AuthenticationError,
    DisconnectedError,
    KafkaError,
    MalformedMessageError,
    RequestTimedOutError,
    TransportError,
)
from kadence.logs import logger
from kadence.net.dial import Dial, Step, tell
from kadence.net.direct import DirectUser, DirectWay, way_of
from kadence.net.intake import Frame, Inbox
from kadence.net.native_heartbeat import NativeHeartbeatSender, OnNativeHeartbeats, heartbeat_sender_of
from kadence.net.sockets import DIRECT, REPEATED, Stream

if TYPE_CHECKING:
    from kadence.metrics.sensors import NetworkMeters
    from kadence.net.arena import ArenaPool
    from kadence.net.config import ConnectionConfig
    from kadence.net.dial import Found, Resolver
    from kadence.net.logins import Logins
    from kadence.net.nodes import KnownNode, Outages
    from kadence.net.sockets import Poller, Sockets

__all__ = ["Channel", "IdleError"]

_log = logger("kadence.net")

_REPEATING_MS: Final = 10_000
"""How long (ms) the poller repeats a fetch before Python counts it, which bounds the delay of metrics.

Longer than the interval of heartbeats (5 s, or 3 s), so that a group member wakes only for these.
"""

_SILENT_MS: Final = 500
"""A working broker answers short requests, such as metadata, long before that (ms)."""


class IdleError(DisconnectedError):
    """Closed, by us or by the broker, with nothing in flight: not a failure."""


class Channel:
    """One connection of one node; see the top of the file. Called by `NetworkClient` only.

    Args:
        poller: waits for its socket, and reads from it. done: takes ended requests.
        pool: memory for Fetch responses. logins: what to authenticate with. meters: count the events here. sockets:
            creates the connection. native_heartbeats_sent: called with the heartbeats sent by the native thread; None:
            it has none to send. direct_user: whose requests threads of the application may write by themselves.
    """

    __slots__ = (
        "_config",
        "_connection",
        "_dial",
        "_direct_user",
        "_done",
        "_has_answered",
        "_heartbeat_plan",
        "_heartbeat_sender",
        "_inbox",
        "_logins",
        "_logins_seen",
        "_meters",
        "_node_meters",
        "_on_native_heartbeats",
        "_outages",
        "_poller",
        "_pool",
        "_repeating",
        "_repeating_at",
        "_sockets",
        "_stream",
        "_used_at",
        "_watched",
        "_way",
        "due_at",
        "is_stirred",
        "key",
        "known",
        "purpose",
        "queue",
    )

    def __init__(
        self,
        known: KnownNode,
        purpose: ConnectionPurpose,
        config: ConnectionConfig,
        poller: Poller,
        pool: ArenaPool,
        done: list[Completed],
        logins: Logins | None,
        meters: NetworkMeters,
        sockets: Sockets,
        outages: Outages,
        native_heartbeats_sent: OnNativeHeartbeats | None = None,
        direct_user: DirectUser | None = None,
    ) -> None:
        self.purpose = purpose
        self.queue: deque[Request] = deque()
        self.due_at = 0
        """When `tick`, or a start, is due; the client keeps it up to date."""
        self.is_stirred = True
        """Something has happened here, so the client has to check this channel."""
        self._config = config
        self._poller = poller
        self._pool = pool
        self._done = done
        self._logins = logins
        self._meters = meters
        self._sockets = sockets
        self._outages = outages
        self._logins_seen = 0
        self._dial: Dial | None = None
        self._connection: BrokerConnection | None = None
        self._stream: Stream | None = None
        self._inbox: Inbox | None = None
        self._on_native_heartbeats = native_heartbeats_sent
        self._direct_user = direct_user
        self._way: DirectWay | None = None
        self._heartbeat_plan: NativeHeartbeatPlan | None = None
        self._heartbeat_sender: NativeHeartbeatSender | None = None
        self._watched: tuple[int, int] | None = None
        self._used_at = 0
        self._has_answered = False
        # The fetch that the poller may send again.
        self._repeating: Request | None = None
        self._repeating_at = 0
        self.belong(known)

    def belong(self, known: KnownNode) -> None:
        """This connection is that node's."""
        self.known = known
        self.key = (known.node.node_id, self.purpose)
        self._node_meters = self._meters.node(known.node.node_id)
        if self._way is not None:
            self._way.belong(known.node.node_id, self._node_meters)

    def put(self, request: Request) -> None:
        """Queue a request; `pump` sends it."""
        self.queue.append(request)
        self.is_stirred = True

    # -- the state, for the client

    @property
    def is_started(self) -> bool:
        """Dialling, or a later state."""
        return self._dial is not None

    @property
    def is_wanted(self) -> bool:
        """A request waits for it, or a native heartbeat may need it, which could not wait for a new connection."""
        return bool(self.queue) or self._heartbeat_plan is not None

    @property
    def is_ready(self) -> bool:
        """Requests can be sent, except for throttling."""
        return self._connection is not None and self._connection.phase is Phase.READY

    @property
    def in_flight(self) -> int:
        """Requests queued and sent."""
        return len(self.queue) + (self._connection.in_flight if self._connection is not None else 0)

    @property
    def is_idle(self) -> bool:
        """Ready, with nothing to do."""
        connection = self._connection
        return connection is not None and self.is_ready and not self.queue and connection.idle

    @property
    def has_unwritten(self) -> bool:
        """Bytes wait to be sent."""
        connection = self._connection
        if self._stream is not None and self._stream.has_unwritten:
            return True
        return bool(self.queue) or (connection is not None and bool(connection.outgoing()))

    @property
    def heard_at(self) -> int:
        """When (ms of the monotonic clock) something was read last, be it a part of a long answer; -1: never."""
        return -1 if self._stream is None else self._stream.intake.heard_at

    def waited_ms(self, now: int) -> int:
        """How long the broker has not been heard although it owes an answer; 0 without one."""
        connection = self._connection
        return 0 if connection is None else max(now - max(connection.owes_since, self.heard_at), 0)

    def is_silent(self, now: int) -> bool:
        """The broker has not answered for so long that other brokers should be asked."""
        return self.waited_ms(now) >= _SILENT_MS

    def rank(self, now: int) -> tuple[int, int, int]:
        """For a request that any broker can answer; the lowest is the best.

        It waits behind those in flight. Those that other brokers could answer, too, are short; others may take as long
        as their time limits allow.
        """
        owed = 0 if self._connection is None else self._connection.owed
        return self.waited_ms(now), owed, self.in_flight

    def is_throttled(self, now: int) -> bool:
        """The broker throttles this client."""
        return self._connection is not None and now < self._connection.held_until

    def next_deadline(self) -> int:
        """When `tick`, or a start, is due."""
        connection, dial, queue = self._connection, self._dial, self.queue
        deadline = min(request.deadline for request in queue) if queue else FOREVER
        if dial is None:
            return min(deadline, self.known.retry_at) if self.is_wanted else FOREVER
        if connection is None or connection.phase is not Phase.READY:
            return min(deadline, dial.attempt_until)
        deadline = min(deadline, connection.next_deadline())
        if queue:
            # Unless another authentication blocks it: its response does not come by the clock.
            if connection.can_send(connection.held_until):
                deadline = min(deadline, connection.held_until)
        elif self._config.connections_max_idle_ms >= 0 and connection.idle:
            deadline = min(deadline, self._used_at + self._config.connections_max_idle_ms)
        return deadline

    # -- life cycle. All of these raise the KafkaError that ends the channel.

    def start(self, resolver: Resolver, now: int) -> None:
        """Begin to connect."""
        node = self.known.node
        self._dial = Dial(
            self._config, node.host, str(self.known), now + self._config.connect_timeout_ms, self._sockets
        )
        if (found := resolver.ask(node.host, node.port)) is not None:
            self.found(found, now)

    def found(self, found: Found, now: int) -> None:
        """A name look-up has ended, perhaps this channel's."""
        dial, node = self._dial, self.known.node
        if (
            dial is not None
            and dial.step is Step.LOOKUP
            and (found.host, found.port) == (node.host, node.port)
        ):
            dial.found(found, now)
            self._watch(dial.fileno(), dial.interest)

    def on_ready(self, events: int, now: int) -> None:
        """The poller has seen an event."""
        if self._connection is None:
            self._go_on_dialling(now)
            return
        if events & REPEATED:
            self._repeated(now)
        if events & DIRECT and self._way is not None:
            self._used_at = now
            self._way.count(now)
        if events & selectors.EVENT_READ:
            self._read(now)
        if events & selectors.EVENT_WRITE:
            self._write(now)

    def pump(self, now: int) -> None:
        """Hand queued requests to the connection and write what fits."""
        connection, queue = self._connection, self.queue
        waiting = len(queue)
        while queue and connection is not None and connection.can_send(now):
            request = queue.popleft()
            encoded = connection.encoded_bytes
            if (ended := connection.send(request, now)) is not None:
                self._done.append(ended)
            else:
                self._node_meters.requests.record(now, connection.encoded_bytes - encoded)
                self._meters.unsent_ms.record(now, now - request.queued_at)
        if len(queue) < waiting:
            self._used_at = now
            self._write(now)

    def tick(self, now: int) -> None:
        """Check deadlines: overdue requests, an attempt that takes too long, idleness."""
        self.drop_overdue(now)
        connection, dial = self._connection, self._dial
        if connection is not None and self.is_ready:
            if (error := connection.overdue(now)) is not None:
                raise error
            idle_ms = self._config.connections_max_idle_ms
            if idle_ms >= 0 and self.is_idle and now - self._used_at >= idle_ms:
                raise IdleError(f"{self.known} was not used for {now - self._used_at} ms")
            connection.tick(now)
            self._write(now)
        elif dial is not None and now >= dial.attempt_until:
            self._attempt_failed("no answer in time", now)

    def drop_overdue(self, now: int) -> None:
        """End queued requests whose time to be sent is over."""
        for request in tuple(self.queue):
            if request.deadline <= now:
                self.queue.remove(request)
                late = RequestTimedOutError(f"{request.name} could not be sent in time: {self._why_unsent()}")
                self._done.append(Completed(request, None, late, -1, now))

    def resume(self, now: int) -> None:
        """Credentials may have arrived."""
        if self._connection is not None:
            self._connection.resume(now)
            self._write(now)

    def arm_native_heartbeat(self, plan: NativeHeartbeatPlan | None, now: int) -> None:
        """The heartbeat for the native thread to send here if this thread cannot; None: none."""
        self._heartbeat_plan = plan
        if self._heartbeat_sender is not None:
            self._heartbeat_sender.arm_native_heartbeat(plan, now)

    def end(self, error: KafkaError, now: int) -> list[Request]:
        """Close, and end requests under way. Returns the requests for any node that were never sent."""
        if self._connection is not None:
            self._done += self._connection.lose(error, now)
        orphans = []
        for request in self.queue:
            if request.node_id == ANY_NODE and error.retriable:
                orphans.append(request)
            else:
                self._done.append(Completed(request, None, _fresh(error), -1, now))
        self.queue.clear()
        self.close(now)
        return orphans

    def close(self, now: int) -> None:
        """Close the socket; the caller handles the requests."""
        self._hang_up(now)
        if self._dial is not None:
            self._dial.close()

    def __repr__(self) -> str:
        stage = repr(self._connection) if self._connection is not None else f"to {self.known}"
        if self._connection is None:
            stage += f" {self._dial.step.value if self._dial is not None else 'waiting'}"
        return f"<channel {self.purpose.name} {stage} queued={len(self.queue)}>"

    def _why_unsent(self) -> str:
        if self.is_ready:
            return f"{self.known} has too many requests to answer"
        if self._dial is not None:
            return f"no connection to {self.known} yet ({self._dial.step.value})"
        return self.known.trouble or f"no connection to {self.known}"

    # -- inside: dialling

    def _go_on_dialling(self, now: int) -> None:
        dial = self._dial
        assert dial is not None
        # A failed attempt closes its descriptor, whose number the next attempt may get: stop watching before.
        self._unwatch()
        if dial.advance(now) and dial.sock is not None:
            self._talk(dial, now)
        elif dial.sock is not None:
            self._watch(dial.fileno(), dial.interest)

    def _talk(self, dial: Dial, now: int) -> None:
        """The stream is open: ask for versions."""
        assert dial.sock is not None
        assert dial.address is not None
        logins = self._logins
        if logins is not None:
            logins.about_to_talk(dial.address.sockaddr[0])
        connection = BrokerConnection(
            f"{self.known} at {dial.address}" if self.known.address != str(dial.address) else str(self.known),
            client_id=self._config.client_id,
            request_timeout_ms=self._config.request_timeout_ms,
            software=(self._config.software_name, self._config.software_version),
            login=None if logins is None else logins.login,
            host=self.known.node.host,
            meant=self.known.meant,
            ranges=self.known.ranges,
        )
        self._stream = self._sockets.stream(dial.sock)
        self._connection = connection
        self._inbox = Inbox(
            self._stream.intake,
            self._pool,
            connection.fetch_due,
            OPENING_LIMIT,
            connection.address,
        )
        if self._on_native_heartbeats is not None:
            self._heartbeat_sender = heartbeat_sender_of(
                self._stream, connection, self._on_native_heartbeats, self._sent_natively
            )
        self.arm_native_heartbeat(self._heartbeat_plan, now)
        self._logins_seen = 0
        self._meters.opened(now)
        connection.open(now)
        self._watch(dial.fileno(), selectors.EVENT_READ)
        self._write(now)

    def _opened(self, now: int) -> None:
        """ApiVersions was answered, and SASL accepted where it is asked for."""
        connection = self._connection
        assert connection is not None
        self.known.succeeded(connection.ranges)
        if self._inbox is not None:
            self._inbox.limit = self._config.max_frame_bytes
        self._outages.reached(now, self.known.address, str(self.known))
        logins = self._logins
        as_whom = f" as {logins.login.who} by {logins.login.mechanism}" if logins is not None else ""
        _log.debug("connected to %s (%s)%s", connection.address, self.purpose.name, as_whom)
        if self._direct_user is not None and self._stream is not None:
            self._way = way_of(
                self.key[0], self._stream, connection, self.queue, self._direct_user, self._node_meters
            )
        self.pump(now)
        if self._heartbeat_sender is not None:
            self._heartbeat_sender.arm(now)

    def _attempt_failed(self, cause: str, now: int) -> None:
        """Until ApiVersions is answered a failure concerns this address; the next one may work."""
        dial = self._dial
        assert dial is not None
        self._hang_up(now)
        dial.failed(cause, now)
        self._watch(dial.fileno(), dial.interest)

    def _hang_up(self, now: int) -> None:
        self._unwatch()
        if self._connection is not None:
            self._meters.closed(now)
        if self._inbox is not None:
            self._inbox.close()
        if self._heartbeat_sender is not None:
            self._heartbeat_sender.close()
            self._heartbeat_sender = None
        if self._way is not None:
            self._way.close()
            self._way = None
        self._connection = self._stream = self._inbox = None

    # -- inside: bytes

    def _read(self, now: int) -> None:
        inbox = self._inbox
        assert inbox is not None
        if self._heartbeat_sender is not None:
            self._heartbeat_sender.count_sent(now)
        try:
            while (frame := inbox.next_frame()) is not None:
                self._receive(frame, now)
                if self._inbox is not inbox:
                    # A failed write of a response has ended this attempt to connect.
                    return
        except (OSError, TransportError) as error:
            self._broken(error, now)

    def _receive(self, frame: Frame, now: int) -> None:
        connection, dial = self._connection, self._dial
        assert connection is not None
        assert dial is not None
        was_ready = connection.phase is Phase.READY
        self._node_meters.incoming.record(now, len(frame.data) + LENGTH_BYTES)
        try:
            answer = connection.receive(frame.data, frame.arena, now)
        except BaseException:
            if frame.arena is not None:
                frame.arena.release()
            raise
        if answer is not None:
            self._used_at = now
            self._has_answered = True
            self._done.append(answer)
            self._node_meters.latency.record(now, now - answer.sent_at)
            return
        if connection.logins != self._logins_seen:
            self._logins_seen = connection.logins
            self._meters.logged_in(now, connection.login_ms, again=was_ready)
        if self.is_ready and not was_ready:
            self._used_at = now
            self._opened(now)
        else:
            if connection.phase is Phase.AUTHENTICATING:
                dial.step = Step.SASL
            self._write(now)
            self.pump(now)

    def _write(self, now: int) -> None:
        connection, stream = self._connection, self._stream
        assert connection is not None
        assert stream is not None
        sender = self._heartbeat_sender
        if sender is not None:
            sender.before_writing(now)
        if connection.own_sizes:
            for size in connection.own_sizes:
                self._node_meters.requests.record(now, size)
            connection.own_sizes.clear()
        pieces = connection.outgoing()
        try:
            while pieces:
                count = stream.write_now(pieces)
                if count is None:
                    break
                self._node_meters.outgoing.record(now, count)
                if (ended := connection.sent(count, now)) is not None:
                    self._done.append(ended)
                pieces = connection.outgoing()
        except OSError as error:
            self._broken(_last_words(stream) or error, now)
            return
        assert self._watched is not None
        events = selectors.EVENT_READ | selectors.EVENT_WRITE if pieces else selectors.EVENT_READ
        if self._watched[1] != events:
            self._watch(self._watched[0], events)
        if self.purpose is ConnectionPurpose.FETCH:
            self._leave_repeating(now)
        if sender is not None:
            sender.arm(now)

    def _leave_repeating(self, now: int) -> None:
        """Let the compiled poller repeat the fetch that was just written, if its sender permitted that.

        The permission holds while only that fetch is under way: any later request, such as SaslHandshake, has the
        number that the poller would use next. The poller runs only while this thread waits, and its requests were
        counted after the last wait, so the permission ends here.
        """
        connection, stream = self._connection, self._stream
        assert connection is not None
        assert stream is not None
        request = connection.repeating(now)
        if request is self._repeating:
            return
        if self._repeating is not None and self._repeating.repeat is not None:
            self._repeating.repeat.withdraw()
        self._repeating = None
        if request is None or stream.session is None:
            return
        assert request.repeat is not None
        self._repeating, self._repeating_at = request, now
        # A broker that answers much sooner than asked does not wait, so Python sends the next fetch.
        least_ms = request.message.max_wait_ms // 2
        intake: Any = stream.intake
        intake.send_again(request.repeat, *connection.again(), now, least_ms, now + _REPEATING_MS)
        if request.repeat.for_poll is not None:
            intake.wait_for_poll(*request.repeat.for_poll)
        follow, arrivals = request.repeat.follow, self._poller.arrivals
        if follow is not None and arrivals is not None and connection.follows():
            intake.follow(arrivals, follow.table)

    def _sent_natively(self, now: int, size: int, count: int) -> None:
        """Count requests of ``size`` bytes each that the native thread has written."""
        meters = self._node_meters
        meters.requests.record_alike(now, size * count, count)
        meters.outgoing.record_alike(now, size * count, count)

    def _repeated(self, now: int) -> None:
        """Count the requests and responses that the poller has handled by itself."""
        connection, stream, request = self._connection, self._stream, self._repeating
        assert connection is not None
        assert stream is not None
        assert request is not None
        assert request.repeat is not None
        intake: Any = stream.intake
        count, sent_at, size, answer_bytes, arrivals = intake.sent_again(now + _REPEATING_MS)
        connection.repeated(count, sent_at, size)
        self._used_at = sent_at
        meters = self._node_meters
        meters.requests.record_alike(now, size, count)
        meters.outgoing.record_alike(now, size, count)
        meters.incoming.record_alike(now, answer_bytes, count)
        meters.latency.record_alike(now, max(sent_at - self._repeating_at, 0), count)
        self._repeating_at = sent_at
        if not request.repeat.told(now, count, sent_at, arrivals):
            raise MalformedMessageError(f"{self.known} answered a fetch with records other than requested")

    def _broken(self, error: OSError | TransportError, now: int) -> None:
        """Reading or writing failed: ends the channel, or only the attempt while connecting."""
        if isinstance(error, AuthenticationError | WrongNodeError):
            raise error
        if not self.is_ready:
            assert self._dial is not None
            self._dial.check_refusal(error)
            cause = tell(error)
            is_hung_up = isinstance(error, DisconnectedError | ConnectionResetError | BrokenPipeError)
            if is_hung_up and self._dial.step is Step.VERSIONS and self._config.ssl_context is None:
                # A listener with TLS does this to a plain-text client.
                cause += " (does this listener speak TLS? Then set security.protocol to SSL or SASL_SSL)"
            self._attempt_failed(cause, now)
            return
        if self.is_idle:
            # Brokers also close idle connections.
            raise IdleError(f"{self.known}: {tell(error)}") from error
        if isinstance(error, TransportError) and not isinstance(error, DisconnectedError):
            raise error
        text = str(error) if isinstance(error, DisconnectedError) else f"{self.known}: {tell(error)}"
        if not self._has_answered and self._logins is None:
            # A listener with SASL does this to a client without: it sends its versions, and closes the connection.
            text += (
                " before it answered any request (does this listener require a login? Then set "
                "security.protocol to SASL_SSL or SASL_PLAINTEXT)"
            )
        raise DisconnectedError(text) from error

    def _watch(self, fd: int, events: int) -> None:
        if self._watched != (fd, events):
            self._poller.watch(fd, events, self, None if self._stream is None else self._stream.intake)
            self._watched = (fd, events)

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._poller.unwatch(self._watched[0])
            self._watched = None


def _last_words(stream: Stream) -> OSError | None:
    """Why the peer closed the connection, if it sent a reason: a TLS alert may be unread after a failed write."""
    try:
        stream.read_now(memoryview(bytearray(1)))
    except OSError as error:
        return error
    return None


def _fresh(error: KafkaError) -> KafkaError:
    """An error of its own for each request: one that is raised twice collects both tracebacks."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy
