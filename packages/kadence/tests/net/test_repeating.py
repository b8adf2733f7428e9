"""A fetch whose answers bring nothing goes out again without Python, and all numbers are right afterwards."""

from __future__ import annotations

import select
import signal
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.net.conftest import Certificates, Connect, Driver
from tests.net.servers import Peer, accept, serve
from tests.net.test_client import fetch_response
from tests.patience import PATIENCE

from kadence.clock import FOREVER
from kadence.connection.request import Arrival, ConnectionPurpose, ForPoll, Part, Repeat, Request
from kadence.errors import DisconnectedError, MalformedMessageError
from kadence.net import drain, openssl
from kadence.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kadence.protocol.share_fetch import ShareFetchRequest, ShareFetchResponse
from kadence.records import encode_batch
from kadence.security import Credentials, Secret, Token
from kadence.types import Node

pytestmark = pytest.mark.skipif(not drain.COMPILED, reason="Python alone sends each fetch itself")

EMPTY = FetchResponse(session_id=7)


class Fetching:
    """One fetch that may be repeated while ``may``, and what is told of it."""

    def __init__(self, driver: Driver, node: Node, *, max_wait_ms: int = 0) -> None:
        driver.client.set_nodes([node])
        self.driver = driver
        self.may = True
        self.told: list[int] = []
        message = FetchRequest(session_id=7, session_epoch=5, max_wait_ms=max_wait_ms)
        self.request = Request(message, node.node_id, driver.clock.now_ms() + 20_000, ConnectionPurpose.FETCH)
        self.request.repeat = Repeat(lambda: self.may, self.take)
        driver.client.send(self.request)

    def take(self, now: int, count: int, sent_at: int, arrivals: Sequence[Arrival]) -> bool:
        self.told.append(count)
        return True

    @property
    def count(self) -> int:
        return sum(self.told)


class Broker:
    """Answers fetches in turn, and remembers their numbers: (correlation id, session epoch)."""

    def __init__(self, *answers: Any, certificates: Certificates | None = None) -> None:
        self.answers = answers
        self.seen: list[tuple[int, int]] = []
        self.context = None if certificates is None else certificates.server_context()

    def __call__(self, listener: socket.socket) -> None:
        with accept(listener, self.context) as peer:
            peer.greet()
            for answer in self.answers:
                self.answer(peer, answer)
            peer.read()

    def answer(self, peer: Peer, answer: Any) -> None:
        header, message = peer.read()
        self.seen.append((header.correlation_id, message.session_epoch))
        peer.answer(header, answer)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_c10_empty_answers_are_answered_by_the_next_fetch_until_something_comes(
    connect: Connect, certificates: Certificates, secure: bool
) -> None:
    if secure and not openssl.BOUND:
        pytest.skip("this OpenSSL is not reached by the compiled half")
    records = fetch_response(100)
    records.session_id = 7
    broker = Broker(EMPTY, EMPTY, EMPTY, records, records, certificates=certificates if secure else None)
    with serve(broker) as (host, port):
        settings = {"ssl_context": certificates.client_context()} if secure else {}
        driver = connect((host, port), **settings)
        fetching = Fetching(driver, Node(1, host, port))
        [ended] = driver.complete()
        assert ended.request is fetching.request
        assert len(ended.response.responses) == 1
        assert ended.loan is not None
        ended.loan.release()
        assert fetching.count == 3
        first = broker.seen[0][0]
        assert broker.seen == [(first + number, 5 + number) for number in range(4)]
        # The connection goes on with the next number.
        driver.ask(FetchRequest(), node_id=1, purpose=ConnectionPurpose.FETCH)
        assert broker.seen[4][0] == first + 4
        node = driver.client._meters.node(1)
        assert node.latency.count == 5
        assert node.requests.count == node.incoming.count == 6


