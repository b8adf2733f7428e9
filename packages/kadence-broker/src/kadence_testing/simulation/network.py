"""A simulated network: sockets, listening ports, selectors; delays, cuts and resets by seed.

Connections behave as TCP: bytes of one direction arrive in order, and if a connection breaks, a prefix of the written
bytes has arrived. The network has the faults of a real one. It delays each piece of each connection separately, so
connections overtake each other. It holds all bytes while hosts cannot reach each other (`cut`). It breaks connections
and loses the bytes under way (`reset`).
"""

from __future__ import annotations

import errno
import os
import random
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kadence_testing.simulation.scheduler import Process, Scheduler, SimulationError

__all__ = ["Network", "SimulatedSelector", "SimulatedSocket", "Wakeup"]

_WINDOW: Final = 262_144
"""The most bytes under way, or unread, in one direction of a connection."""

_RETRY_MS: Final = 1_000
"""The wait before a connection attempt that a cut has held is repeated (ms)."""

_FIRST_FD: Final = 1_000_000
"""Larger than any real file descriptor, so that using one with the system fails."""


class Network:
    """The network between the processes of a simulation.

    Attributes:
        sockets: the sockets, by file descriptor. names: the names of the processes that it connects.
    """

    def __init__(self, scheduler: Scheduler, rng: random.Random) -> None:
        self.scheduler = scheduler
        self._rng = rng
        self._delay_ms = (0, 2)
        self.sockets: dict[int, Watchable] = {}
        self.names: set[str] = set()
        self._fds = _FIRST_FD
        self._ports = 30_000
        self._bound: dict[tuple[str, int], SimulatedSocket] = {}
        self._cut: set[frozenset[str]] = set()
        self._alone: set[str] = set()
        self._held: list[Pipe] = []

    def __repr__(self) -> str:
        return f"<network of {len(self.sockets)} sockets, {len(self._cut) + len(self._alone)} cuts>"

    # Faults of the network

    @property
    def delay_ms(self) -> tuple[int, int]:
        """The shortest and the longest delay of a piece in ms, (0, 2) by default.

        Each piece gets a random one between.

        Raises:
            SimulationError: it is set to something other than two whole numbers, the smaller one first.
        """
        return self._delay_ms

    @delay_ms.setter
    def delay_ms(self, least_and_most: tuple[int, int]) -> None:
        match least_and_most:
            case (int(least), int(most)) if 0 <= least <= most:
                self._delay_ms = least, most
            case _:
                raise SimulationError(
                    f"delay_ms is (least, most) in whole milliseconds, from 0 on, and not {least_and_most!r}"
                )

    def cut(self, one: str, other: str | None = None) -> None:
        """Let nothing pass between two processes, or between one and all others, until `heal`.

        The processes get no error, only no bytes.

        Raises:
            SimulationError: there is no process of such a name; the broker's is ``"broker"``.
        """
        self._look_for(one, other)
        if other is None:
            self._alone.add(one)
        else:
            self._cut.add(frozenset({one, other}))

    def heal(self, one: str | None = None) -> None:
        """End the cuts of a process, or all cuts. Bytes that were held arrive then.

        Raises:
            SimulationError: there is no process of such a name.
        """
        self._look_for(one)
        if one is None:
            self._cut.clear()
            self._alone.clear()
        else:
            self._alone.discard(one)
            self._cut = {pair for pair in self._cut if one not in pair}
        held, self._held = self._held, []
        for pipe in held:
            pipe.go_on()

    def reset(self, one: str, other: str | None = None) -> None:
        """Break the connections of a process, or those with one other process.

        Both ends get an error, and bytes on their way are lost.

        Raises:
            SimulationError: there is no process of such a name.
        """
        self._look_for(one, other)
        for sock in list(self.sockets.values()):
            if not isinstance(sock, SimulatedSocket) or sock.peer is None or sock.process.name != one:
                continue
            if other in (None, sock.peer.process.name):
                sock.break_off(errno.ECONNRESET)

    def is_cut(self, one: Process, other: Process) -> bool:
        """Whether nothing passes between them now."""
        names = {one.name, other.name}
        return bool(names & self._alone) or frozenset(names) in self._cut

    def _look_for(self, *names: str | None) -> None:
        """Refuse unknown names: with a misspelt one a test would test nothing."""
        for name in names:
            if name is not None and name not in self.names:
                raise SimulationError(f"there is no process {name!r}, only {', '.join(sorted(self.names))}")

    # For sockets

    def bind(self, process: Process, host: str, port: int) -> SimulatedSocket:
        """A socket that does not listen yet; port 0: any free one."""
        if port == 0:
            self._ports += 1
            port = self._ports
        if (host, port) in self._bound:
            raise OSError(errno.EADDRINUSE, "address already in use")
        sock = SimulatedSocket(self, process)
        sock.address = host, port
        self._bound[host, port] = sock
        return sock

    def listener_at(self, address: tuple[str, int]) -> SimulatedSocket | None:
        sock = self._bound.get(address)
        return sock if sock is not None and sock.is_listening else None

    def forget(self, sock: Watchable) -> None:
        self.sockets.pop(sock.fd, None)
        if isinstance(sock, SimulatedSocket) and self._bound.get(sock.address) is sock:
            del self._bound[sock.address]

    def add(self, sock: Watchable) -> int:
        """Its descriptor."""
        self._fds += 1
        self.sockets[self._fds] = sock
        return self._fds

    def delay(self) -> int:
        return self._rng.randint(*self._delay_ms)

    def new_port(self) -> int:
        self._ports += 1
        return self._ports

    def hold(self, pipe: Pipe) -> None:
        """Keep a direction of a connection until a cut ends."""
        if pipe not in self._held:
            self._held.append(pipe)

    def crash(self, process: Process, *, silently: bool) -> None:
        """Remove the sockets of a process. Its peers get a reset, unless its whole machine is gone silently."""
        for sock in list(self.sockets.values()):
            if sock.process is process:
                if isinstance(sock, SimulatedSocket) and not silently:
                    sock.break_off(errno.ECONNRESET)
                sock.vanish()


