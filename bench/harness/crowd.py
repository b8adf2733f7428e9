"""Members of groups as cheap as they can be: one socket each, all in one selector loop, no records.

What they say is in `harness.members`. One request of a member is under way at a time.
"""

from __future__ import annotations

import heapq
import selectors
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.registry import decode_response, encode_request

__all__ = ["Crowd", "Group", "Member"]


class Crowd:
    """The loop of many members.

    Attributes:
        interval: seconds between a classic member's heartbeats.
        answered_after: seconds from sending a heartbeat to its answer, one for each since the list was cleared.
        sent_late: seconds by which heartbeats left here after they were due: this loop's own share.
        unexpected: answers that no healthy group gives, by their error's name.
    """

    def __init__(self, address: str, interval: float) -> None:
        host, _, port = address.rpartition(":")
        self.address = (host, int(port))
        self.interval = interval
        self.selector = selectors.DefaultSelector()
        self.members: list[Member] = []
        self.answered_after: list[float] = []
        self.sent_late: list[float] = []
        self.unexpected: Counter[str] = Counter()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0

    def at(self, deadline: float, action: Callable[[], None]) -> None:
        """Do ``action`` at ``deadline`` of `time.perf_counter`."""
        self._serial += 1
        heapq.heappush(self._timers, (deadline, self._serial, action))

    def run(self, is_over: Callable[[], bool], seconds: float) -> bool:
        """Let the members live until ``is_over``, at most so many seconds; whether it was over."""
        end = time.perf_counter() + seconds
        while not is_over():
            now = time.perf_counter()
            if now >= end:
                return False
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            until = min(end, self._timers[0][0]) if self._timers else end
            for key, _ in self.selector.select(max(until - time.perf_counter(), 0)):
                key.data()
        return True

    def close(self) -> None:
        """Leave every group and hang up, so that no session ends later."""
        self._timers.clear()
        waiting = [each for each in self.members if each.is_waiting]
        self.run(lambda: not any(each.is_waiting for each in waiting), 10)
        self._timers.clear()
        for each in self.members:
            each.leave()
        self.run(lambda: not any(each.is_waiting for each in self.members), 60)
        for each in self.members:
            each.sock.close()
        self.selector.close()


class Group:
    """What the members of one group have been told; stable once all are told the same and everybody has a share."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.is_stable = False
        self._told: Counter[int] = Counter()

    def tell(self, before: int | None, epoch: int | None) -> None:
        """A member with a share has gone from one epoch (None: it had no share) to another."""
        if before is not None:
            self._told[before] -= 1
        if epoch is not None:
            self._told[epoch] += 1
        self.is_stable = epoch is not None and self._told[epoch] == self.size


class Member(ABC):
    """One connection, and what its member does with each answer.

    Attributes:
        is_waiting: an answer is to come.
        is_deaf: answers are read and not acted upon.
    """

    def __init__(self, crowd: Crowd, group: Group) -> None:
        self.crowd = crowd
        self.group = group
        self.member_id = ""
        self.is_waiting = False
        self.is_deaf = False
        self.sock = socket.create_connection(crowd.address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked: tuple[type[Any], int] = (HeartbeatRequest, 4)
        self._sent_at = 0.0
        self._due_at = 0.0
        self._buffer = bytearray()
        crowd.members.append(self)
        crowd.selector.register(self.sock, selectors.EVENT_READ, self._receive)

    def ask(self, message: Any, version: int) -> None:
        """Send a request; its answer comes to `on_answer`."""
        self._asked = type(message), version
        frame = encode_request(message, version, 1, "bench")
        self.is_waiting = True
        self._sent_at = time.perf_counter()
        self.sock.sendall(struct.pack(">i", len(frame)) + frame)

    def knock(self) -> None:
        """Ask what changes nothing, and wait for the answer: the broker has accepted us, and whoever came before."""
        self.is_deaf = True
        self.ask(HeartbeatRequest(), 4)
        self.crowd.run(lambda: not self.is_waiting, 60)
        self.is_deaf = False

    def beat_in(self, seconds: float) -> None:
        """The next heartbeat is due then."""
        self._due_at = time.perf_counter() + seconds
        self.crowd.at(self._due_at, self._beat_now)

    def start_in(self, seconds: float) -> None:
        """Ask anew then: the coordinator is not there yet."""
        self.crowd.at(time.perf_counter() + seconds, self.start)

    def _beat_now(self) -> None:
        self.crowd.sent_late.append(time.perf_counter() - self._due_at)
        self.beat()

    def _receive(self) -> None:
        data = self.sock.recv(1 << 16)
        if not data:
            raise SystemExit("the broker closed a member's connection")
        buffer = self._buffer
        buffer += data
        if len(buffer) < 4:
            return
        (length,) = struct.unpack_from(">i", buffer)
        if len(buffer) < 4 + length:
            return
        response = decode_response(*self._asked, bytes(buffer[4 : 4 + length]))[1]
        del buffer[: 4 + length]
        self.is_waiting = False
        if self._asked[0] in (HeartbeatRequest, ConsumerGroupHeartbeatRequest):
            self.crowd.answered_after.append(time.perf_counter() - self._sent_at)
        if not self.is_deaf:
            self.on_answer(response)

    @abstractmethod
    def start(self) -> None:
        """Join."""

    @abstractmethod
    def beat(self) -> None:
        """Send a heartbeat."""

    @abstractmethod
    def leave(self) -> None:
        """Say goodbye."""

    @abstractmethod
    def on_answer(self, response: Any) -> None:
        """Go on."""
