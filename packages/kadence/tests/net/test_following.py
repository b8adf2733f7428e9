"""Answers to a fetch that goes on by itself, as bytes of a broker that errs or lies.

Whatever comes: either it is passed on, and what the fetch that follows names is what Python's own decoder reads in it;
or nothing is sent, and Python finds the frame as it came.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from kadence.connection.sent import FIRST_WITH_IDS, LAST_KNOWN_LAYOUT, again, can_go_again
from kadence.net import drain
from kadence.protocol import registry
from kadence.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kadence.records import encode_batch, scan

pytestmark = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)

TOPICS = (b"t" * 16, b"u" * 16)
VERSION = FetchRequest.MAX_VERSION
CORRELATION, EPOCH = 40, 5
TABLE = b"".join(struct.pack(">16siii", topic, number, 4, 1_000) for topic in TOPICS for number in (0, 1))
ROOM = 65_536
Named = list[tuple[bytes, int, int, int, int, int]]


class Follow:
    """Takes whatever comes."""

    def __init__(self, room: int = ROOM) -> None:
        self.asked: int | None = 0
        self._room = room

    def room(self) -> int:
        return self._room

    def read(self, parts: list[Any]) -> Any:
        return [parts], self.asked


@dataclass
class Leave:
    follow: Follow
    allowed: bool = True


class Connection:
    """A poller that may repeat and follow one fetch, and the broker's end of its connection."""

    def __init__(self, room: int = ROOM, version: int = VERSION) -> None:
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
        self._wake = drain.drain.Wake()
        self.poller = drain.drain.Poller(self._wake)
        self.arrivals = self.poller.pass_on()
        session = drain.drain.Session(self.ours.fileno(), 0)
        self.intake = drain.drain.Intake(session, lambda into: None)
        self.leave = Leave(Follow(room))
        message = FetchRequest(session_id=7, session_epoch=EPOCH)
        frame = registry.encode_request(message, version, CORRELATION, "me")
        known = again(memoryview(len(frame).to_bytes(4) + frame), message, version, CORRELATION, "me")
        self.intake.send_again(self.leave, *known, 0, 0, 1 << 60)
        self.intake.follow(self.arrivals, TABLE)
        self.poller.watch(self.ours.fileno(), 1, self, self.intake)

    def hear(self, data: bytes) -> list[Any]:
        """The broker sends this, and the poller looks once."""
        self.theirs.sendall(data)
        return list(self.poller.wait(0))

    def sent(self) -> bytes:
        """What the broker gets."""
        with suppress(BlockingIOError):
            return self.theirs.recv(ROOM)
        return b""

    def passed_on(self) -> list[Any]:
        """The parts that the application gets."""
        found: deque[Any] = deque()
        self.arrivals.take(found)
        return list(found)

    def kept(self) -> bytes | None:
        """The first frame that Python finds, without its length; None: it finds none."""
        length = self.intake.begins()
        if length is None:
            return None
        body = bytearray(length)
        assert self.intake.take(memoryview(body)) == 0
        return bytes(body)

    def close(self) -> None:
        self.poller.unwatch(self.ours.fileno())
        self.poller.close()
        self._wake.close()
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def connection() -> Iterator[Connection]:
    made = Connection()
    yield made
    made.close()


def batch(offset: int, count: int = 2) -> bytes:
    return encode_batch([(0, None, b"v", ())] * count, base_offset=offset, leader_epoch=4)


def part(number: int, records: bytes | None) -> PartitionData:
    return PartitionData(
        number, high_watermark=100, last_stable_offset=90, log_start_offset=1, records=records
    )


def body_of(response: FetchResponse, correlation: int = CORRELATION, version: int = VERSION) -> bytes:
    return bytes(registry.encode_response(response, version, correlation))


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


ANSWER = FetchResponse(
    session_id=7,
    responses=[
        FetchableTopicResponse(
            topic_id=TOPICS[1], partitions=[part(1, batch(3) + batch(5, 1)), part(0, None)]
        ),
        FetchableTopicResponse(topic_id=TOPICS[0], partitions=[part(0, batch(30))]),
    ],
)
BODY = body_of(ANSWER)


def named(frame: bytes) -> tuple[tuple[int, int], Named]:
    """(correlation id, session epoch) of the one fetch in it, and what that names."""
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header, message = registry.decode_request(frame[4:])
    found = [
        (
            topic.topic_id,
            each.partition,
            each.current_leader_epoch,
            each.fetch_offset,
            each.last_fetched_epoch,
            each.partition_max_bytes,
        )
        for topic in message.topics
        for each in topic.partitions
    ]
    return (header.correlation_id, message.session_epoch), found