class Watchable:
    """An object that a selector can watch."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self.process = process
        self.selector: SimulatedSelector | None = None
        self.fd = network.add(self)

    def fileno(self) -> int:
        return self.fd

    def ready(self) -> int:
        """The events (`selectors`) that it is ready for."""
        raise NotImplementedError

    def changed(self) -> None:
        if self.selector is not None:
            self.selector.has_changed(self.fd)

    def vanish(self) -> None:
        self.network.forget(self)


class Wakeup(Watchable):
    """Ends the wait of one process's network loop (`kadence.net.sockets.ClearedWakeup`)."""

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__(network, process)
        self._is_up = False

    def ready(self) -> int:
        return selectors.EVENT_READ if self._is_up else 0

    def wake(self) -> None:
        if not self._is_up:
            self._is_up = True
            self.changed()

    def clear(self) -> None:
        self._is_up = False

    def close(self) -> None:
        self.vanish()


class Pipe:
    """One direction of a connection: pieces arrive in order, each after its delay. None is the end of the stream."""

    def __init__(self, source: SimulatedSocket, target: SimulatedSocket) -> None:
        self._network = source.network
        self._source = source
        self._target = target
        self._pieces: deque[bytes | None] = deque()
        self._arrives_at = 0
        self._is_held = False
        self._is_broken = False
        self.unread = 0

    def put(self, piece: bytes | None) -> None:
        self.unread += len(piece or b"")
        self._pieces.append(piece)
        self._schedule()

    def go_on(self) -> None:
        """The cut is over."""
        self._is_held = False
        for _ in self._pieces:
            self._schedule()

    def break_off(self) -> None:
        """Drop the bytes under way."""
        self._is_broken = True
        self._pieces.clear()

    def _schedule(self) -> None:
        scheduler = self._network.scheduler
        # Not before the piece before it.
        self._arrives_at = max(self._arrives_at, scheduler.now_ms() + self._network.delay())
        scheduler.at(self._arrives_at, self._arrive)

    def _arrive(self) -> None:
        if self._is_broken or self._is_held or not self._pieces:
            return
        if self._network.is_cut(self._source.process, self._target.process):
            self._is_held = True
            self._network.hold(self)
            return
        self._target.receive(self._pieces.popleft())