def test_without_leave_the_answer_comes_to_the_sender(connect: Connect) -> None:
    broker = Broker(EMPTY)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port))
        fetching.may = False
        [ended] = driver.complete()
        assert ended.response.responses == []
        assert fetching.told == []


def test_a_broker_that_does_not_wait_is_not_asked_again_without_python(connect: Connect) -> None:
    broker = Broker(EMPTY)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port), max_wait_ms=60_000)
        [ended] = driver.complete()
        assert ended.response.responses == []
        assert fetching.told == []


@pytest.mark.parametrize(
    "answer",
    [
        FetchResponse(session_id=8),
        FetchResponse(session_id=7, error_code=70),
        FetchResponse(session_id=7, throttle_time_ms=1),
    ],
    ids=["another session", "an error", "throttled"],
)
def test_whatever_is_not_exactly_the_empty_answer_comes_to_the_sender(
    connect: Connect, answer: FetchResponse
) -> None:
    broker = Broker(EMPTY, answer)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port))
        [ended] = driver.complete()
        assert ended.response.throttle_time_ms == answer.throttle_time_ms
        assert ended.response.error_code == answer.error_code
        assert fetching.count == 1


def test_a_connection_that_ends_after_repeats_fails_the_fetch(connect: Connect) -> None:
    def broker(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            for _ in range(2):
                header, _ = peer.read()
                peer.answer(header, EMPTY)
            peer.read()

    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port))
        [ended] = driver.complete()
        assert isinstance(ended.error, DisconnectedError)
        assert fetching.count == 2


def test_a_wake_up_finds_the_numbers_of_what_was_repeated(connect: Connect) -> None:
    """Whoever acts on the fetch after a wake-up must know first how often it went out."""
    repeated, go_on = threading.Event(), threading.Event()

    def broker(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            for _ in range(2):
                header, _ = peer.read()
                peer.answer(header, EMPTY)
            header, _ = peer.read()
            repeated.set()
            assert go_on.wait(20)
            peer.answer(header, EMPTY)
            peer.read()

    def wake() -> None:
        assert repeated.wait(20)
        driver.client.wakeup()

    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port))
        waker = threading.Thread(target=wake)
        waker.start()
        driver.until(lambda: fetching.count == 2)
        waker.join()
        fetching.may = False
        go_on.set()
        [ended] = driver.complete()
        assert ended.response.responses == []
        assert fetching.count == 2


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("is_token_late", [False, True], ids=["at once", "once its token has come"])
def test_a_login_behind_a_parked_fetch_ends_its_repetition(
    connect: Connect, certificates: Certificates, is_token_late: bool, secure: bool
) -> None:
    """The broker takes nothing but the login until that is complete; a fetch would have the number of SaslHandshake."""
    if secure and not openssl.BOUND:
        pytest.skip("this OpenSSL is not reached by the compiled half")
    asked, may_give, has_come = threading.Event(), threading.Event(), threading.Event()

    def token() -> Token:
        if driver.client._meters.logins.count:
            asked.set()
            assert may_give.wait(PATIENCE)
        return Token("t")

    def broker(listener: socket.socket) -> None:
        with accept(listener, certificates.server_context() if secure else None) as peer:
            peer.greet()
            for kind, answer in [
                (SaslHandshakeRequest, SaslHandshakeResponse()),
                (SaslAuthenticateRequest, SaslAuthenticateResponse(session_lifetime_ms=1)),
                (FetchRequest, EMPTY),
            ]:
                header, message = peer.read()
                assert isinstance(message, kind)
                peer.answer(header, answer)
            parked, message = peer.read()
            assert isinstance(message, FetchRequest)
            if is_token_late:
                # It goes on meanwhile.
                assert asked.wait(PATIENCE)
                peer.answer(parked, EMPTY)
                parked, message = peer.read()
                assert isinstance(message, FetchRequest)
                may_give.set()
            handshake, message = peer.read()
            assert isinstance(message, SaslHandshakeRequest)
            peer.answer(parked, EMPTY)
            assert has_come.wait(PATIENCE)
            peer.answer(handshake, SaslHandshakeResponse())
            header, message = peer.read()
            assert isinstance(message, SaslAuthenticateRequest)
            peer.answer(header, SaslAuthenticateResponse())
            header, message = peer.read()
            assert isinstance(message, FetchRequest)
            peer.answer(header, EMPTY)
            peer.read()

    credentials = (
        Credentials("OAUTHBEARER", tokens=token)
        if is_token_late
        else Credentials("PLAIN", "alice", Secret("geheim"))
    )
    with serve(broker) as (host, port):
        settings: dict[str, Any] = {"ssl_context": certificates.client_context()} if secure else {}
        driver = connect((host, port), credentials=credentials, **settings)
        fetching = Fetching(driver, Node(1, host, port))
        [ended] = driver.complete()
        has_come.set()
        assert ended.error is None
        assert ended.request is fetching.request
        assert fetching.count == 1 + is_token_late
        ended = driver.ask(FetchRequest(), node_id=1, purpose=ConnectionPurpose.FETCH)
        assert ended.error is None