def read_by_python(body: bytes, version: int = VERSION) -> tuple[Named, list[Any]]:
    """What a fetch that follows should name, and the parts of the answer, as Python's decoder reads them."""
    _, response = registry.decode_response(FetchRequest, version, body)
    names: Named = []
    parts: list[Any] = []
    assert (response.error_code, response.throttle_time_ms, response.session_id) == (0, 0, 7)
    for topic in response.responses:
        for data in topic.partitions:
            assert (data.error_code, data.preferred_read_replica) == (0, -1)
            assert not data.aborted_transactions
            ends = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
            records = bytes(data.records) if data.records else None
            parts.append((topic.topic_id, data.partition_index, *ends, records))
            if records is None:
                continue
            behind, _, complete = scan(records, 0)
            assert complete == len(records)
            last = 0
            while last + 12 + int.from_bytes(records[last + 8 : last + 12]) < len(records):
                last += 12 + int.from_bytes(records[last + 8 : last + 12])
            epoch = int.from_bytes(records[last + 12 : last + 16], signed=True)
            names.append((topic.topic_id, data.partition_index, 4, behind, epoch, 1_000))
    return names, parts


def check(body: bytes, said: str, version: int = VERSION) -> bool:
    """Whether this answer is passed on. It is so as Python reads it, or Python finds it as it came."""
    connection = Connection(version=version)
    try:
        connection.hear(framed(body))
        sent, parts = connection.sent(), connection.passed_on()
        if not sent:
            assert parts == [], said
            assert connection.kept() == body, said
            return False
        numbers, names = named(sent)
        assert numbers == (CORRELATION + 1, EPOCH + 1), said
        expected, brought = read_by_python(body, version)
        assert names == expected, said
        assert parts == [brought], said
        assert connection.intake.begins() is None, said
        return True
    finally:
        connection.close()


def test_the_layouts_of_fetch_are_known_up_to_the_version_that_is_spoken() -> None:
    """`LAST_KNOWN_LAYOUT` says what to look at. Until it is raised, no fetch of a later version goes on by itself."""
    assert FetchRequest.MAX_VERSION == LAST_KNOWN_LAYOUT
    assert can_go_again(FetchRequest(), LAST_KNOWN_LAYOUT)
    assert not can_go_again(FetchRequest(), LAST_KNOWN_LAYOUT + 1)
    assert drain.drain.FIRST_WITH_IDS == FIRST_WITH_IDS
    assert drain.drain.LAST_KNOWN_LAYOUT == LAST_KNOWN_LAYOUT


def test_the_poller_refuses_frames_whose_layout_it_does_not_know() -> None:
    intake = drain.drain.Intake(drain.drain.Session(-1, 0), lambda into: None)
    message = FetchRequest(session_id=7, session_epoch=EPOCH)
    arrivals = drain.drain.new_arrivals()
    with pytest.raises(ValueError, match="could be followed"):
        intake.follow(arrivals, TABLE)
    for version in (FIRST_WITH_IDS - 1, LAST_KNOWN_LAYOUT):
        frame = registry.encode_request(message, version, CORRELATION, "me")
        known = again(memoryview(len(frame).to_bytes(4) + frame), message, version, CORRELATION, "me")
        intake.send_again(Leave(Follow()), *known, 0, 0, 0)
        if version < FIRST_WITH_IDS:
            with pytest.raises(ValueError, match="could be followed"):
                intake.follow(arrivals, TABLE)
    later = known.frame[:6] + (LAST_KNOWN_LAYOUT + 1).to_bytes(2) + known.frame[8:]
    for wrong in ((later, known.epoch_at), (known.frame, 11), (known.frame, len(known.frame) - 3)):
        with pytest.raises(ValueError, match="sent again"):
            intake.send_again(Leave(Follow()), *wrong, known.answer, 0, 0, 0)


@pytest.mark.parametrize("version", range(FIRST_WITH_IDS, FetchRequest.MAX_VERSION + 1))
def test_what_is_plain_is_passed_on(version: int) -> None:
    assert check(body_of(ANSWER, version=version), "as it is", version)


@pytest.mark.parametrize("version", range(FIRST_WITH_IDS, FetchRequest.MAX_VERSION + 1))
def test_an_empty_answer_is_known_byte_for_byte(version: int) -> None:
    connection = Connection(version=version)
    connection.hear(framed(body_of(FetchResponse(session_id=7), version=version)))
    assert named(connection.sent()) == ((CORRELATION + 1, EPOCH + 1), [])
    connection.close()