class SimulatedSocket(Watchable):
    """A TCP socket, as far as Kadence's client and broker use one."""

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__(network, process)
        self.address: tuple[str, int] = ("", 0)
        self.peer: SimulatedSocket | None = None
        self._out: Pipe | None = None
        self._in: deque[bytes] = deque()
        self._has_ended = False
        self._error = 0
        self._is_decided = False
        self._is_closed = False
        self._backlog: deque[SimulatedSocket] | None = None

    def __repr__(self) -> str:
        return f"<simulated socket {self.fd} of {self.process.name} at {self.address}>"

    # The interface of system sockets

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *_args: Any) -> None:
        """Options have no effect here."""

    def getsockopt(self, level: int, option: int) -> int:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        error, self._error = self._error, 0
        return error

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def connect_ex(self, address: tuple[str, int]) -> int:
        self.address = (self.process.name, self.network.new_port())
        scheduler = self.network.scheduler
        scheduler.at(scheduler.now_ms() + self.network.delay(), lambda: self._knock(address[:2]))
        return errno.EINPROGRESS

    def listen(self, backlog: int = 0) -> None:
        """It takes as many connections as come."""
        self._backlog = deque()

    @property
    def is_listening(self) -> bool:
        return self._backlog is not None

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        assert self._backlog is not None
        if not self._backlog:
            raise BlockingIOError
        ours = self._backlog.popleft()
        # Clients have names, not addresses; the broker shows an address.
        return ours, ("10.0.1.1", ours.peer.address[1] if ours.peer is not None else 0)

    def recv(self, count: int) -> bytes:
        if not self._in:
            self._raise_if_broken()
            if self._has_ended:
                return b""
            raise BlockingIOError
        piece = self._in.popleft()
        if len(piece) > count:
            self._in.appendleft(piece[count:])
            piece = piece[:count]
        if self.peer is not None and self.peer._out is not None:
            self.peer._out.unread -= len(piece)
            self.peer.changed()
        return piece

    def recv_into(self, into: memoryview) -> int:
        piece = self.recv(len(into))
        into[: len(piece)] = piece
        return len(piece)

    def send(self, data: Any) -> int:
        self._raise_if_broken()
        assert self._out is not None
        room = _WINDOW - self._out.unread
        if room <= 0:
            raise BlockingIOError
        piece = bytes(memoryview(data)[:room])
        self._out.put(piece)
        return len(piece)

    def sendmsg(self, buffers: Iterable[Any]) -> int:
        total = 0
        for each in buffers:
            try:
                count = self.send(each)
            except BlockingIOError:
                if total:
                    break
                raise
            total += count
            if count < len(each):
                break
        return total

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._backlog is not None:
            for waiting in self._backlog:
                waiting.break_off(errno.ECONNRESET)
        if self._in or self._error:
            # As the system does: closing with unread bytes sends a reset.
            self.break_off(errno.ECONNRESET)
        elif self._out is not None and self.peer is not None:
            self._out.put(None)
        self.vanish()

    # Called by the network

    def has_decided(self) -> bool:
        """Whether the attempt to connect has ended."""
        return self._is_decided

    def ready(self) -> int:
        if self._backlog is not None:
            return selectors.EVENT_READ if self._backlog else 0
        events = 0
        if self._in or self._has_ended or self._error:
            events |= selectors.EVENT_READ
        if self._error or (self._out is not None and self._is_decided and self._out.unread < _WINDOW):
            events |= selectors.EVENT_WRITE
        return events

    def receive(self, piece: bytes | None) -> None:
        if self._is_closed:
            if piece is not None and self.peer is not None:
                self.peer.break_off(errno.ECONNRESET)
            return
        if piece is None:
            self._has_ended = True
        else:
            self._in.append(piece)
        self.changed()

    def break_off(self, error: int) -> None:
        """Break both ends; the other one when the reset has arrived."""
        other, self.peer = self.peer, None
        if self._out is not None:
            self._out.break_off()
        self._fail(error)
        if other is not None and other.peer is self:
            other.peer = None
            if other._out is not None:
                other._out.break_off()
            scheduler = self.network.scheduler
            scheduler.at(scheduler.now_ms() + self.network.delay(), lambda: other._fail(error))

    def _fail(self, error: int) -> None:
        self._error = error
        self._is_decided = True
        self.changed()

    def _raise_if_broken(self) -> None:
        if self._error:
            raise OSError(self._error, os.strerror(self._error))

    def _knock(self, address: tuple[str, int]) -> None:
        """The first packet arrives, or is sent again later."""
        if self._is_closed or not self.process.is_alive:
            return
        network, scheduler = self.network, self.network.scheduler
        listener = network.listener_at(address)
        if listener is not None and network.is_cut(self.process, listener.process):
            scheduler.at(scheduler.now_ms() + _RETRY_MS, lambda: self._knock(address))
            return
        if listener is None or not listener.process.is_alive:
            scheduler.at(scheduler.now_ms() + network.delay(), lambda: self._fail(errno.ECONNREFUSED))
            return
        theirs = SimulatedSocket(network, listener.process)
        theirs.address = address
        theirs._is_decided = True
        self.peer, theirs.peer = theirs, self
        self._out, theirs._out = Pipe(self, theirs), Pipe(theirs, self)
        assert listener._backlog is not None
        listener._backlog.append(theirs)
        listener.changed()
        scheduler.at(scheduler.now_ms() + network.delay(), self._stands)

    def _stands(self) -> None:
        if not self._is_closed and not self._error:
            self._is_decided = True
            self.changed()