# ------------------------------------------------------------ for a poll that waits


NOTHING = ShareFetchResponse(acquisition_lock_timeout_ms=30_000)
SOME = ShareFetchResponse(acquisition_lock_timeout_ms=29_000)
COUNT = 500


class Waiting(Fetching):
    """A ShareFetch that is repeated while a poll waits for `COUNT` records. ``bounds``: of how long it may be held."""

    def __init__(self, driver: Driver, node: Node, *bounds: int) -> None:
        driver.client.set_nodes([node])
        self.driver = driver
        self.may = True
        self.told: list[int] = []
        self.poll_wait = driver.client.new_poll_wait()
        message = ShareFetchRequest(group_id="q", member_id="m", share_session_epoch=5, max_wait_ms=0)
        self.request = Request(message, node.node_id, driver.clock.now_ms() + 20_000, ConnectionPurpose.FETCH)
        self.request.repeat = repeat = Repeat(lambda: self.may, self.take)
        repeat.empty = NOTHING
        repeat.for_poll = ForPoll(self.poll_wait, COUNT, *bounds)

    def send(self) -> None:
        self.driver.client.send(self.request)


class ShareBroker(Broker):
    """Remembers also for how long it may hold each fetch. ``meanwhile``: called before its first answer."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.waits: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def answer(self, peer: Peer, answer: Any) -> None:
        header, message = peer.read()
        if not self.seen:
            self.meanwhile()
        self.seen.append((header.correlation_id, message.share_session_epoch))
        self.waits.append(message.max_wait_ms)
        peer.answer(header, answer)


def test_a_share_fetch_goes_out_again_for_polls_of_its_size(connect: Connect) -> None:
    broker = ShareBroker(NOTHING, NOTHING, NOTHING, SOME)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Waiting(driver, Node(1, host, port), 0, 1)
        fetching.poll_wait.begin(FOREVER, COUNT)
        fetching.send()
        [ended] = driver.complete()
        assert ended.response.acquisition_lock_timeout_ms == 29_000
        assert fetching.count == 3
        first = broker.seen[0][0]
        assert broker.seen == [(first + number, 5 + number) for number in range(4)]
        assert broker.waits == [0, 1, 1, 1]


def test_a_poll_that_begins_during_the_wait_goes_on_with_the_fetch(connect: Connect) -> None:
    broker = ShareBroker(NOTHING, SOME)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Waiting(driver, Node(1, host, port), 0, 1)
        broker.meanwhile = lambda: fetching.poll_wait.begin(FOREVER, COUNT)
        fetching.send()
        [ended] = driver.complete()
        assert ended.response.acquisition_lock_timeout_ms == 29_000
        assert fetching.count == 1


@pytest.mark.parametrize("why", ["it is over", "its time is over", "it wants less", "the client has a word"])
def test_q3_no_fetch_goes_out_again_without_a_poll_for_it(connect: Connect, why: str) -> None:
    broker = ShareBroker(NOTHING)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Waiting(driver, Node(1, host, port), 0, 1)
        fetching.poll_wait.begin(FOREVER, COUNT)
        match why:
            case "it is over":
                broker.meanwhile = fetching.poll_wait.end
            case "its time is over":
                fetching.poll_wait.begin(driver.clock.now_ms(), COUNT)
            case "it wants less":
                fetching.poll_wait.begin(FOREVER, COUNT - 1)
            case _:
                fetching.may = False
        fetching.send()
        [ended] = driver.complete()
        assert ended.response.acquisition_lock_timeout_ms == 30_000
        assert fetching.told == []


@pytest.mark.parametrize("bounds", [(0, 500_000), (70_000, 500_000), (0, 40_000)])
def test_q3_a_repeated_fetch_is_held_no_longer_than_its_poll_waits(
    connect: Connect, bounds: tuple[int, int]
) -> None:
    broker = ShareBroker(NOTHING, NOTHING)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Waiting(driver, Node(1, host, port), *bounds)
        began = driver.clock.now_ms()
        fetching.poll_wait.begin(began + 60_000, COUNT)
        fetching.send()
        [ended] = driver.complete()
        passed = driver.clock.now_ms() - began
        assert ended.response.acquisition_lock_timeout_ms == 30_000, "the second answer was early"
        assert fetching.count == 1
        least, most = bounds
        assert broker.waits[0] == 0
        assert min(max(60_000 - passed, least), most) <= broker.waits[1] <= min(max(60_000, least), most)


# ------------------------------------------------------------ answers with records


TOPIC_ID = b"t" * 16
PASSES_ON = drain.COMPILED and drain.drain.new_arrivals() is not None
passing_on = pytest.mark.skipif(not PASSES_ON, reason="no futexes, or threads share the interpreter")


def batch(offset: int, count: int = 2) -> bytes:
    return encode_batch([(0, None, b"value", ())] * count, base_offset=offset, leader_epoch=4)


def brings(*parts: PartitionData) -> FetchResponse:
    return FetchResponse(
        session_id=7, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(parts))]
    )


def part(offset: int, number: int = 0, **changes: Any) -> PartitionData:
    fields = {"high_watermark": 100, "last_stable_offset": 90, "log_start_offset": 1} | changes
    return PartitionData(number, records=fields.pop("records", batch(offset)), **fields)


class Following(Fetching):
    """One that may also pass on the records of partitions 0 and 1. ``fitting``: how many fit to what was asked."""

    def __init__(self, driver: Driver, node: Node, *, room: int = 1 << 16, fitting: int = 1 << 16) -> None:
        self.arrivals: Any = driver.client.pass_on()
        self.table = b"".join(struct.pack(">16siii", TOPIC_ID, number, 4, 1_000) for number in (0, 1))
        self.asked: Any = 0
        self.passed_on: list[Arrival] = []
        self._given: deque[list[Part]] = deque()
        self._room = room
        self._fitting = fitting
        super().__init__(driver, node)
        assert self.request.repeat is not None
        self.request.repeat.follow = self

    def room(self) -> int:
        return self._room

    def read(self, parts: list[Part]) -> Any:
        if self.asked is None or self.asked == self._fitting:
            return None, None
        return [parts], self.asked + 1

    def take(self, now: int, count: int, sent_at: int, arrivals: Sequence[Arrival]) -> bool:
        self.arrivals.take(self._given)
        self.passed_on += [arrival for arrival in arrivals if arrival.fetches is not None]
        if not all(arrival.fetches for arrival in arrivals):
            return False
        return super().take(now, count, sent_at, arrivals)

    def taken(self) -> list[list[Part]]:
        """What the application gets."""
        self.arrivals.take(self._given)
        found = list(self._given)
        self._given.clear()
        return found


class Remembering(Broker):
    """Remembers also what each fetch names: partition, leader epoch, offset, last epoch and size of each."""

    def __init__(self, *answers: Any, certificates: Certificates | None = None) -> None:
        super().__init__(*answers, certificates=certificates)
        self.named: list[list[tuple[int, int, int, int, int]]] = []

    def answer(self, peer: Peer, answer: Any) -> None:
        header, message = peer.read()
        self.seen.append((header.correlation_id, message.session_epoch))
        self.named.append(
            [
                (
                    each.partition,
                    each.current_leader_epoch,
                    each.fetch_offset,
                    each.last_fetched_epoch,
                    each.partition_max_bytes,
                )
                for topic in message.topics
                for each in topic.partitions
            ]
        )
        peer.answer(header, answer)


@passing_on
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_records_go_to_the_application_and_the_next_fetch_names_what_lies_behind_them(
    connect: Connect, certificates: Certificates, secure: bool
) -> None:
    if secure and not openssl.BOUND:
        pytest.skip("this OpenSSL is not reached by the compiled half")
    both = brings(part(2), part(30, 1, records=batch(30) + batch(32, 3)))
    empty = brings(part(5), part(0, 1, records=None))
    end = FetchResponse(session_id=8)
    broker = Remembering(
        brings(part(0)), EMPTY, both, empty, end, certificates=certificates if secure else None
    )
    with serve(broker) as (host, port):
        settings = {"ssl_context": certificates.client_context()} if secure else {}
        driver = connect((host, port), **settings)
        following = Following(driver, Node(1, host, port))
        [ended] = driver.complete()
        assert ended.response.session_id == 8
    first = broker.seen[0][0]
    assert broker.seen == [(first + number, 5 + number) for number in range(5)]
    assert broker.named == [
        [],
        [(0, 4, 2, 4, 1_000)],
        [],
        [(0, 4, 4, 4, 1_000), (1, 4, 35, 4, 1_000)],
        [(0, 4, 7, 4, 1_000)],
    ]
    assert following.count == 4
    assert [arrival.number for arrival in following.passed_on] == [1, 3, 4]
    expected = [
        [(TOPIC_ID, 0, 100, 90, 1, batch(0))],
        [(TOPIC_ID, 0, 100, 90, 1, batch(2)), (TOPIC_ID, 1, 100, 90, 1, batch(30) + batch(32, 3))],
        [(TOPIC_ID, 0, 100, 90, 1, batch(5)), (TOPIC_ID, 1, 100, 90, 1, None)],
    ]
    assert [arrival.parts for arrival in following.passed_on] == expected
    assert following.taken() == expected
    assert following.asked == 3
    assert following.taken() == []


@passing_on
@pytest.mark.parametrize(
    "answer",
    [
        brings(part(2, error_code=6)),
        brings(part(2, preferred_read_replica=2)),
        brings(part(2, aborted_transactions=[AbortedTransaction(1, 0)])),
        brings(part(2, diverging_epoch=EpochEndOffset(epoch=3, end_offset=0))),
        brings(part(2, 5)),
        brings(part(2), part(4)),
        brings(part(2), part(9, 1, records=batch(9)[:-1])),
        brings(part(2, records=batch(2)[:40])),
        brings(part(2, records=b"\0" * 16 + b"\1" + b"\0" * 60)),
        brings(part(0, records=None)),
        FetchResponse(session_id=7, throttle_time_ms=9, responses=brings(part(2)).responses),
    ],
    ids=[
        "an error",
        "a replica",
        "aborted",
        "diverged",
        "not asked for",
        "twice",
        "cut off",
        "hardly begun",
        "an older format",
        "news without records",
        "throttled",
    ],
)
def test_what_is_not_plain_records_comes_to_the_sender(connect: Connect, answer: FetchResponse) -> None:
    with serve(Remembering(brings(part(0)), answer)) as (host, port):
        driver = connect((host, port))
        following = Following(driver, Node(1, host, port))
        [ended] = driver.complete()
        assert (
            ended.response.responses[0].partitions[0].error_code
            == answer.responses[0].partitions[0].error_code
        )
        assert ended.loan is not None
        ended.loan.release()
        assert len(following.passed_on) == following.count == 1


@passing_on
def test_without_room_records_come_to_the_sender(connect: Connect) -> None:
    size = len(batch(0))
    with serve(Remembering(brings(part(0)), brings(part(2)))) as (host, port):
        driver = connect((host, port))
        following = Following(driver, Node(1, host, port), room=size)
        [ended] = driver.complete()
        assert bytes(ended.response.responses[0].partitions[0].records) == batch(0)
        assert ended.loan is not None
        ended.loan.release()
        assert following.count == 0


@passing_on
def test_records_that_do_not_fit_to_what_was_asked_for_end_the_connection(connect: Connect) -> None:
    with serve(Remembering(brings(part(0)), brings(part(2)), brings(part(4)))) as (host, port):
        driver = connect((host, port))
        following = Following(driver, Node(1, host, port), fitting=2)
        [ended] = driver.complete()
        assert isinstance(ended.error, MalformedMessageError)
        # What came before was counted, so nobody asks for it again.
        assert following.taken() == [arrival.parts for arrival in following.passed_on]
        assert len(following.passed_on) == 2


@passing_on
def test_records_wake_whoever_waits_for_the_flag(connect: Connect) -> None:
    with serve(Remembering(brings(part(0)))) as (host, port):
        driver = connect((host, port))
        following = Following(driver, Node(1, host, port))
        flag = following.arrivals.flag()
        flag.enter()
        found: list[Any] = []

        def wait() -> None:
            flag.wait(PATIENCE)
            found.append(following.taken())

        waiter = threading.Thread(target=wait)
        waiter.start()
        [ended] = driver.complete()
        assert isinstance(ended.error, DisconnectedError)
        waiter.join()
        assert found == [[[(TOPIC_ID, 0, 100, 90, 1, batch(0))]]]
        flag.leave()
        assert not flag.waiting


@passing_on
def test_records_make_the_descriptor_of_the_flag_readable(connect: Connect) -> None:
    with serve(Remembering(brings(part(0)))) as (host, port):
        driver = connect((host, port))
        following = Following(driver, Node(1, host, port))
        flag = following.arrivals.flag()
        shown = flag.show()
        flag.enter()
        [ended] = driver.complete()
        assert isinstance(ended.error, DisconnectedError)
        assert select.select([shown], [], [], PATIENCE)[0] == [shown]
        assert len(following.taken()) == 1
        for _ in range(2):
            flag.seen()
            assert select.select([shown], [], [], 0)[0] == []
        flag.set()
        flag.set()
        assert select.select([shown], [], [], 0)[0] == [shown]
        flag.seen()
        flag.hide()
        flag.set()
        assert select.select([shown], [], [], 0)[0] == []
        assert flag.show() == shown


def _start_and_wait(thread: threading.Thread, flag: Any) -> None:
    thread.start()
    flag.wait(None)


@passing_on
def test_c7_a_signal_ends_the_wait_for_the_flag_by_its_handler() -> None:
    class Interruption(Exception):  # noqa: N818 - it stands for KeyboardInterrupt
        pass

    main = threading.get_ident()
    done = threading.Event()
    flag = drain.drain.new_arrivals().flag()

    def handler(*_: Any) -> None:
        # Another one may be on its way when the first has ended the wait.
        if not done.is_set():
            done.set()
            raise Interruption

    def interrupt() -> None:
        # Again and again: the first may come before the wait has begun.
        while not done.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=interrupt)
    try:
        flag.enter()
        with pytest.raises(Interruption):
            _start_and_wait(sender, flag)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        done.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