def test_an_answer_that_ends_anywhere_else_is_left_to_python() -> None:
    passed = [length for length in range(4, len(BODY)) if check(BODY[:length], f"cut off at {length}")]
    assert passed == []
    assert not check(BODY + b"\0", "with a byte more")


@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_a_byte_that_is_another_changes_what_is_read_or_leaves_it_to_python(value: int) -> None:
    for place in range(len(BODY)):
        if BODY[place] != value:
            check(BODY[:place] + bytes([value]) + BODY[place + 1 :], f"byte {place} is {value}")


@pytest.mark.parametrize(
    "count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x01", b"\x80\x00"]
)
def test_counts_and_lengths_may_say_anything(count: bytes) -> None:
    """Also where a longer number stands in place of one byte, so that all behind it moves."""
    for place in range(4, len(BODY)):
        check(BODY[:place] + count + BODY[place + 1 :], f"{count.hex()} at {place}")


@pytest.mark.parametrize(("at", "fields"), [(8, "i"), (23, "i"), (0, "q"), (12, "i"), (57, "i")])
@pytest.mark.parametrize("value", [-(1 << 31), -1, 0, 1, 48, 49, 61, (1 << 31) - 1])
def test_the_head_of_a_batch_may_say_anything(at: int, fields: str, value: int) -> None:
    """Its length, last offset, base offset, epoch and count."""
    for begin in (BODY.index(batch(3)), BODY.index(batch(5, 1)), BODY.index(batch(30))):
        changed = bytearray(BODY)
        struct.pack_into(f">{fields}", changed, begin + at, value)
        check(bytes(changed), f"{value} at {at} of the batch at {begin}")


def test_it_is_passed_on_once_it_is_whole_wherever_it_was_split() -> None:
    for place in range(1, len(BODY) + 4):
        connection = Connection()
        data = framed(BODY)
        connection.hear(data[:place])
        assert connection.sent() == b"", place
        assert connection.kept() is None
        connection.hear(data[place:])
        assert named(connection.sent())[0] == (CORRELATION + 1, EPOCH + 1), place
        assert len(connection.passed_on()) == 1
        connection.close()


@pytest.mark.parametrize("correlation", [0, CORRELATION - 1, CORRELATION + 1, -1, -2])
def test_an_answer_to_another_request_is_left_to_python(correlation: int) -> None:
    body = struct.pack(">i", correlation) + BODY[4:]
    assert not check(body, f"correlation id {correlation}")


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 3, 1 << 30, (1 << 31) - 1])
def test_a_length_that_cannot_be_true_is_left_to_python(connection: Connection, length: int) -> None:
    connection.hear(struct.pack(">i", length) + BODY)
    assert connection.sent() == b""
    assert connection.passed_on() == []
    assert connection.intake.begins() == length


def test_two_answers_at_once_are_left_to_python(connection: Connection) -> None:
    """Only one was asked for."""
    connection.hear(framed(BODY) + framed(BODY))
    assert (connection.sent(), connection.passed_on()) == (b"", [])
    assert connection.kept() == BODY
    assert connection.kept() == BODY


def test_each_answer_follows_the_fetch_before_it(connection: Connection) -> None:
    empty = body_of(FetchResponse(session_id=7))
    for number in range(3):
        for body in (BODY, empty):
            correlation = struct.pack(">i", CORRELATION + 2 * number + (body is empty))
            connection.hear(framed(correlation + body[4:]))
            after = 2 * number + 1 + (body is empty)
            assert named(connection.sent())[0] == (CORRELATION + after, EPOCH + after)
    # The first again.
    connection.hear(framed(BODY))
    assert connection.sent() == b""
    assert len(connection.passed_on()) == 3


def test_nothing_is_passed_on_that_nobody_takes(connection: Connection) -> None:
    """There is room for 64 answers; what comes then is left to Python."""
    numbers: list[int] = []
    follows: Sequence[int] = range(70)
    # As long as the interpreter is given away nobody takes.
    for number in follows:
        connection.theirs.sendall(framed(struct.pack(">i", CORRELATION + number) + BODY[4:]))
        connection.poller.wait(0)
        sent = connection.sent()
        if not sent:
            break
        numbers.append(number)
    found = connection.passed_on()
    assert len(found) == len(numbers) > 0


def test_more_than_there_is_room_for_is_left_to_python() -> None:
    connection = Connection(room=len(BODY) + 3)
    connection.hear(framed(BODY))
    assert connection.sent() == b""
    assert connection.kept() == BODY
    connection.close()