class SimulatedSelector(selectors.BaseSelector):
    """A selector of the standard library's interface that never waits: the owner's next turn is scheduled instead.

    Args:
        stir: called when a watched socket may be ready.

    Attributes:
        patience_ms: how long the latest `select` would have waited; None: for ever.
        has_found: whether any `select` has returned events since this was last set to False.
    """

    def __init__(self, network: Network, stir: Callable[[], None]) -> None:
        self._network = network
        self.stir = stir
        self._keys: dict[int, selectors.SelectorKey] = {}
        # Only these may be ready: a broker of many connections does not look at all of them each turn.
        self._changed: set[int] = set()
        self.patience_ms: int | None = None
        self.has_found = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, fd, events, data)
        self._keys[fd] = key
        watched = self._network.sockets.get(fd)
        if watched is not None:
            watched.selector = self
            if watched.ready() & events:
                self.has_changed(fd)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        watched = self._network.sockets.get(fd)
        if watched is not None:
            watched.selector = None
        self._changed.discard(fd)
        return self._keys.pop(fd)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.patience_ms = None if timeout is None else max(0, round(timeout * 1000))
        found = []
        for fd in sorted(self._changed):
            key, watched = self._keys[fd], self._network.sockets.get(fd)
            events = 0 if watched is None else watched.ready() & key.events
            if events:
                found.append((key, events))
            else:
                self._changed.discard(fd)
        self.has_found = self.has_found or bool(found)
        return found

    def has_changed(self, fd: int) -> None:
        """A watched socket may be ready for more events than before. Sockets call this themselves."""
        if fd in self._keys:
            self._changed.add(fd)
        self.stir()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()
        self._changed.clear()
