"""Moves bytes between sockets and memory with as few hand-overs of the interpreter as possible.

A thread that releases the GIL beside a busy Python thread waits a switch interval (5 ms) to get it back. So the
GIL is released in one place only, `Poller.wait`. One call there waits for all connections, reads from them and cuts
frames (`intake.h`). Calls that cannot block are made *with* the GIL: small writes, waking, and a first look before each
wait.

Windows has `kadence.net.sockets` and `intake` in its place. Descriptors must be non-blocking.
"""

import os
import sys

import cython

from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.cpython.exc import PyErr_CheckSignals
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cython.cimports.libc.stdint import int64_t, uintptr_t
from cython.cimports.libc.stdlib import free
from cython.cimports.libc.string import memcpy

NOT_NOW = KD_NOT_NOW
ASK = KD_ASK
ROOM = KD_ROOM
"""Bytes that are read ahead for each connection."""
FIRST_WITH_IDS = KD_FIRST_WITH_IDS
LAST_KNOWN_LAYOUT = KD_LAST_KNOWN_LAYOUT
"""Versions of Fetch whose requests may be followed."""

# selectors.EVENT_READ and EVENT_WRITE, and kadence.net.sockets.REPEATED and DIRECT
_READ = 1
_WRITE = 2
_REPEATED = 4
_DIRECT = 8
_LONGEST_WAIT_MS = 1 << 40
_OFFSET_AND_EPOCH = 12  # bytes


def bind_openssl(read: uintptr_t, write: uintptr_t, get_error: uintptr_t, clear_error: uintptr_t) -> None:
    """The addresses of SSL_read_ex, SSL_write_ex, SSL_get_error and ERR_clear_error. Once, before any TLS call."""
    global kd_ssl_read, kd_ssl_write, kd_ssl_get_error, kd_ssl_clear_error
    kd_ssl_read = cython.cast(kd_ssl_io, read)
    kd_ssl_write = cython.cast(kd_ssl_io, write)
    kd_ssl_get_error = cython.cast(kd_ssl_error, get_error)
    kd_ssl_clear_error = cython.cast(kd_ssl_clear, clear_error)


@cython.cclass
class Session:
    """One connected socket, plain (``ssl`` is 0) or TLS; see session.h."""

    def __init__(self, fd: cython.int, ssl: uintptr_t) -> None:
        self._session.fd = fd
        self._session.ssl = cython.cast(cython.p_void, ssl)
        self._session.gate = cython.NULL
        # Keeps the gate's memory; set with it.
        self._gate_of = None
        # Keeps the memory of what is in the outbox.
        self._taken = None

    def __dealloc__(self) -> None:
        free(self._session.outbox.pieces)

    # Buffers are asked for by hand: Cython's typed memoryviews would double the C code and the time to compile it.

    def read_now(self, into: object) -> int:
        """Read what is there, with the interpreter. Bytes read; 0 at the end of the stream; KD_NOT_NOW; KD_ASK.

        Raises:
            OSError: the connection broke.
        """
        buffer: Py_buffer
        result: cython.Py_ssize_t
        PyObject_GetBuffer(into, cython.address(buffer), PyBUF_WRITABLE)
        result = KD_NOT_NOW
        if buffer.len > 0:
            result = kd_session_read(cython.address(self._session), buffer.buf, buffer.len)
        PyBuffer_Release(cython.address(buffer))
        return _checked(result)

    def write_now(self, data: object) -> int:
        """Write what fits, with the interpreter. Bytes written; KD_NOT_NOW; KD_ASK.

        Raises:
            OSError: the connection broke.
        """
        buffer: Py_buffer
        result: cython.Py_ssize_t
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        result = 0
        if buffer.len > 0:
            result = kd_session_write(cython.address(self._session), buffer.buf, buffer.len)
        PyBuffer_Release(cython.address(buffer))
        return _checked(result)

    def take(self, pieces: object) -> int:
        """Take a frame whose pieces the poller writes. Returns its bytes; 0: not here, or not now.

        Args:
            pieces: memoryviews.
        """
        buffer: Py_buffer
        outbox: cython.pointer(kd_outbox) = cython.address(self._session.outbox)
        if not kd_session_takes(cython.address(self._session)):
            return 0
        self._taken = list(pieces)
        if not kd_outbox_empty(outbox, len(self._taken)):
            raise MemoryError
        for piece in self._taken:
            # The memoryview holds the memory where it is.
            PyObject_GetBuffer(piece, cython.address(buffer), PyBUF_SIMPLE)
            kd_outbox_put(outbox, buffer.buf, buffer.len)
            PyBuffer_Release(cython.address(buffer))
        return outbox.unwritten

    @property
    def is_tls(self) -> bool:
        return self._session.ssl is not cython.NULL

    def has_unwritten(self) -> bool:
        """True if something that was taken is not written yet."""
        return self._session.outbox.unwritten > 0

    @cython.cfunc
    def let_go(self) -> object:
        """Let go of what was taken, once it is written."""
        if self._taken is not None and self._session.outbox.unwritten == 0:
            self._taken = None

    def asked(self, wrote: cython.bint = False, is_inside: cython.bint = False) -> None:
        """Python's ssl has repeated a call that was answered with ASK, and left a frame unfinished or not."""
        kd_session_asked(cython.address(self._session), wrote, is_inside)


@cython.final
@cython.cclass
class _Target:
    """The memory that a long frame is read into, kept where it is.

    An object of its own, which the cycle collector does not know. In an `Intake`, which it does know, it would take the
    memory's owner away without giving the buffer back; and CPython before 3.12.7 clears a memoryview of garbage though
    its buffer is in use (gh-77894), and crashes later.
    """

    def __dealloc__(self) -> None:
        PyBuffer_Release(cython.address(self.view))


@cython.final
@cython.cclass
class PollWait:
    """As `kadence.connection.request.PollWait`; the poller reads it without the interpreter."""

    def __cinit__(self) -> None:
        kd_poll_wait_init(cython.address(self._wait))

    def begin(self, until: int64_t, count: int64_t) -> None:
        """A poll waits until then (ms) for so many records."""
        kd_poll_wait_set(cython.address(self._wait), until, count)

    def end(self) -> None:
        """It is over."""
        kd_poll_wait_set(cython.address(self._wait), 0, 0)


@cython.cclass
class Intake:
    """Incoming bytes of one connection: read ahead by the `Poller`, taken as frames.

    Args:
        repeat: reads through Python's ssl when only Python can turn OpenSSL's result into an exception.
    """

    def __cinit__(self, session: Session, repeat: object) -> None:
        self._of = session
        self._repeat = repeat
        self._leave = None
        self._arrived = []
        self._direct = None
        self._asked = None
        self._poll_wait = None
        kd_direct_init(cython.address(self._intake.direct))
        self._intake.heard_ms = -1
        self._intake.session = cython.address(session._session)
        self._intake.room = cython.cast(cython.p_uchar, PyMem_Malloc(KD_ROOM))
        if self._intake.room is cython.NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        PyMem_Free(self._intake.room)
        PyMem_Free(self._intake.again.frame)
        PyMem_Free(self._intake.again.asked)

    def advance(self) -> None:
        """Read what is there, with the interpreter."""
        kd_advance(cython.address(self._intake))

    def begins(self) -> object:
        """The length of the first frame, as sent. None until it is whole, or Python must check or place it."""
        intake: cython.pointer(kd_intake) = cython.address(self._intake)
        if intake.into is not cython.NULL or not kd_has_frame(intake):
            return None
        return kd_length(intake)

    def take(self, into: object) -> int:
        """Move the first frame's body to ``into``, which is as long. Returns how many bytes are still to be read."""
        intake: cython.pointer(kd_intake) = cython.address(self._intake)
        target: _Target = _Target.__new__(_Target)
        PyObject_GetBuffer(into, cython.address(target.view), PyBUF_WRITABLE)
        length: cython.size_t = target.view.len
        held: cython.size_t = intake.end - intake.begin - KD_LENGTH_BYTES
        if held > length:
            held = length
        memcpy(target.view.buf, intake.room + intake.begin + KD_LENGTH_BYTES, held)
        intake.begin += KD_LENGTH_BYTES + held
        if intake.begin == intake.end:
            intake.begin = intake.end = 0
        if held < length:
            self._target = target
            intake.into = cython.cast(cython.p_uchar, target.view.buf) + held
            intake.missing = length - held
        return length - held

    def missing(self) -> int:
        """The missing bytes of the long frame that `take` has begun; once it is 0 the next frame can be taken."""
        if self._intake.missing == 0:
            self.drop()
        return self._intake.missing

    def drop(self) -> None:
        """Let go of the memory that was given to `take`."""
        self._intake.into = cython.NULL
        self._intake.missing = 0
        self._target = None

    def ended(self) -> bool:
        """True if the peer has closed the stream.

        Raises:
            OSError: the connection broke (ssl.SSLError included).
        """
        if self._intake.state == KD_ASK:
            self._ask()
        if self._intake.state == KD_ENDED:
            return True
        if self._intake.state < KD_ERRNO:
            _checked(self._intake.state)
        return False

    def send_again(
        self,
        leave: object,
        frame: bytes,
        epoch_at: cython.size_t,
        answer: bytes,
        sent_at: int64_t,
        least_ms: int64_t,
        until: int64_t,
    ) -> None:
        """Answer ``answer`` with ``frame`` and its next numbers, while ``leave.allowed`` is true before a wait.

        Args:
            frame: as it was just sent, with its length. epoch_at: where its session epoch stands. answer: likewise.
            sent_at, least_ms, until: no sooner after the one before than that, and no more from ``until`` on (ms).
        """
        again: cython.pointer(kd_again) = cython.address(self._intake.again)
        length: cython.size_t = len(frame)
        if (
            epoch_at < KD_CORRELATION_AT + 4
            or epoch_at + 4 > length
            or len(answer) > KD_EMPTY_MOST
            or kd_version(cython.cast(cython.p_uchar, cython.cast(cython.p_char, frame))) > KD_LAST_KNOWN_LAYOUT
        ):
            raise ValueError("no frame that could be sent again")
        room = cython.cast(cython.p_uchar, PyMem_Realloc(again.frame, length))
        if room is cython.NULL:
            raise MemoryError
        again.frame = room
        again.length, again.epoch_at, again.answer_length = length, epoch_at, len(answer)
        memcpy(room, cython.cast(cython.p_char, frame), length)
        memcpy(again.answer, cython.cast(cython.p_char, answer), again.answer_length)
        again.sent_ms, again.least_ms, again.until_ms = sent_at, least_ms, until
        again.is_allowed = again.count = 0
        again.sent = again.heard = 0
        PyMem_Free(again.asked)
        again.asked = cython.NULL
        again.poll_wait = cython.NULL
        self._leave = leave

    def wait_for_poll(
        self, poll_wait: PollWait, count: int64_t, shortest_ms: int64_t, longest_ms: int64_t
    ) -> None:
        """After `send_again`, of a ShareFetch: only while a poll waits for ``count`` records.

        Args:
            shortest_ms, longest_ms: the broker holds each as long as that poll waits, within these bounds.
        """
        again: cython.pointer(kd_again) = cython.address(self._intake.again)
        if again.frame is cython.NULL or again.epoch_at + KD_EPOCH_BYTES + KD_WAIT_BYTES > again.length:
            raise ValueError("no frame that could be sent for a poll")
        # It is kept as long as this is, or until another one takes its place.
        self._poll_wait = poll_wait
        again.poll_wait = cython.address(poll_wait._wait)
        again.wanted_count, again.shortest_ms, again.longest_ms = count, shortest_ms, longest_ms

    def follow(self, arrivals: Arrivals, asked: bytes) -> None:
        """After `send_again`: also pass on answers with records, and send the fetch that follows each.

        At most ``leave.follow.room()`` bytes of them may come before `sent_again` is called.

        Args:
            arrivals: their destination. asked: the entry of `following.h` for each partition of the session.
        """
        again: cython.pointer(kd_again) = cython.address(self._intake.again)
        length: cython.size_t = len(asked)
        if again.frame is cython.NULL or kd_version(again.frame) < KD_FIRST_WITH_IDS:
            raise ValueError("no frame that could be followed")
        again.asked = cython.cast(cython.p_uchar, PyMem_Malloc(length))
        if again.asked is cython.NULL:
            raise MemoryError
        memcpy(again.asked, cython.cast(cython.p_char, asked), length)
        again.asked_length, again.room = length, 0
        # It is kept as long as this is.
        self._arrivals = arrivals
        again.arrivals = cython.address(arrivals._arrivals)
        again.owner = cython.cast(cython.p_void, self)
        self._follow = self._leave.follow

    def sent_again(self, until: int64_t) -> tuple:
        """The repetitions since the last call.

        Args:
            until: it may continue until then (ms).

        Returns:
            how often it went out, when (ms) the last time, the bytes of these requests and those of their answers, and
            the answers with records as `Arrival`.
        """
        again: cython.pointer(kd_again) = cython.address(self._intake.again)
        found = (again.count, again.sent_ms, again.sent, again.heard, self._arrived)
        again.count = again.arrived = 0
        again.sent = again.heard = 0
        again.until_ms = until
        self._arrived = []
        return found

    def leave_direct(self, way: object) -> None:
        """Let the application's threads write requests by themselves while ``way.may()`` is not negative before a wait.

        That is the correlation id of the first of them. None: no more. With ``way.is_watched`` the wait ends when an
        answer is late, or was not counted for long.
        """
        self._direct = way
        if way is None:
            kd_direct_end(cython.address(self._intake.direct))
            if self._asked is not None:
                self._asked._raise()

    @property
    def takes_requests(self) -> bool:
        """True if threads of the application can write requests here, and wait for them."""
        return self._of._session.ssl is cython.NULL and _has_flags()

    def remind(self) -> None:
        """A request will be written. If it is not, the network thread comes back within a second. Any thread."""
        kd_direct_remind(cython.address(self._intake.direct), kd_now_ns() // 1000000)

    def turn(self) -> int:
        """The number of the network thread's present wait; 0: a request cannot be written now. Any thread."""
        return kd_direct_turn(cython.address(self._intake.direct))

    def offset_form(self, frame: bytes, at: cython.size_t, answer: bytes, flag: Flag) -> OffsetForm:
        """See `OffsetForm`."""
        return OffsetForm(self, frame, at, answer, flag)

    def ask_for(self, turn: cython.uint, frame: bytearray, begin: bytes, request: object) -> Asked | None:
        """As `OffsetForm.ask`, for a request whose plain answer begins so, and is kept for whoever waits for it.

        Args:
            begin: with its length and any correlation id, of which the length is not compared.
        """
        asked: Asked = Asked.__new__(Asked)
        asked._request = request
        asked._asked.keeps = 1
        if len(frame) < KD_DIRECT_ID_AT + 4:
            raise ValueError("no frame that could be sent")
        is_out: cython.bint = self._write(
            turn,
            cython.cast(cython.p_uchar, PyByteArray_AS_STRING(frame)),
            len(frame),
            begin,
            len(begin),
            0,
            asked,
            None,
        )
        return asked if is_out else None

    @cython.cfunc
    def _write(
        self,
        turn: cython.uint,
        frame: cython.p_uchar,
        length: cython.size_t,
        answer: bytes,
        free_at: cython.size_t,
        free_length: cython.size_t,
        asked: Asked,
        flag: Flag,
    ) -> cython.bint:
        """Write a request if the network thread has waited since this turn.

        It makes no Python object, so no other thread gets the interpreter meanwhile.

        Args:
            flag: None: ``asked`` has its own, and the answer is only taken while somebody waits for it.
        """
        size: cython.size_t = len(answer)
        if size < KD_DIRECT_SAME + 4 or size > KD_DIRECT_MOST or free_length > KD_DIRECT_FREE:
            raise ValueError("no answer that could be compared")
        if free_at < KD_DIRECT_SAME + 4 or free_at + free_length > size:
            raise ValueError("no part of an answer that could be free")
        # Released at the end: a finalizer may let the network thread in.
        asked_before: object = self._asked
        flag_before: object = self._answer_flag
        asked._has_flag = flag is None
        asked._asked.outcome = KD_DIRECT_UNAWAITED if asked._has_flag else KD_DIRECT_WAITING
        is_out: cython.bint = kd_direct_ask(
            cython.address(self._intake.direct),
            self._intake.session,
            turn,
            frame,
            length,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(answer)),
            size,
            free_at,
            free_length,
            cython.address(asked._asked),
            cython.address(asked._flag) if asked._has_flag else flag._flag,
            kd_now_ns() // 1000000,
        )
        if is_out:
            self._asked = asked
            self._answer_flag = flag
        del asked_before, flag_before
        return is_out

    def asked(self) -> tuple:
        """The requests since the last call, after a wait.

        Returns:
            how many had their plain answer, the sum of their waits (ms), the bytes of all requests and of those answers,
            and of the one that is left to the network thread: `request`, its correlation id and when it was sent (ms);
            None, -1 and -1: there is none.
        """
        direct: cython.pointer(kd_direct) = cython.address(self._intake.direct)
        is_left: cython.bint = direct.state == KD_DIRECT_LEFT
        if is_left:
            self._asked._raise()
        found = (
            direct.answered,
            direct.waited_ms,
            direct.sent,
            direct.heard,
            self._asked._request if is_left else None,
            direct.asked_id if is_left else -1,
            direct.asked_ms,
        )
        kd_direct_counted(direct)
        return found

    @property
    def heard_at(self) -> int:
        """The time (ms of the monotonic clock) of the last read; -1: never."""
        return self._intake.heard_ms

    @property
    def is_inside(self) -> bool:
        """True if the peer has sent a part of a frame."""
        return self._intake.end > self._intake.begin or self._intake.into is not cython.NULL

    @cython.cfunc
    def _ask(self) -> object:
        """Repeat the read that OpenSSL did not like by Python's ssl."""
        intake: cython.pointer(kd_intake) = cython.address(self._intake)
        room: cython.size_t = intake.missing if intake.into is not cython.NULL else KD_ROOM - intake.end
        data: bytearray = bytearray(min(room, 16384))
        count = self._repeat(memoryview(data))
        intake.state = KD_OPEN
        if count is None:
            return None
        if count == 0:
            intake.state = KD_ENDED
            return None
        intake.more = 1
        done: cython.size_t = count
        if intake.into is not cython.NULL:
            memcpy(intake.into, cython.cast(cython.p_char, data), done)
            intake.into += done
            intake.missing -= done
        else:
            memcpy(intake.room + intake.end, cython.cast(cython.p_char, data), done)
            intake.end += done
        return None


@cython.final
@cython.cclass
class Asked:
    """A request that a thread of the application has written. Any thread."""

    def __cinit__(self) -> None:
        self._flag.fd = -1

    def __dealloc__(self) -> None:
        free(self._asked.kept)

    def kept(self) -> bytes:
        """What follows the correlation id of the plain answer that `Intake.ask_for` asked for, once it has come."""
        if kd_direct_outcome(cython.address(self._asked)) != KD_DIRECT_ANSWERED or self._asked.kept is cython.NULL:
            raise ValueError("no answer was kept")
        return cython.cast(cython.p_char, self._asked.kept)[: self._asked.kept_length]

    @property
    def is_answered(self) -> bool:
        """True if its plain answer has come."""
        return kd_direct_outcome(cython.address(self._asked)) == KD_DIRECT_ANSWERED

    @property
    def is_waiting(self) -> bool:
        """True until that has come, or the network thread has taken the request over."""
        outcome: cython.int = kd_direct_outcome(cython.address(self._asked))
        return outcome == KD_DIRECT_WAITING or outcome == KD_DIRECT_UNAWAITED

    @cython.ccall
    def enter(self, fd: cython.int = -1, keeper: object = None) -> cython.bint:
        """Wait for the plain answer from now on. False: that is not possible any more, or another thread does.

        Args:
            fd: made readable by the answer, in place of the end of `wait`; ``keeper`` keeps it open.
        """
        # If a thread waits already, its flag stays as it is. None can begin to wait before the last line, because this
        # thread holds the interpreter.
        if kd_direct_outcome(cython.address(self._asked)) != KD_DIRECT_UNAWAITED:
            return False
        self._keeper = keeper
        kd_flag_show(cython.address(self._flag), fd)
        kd_flag_enter(cython.address(self._flag))
        return kd_direct_await(cython.address(self._asked)) != 0

    @cython.ccall
    def wait(self, seconds: object) -> object:
        """Sleep until it comes, or the network thread has taken the request over."""
        return _wait(cython.address(self._flag), seconds)

    @cython.ccall
    def leave(self) -> object:
        """Wait no more. If `is_answered` is False after this the network thread gets the answer."""
        kd_direct_forsake(cython.address(self._asked))
        return None

    @cython.cfunc
    def _raise(self) -> object:
        """The network thread has taken it over: let the waiting thread look."""
        if self._has_flag:
            kd_flag_raise(cython.address(self._flag))
        return None


@cython.final
@cython.cclass
class OffsetForm:
    """A request of one connection that is always the same but for an offset and its leader epoch, and its plain answer.

    Args:
        frame: as it is sent, with its length. at: the place of the offset in it, before that of the epoch.
        answer: the only plain one, with its length and any correlation id. flag: raised by the plain answer.
    """

    def __init__(self, intake: Intake, frame: bytes, at: cython.size_t, answer: bytes, flag: Flag) -> None:
        length: cython.size_t = len(frame)
        if at < KD_DIRECT_ID_AT + 4 or at > length or length - at < _OFFSET_AND_EPOCH:
            raise ValueError("no frame with an offset that could be sent")
        self._intake = intake
        self._frame = bytearray(frame)
        self._at = at
        self._answer = answer
        self._flag = flag

    def ask(self, turn: cython.uint, offset: int64_t, epoch: object, request: object) -> Asked | None:
        """Write the request if the network thread has waited since `Intake.turn` gave this number. Any thread.

        Args:
            epoch: None: it is not known. request: for the network thread, if another answer comes.

        Returns:
            None: nothing was sent.
        """
        number: cython.int = -1 if epoch is None else epoch
        # First: it may let another thread in. From here on nothing is made until the request is out.
        asked: Asked = Asked.__new__(Asked)
        asked._request = request
        # Event loops that cannot watch descriptors are woken by Python.
        if self._intake is None or self._flag.on_set is not None:
            return None
        frame: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._frame))
        kd_put_number(kd_put_number(frame + self._at, offset, 8), number, 4)
        is_out: cython.bint = self._intake._write(
            turn, frame, len(self._frame), self._answer, len(self._answer), 0, asked, self._flag
        )
        return asked if is_out else None


@cython.final
@cython.cclass
class Arrival:
    """An answer with records that came without the interpreter.

    Attributes:
        follow: its fetch: the value of `Repeat.follow`.
        parts: of each partition the topic id, its number, high watermark, last stable offset, start of the log, and
            records (bytes, or None).
        number: the number of its fetch, counted from the first since `Intake.sent_again`. size: bytes of the answer.
        fetches: the result of `Follow.read` once it was taken; None: it did not fit the request.
    """

    def __dealloc__(self) -> None:
        free(self._frame)

    @property
    def parts(self) -> list:
        if self._parts is None:
            # Each object that is made may let another thread in, which reads the frame, too: it stays until this goes.
            parts: list = _parts_of(self)
            if self._parts is None:
                self._parts = parts
        return self._parts


@cython.cfunc
def _parts_of(arrival: Arrival) -> list:
    """The parts of an answer that the poller has found to be plain."""
    # In steps, for Cython's plain syntax makes no struct from values.
    walk: kd_bytes
    walk.at = arrival._frame
    walk.end = arrival._frame + arrival.size
    walk.is_bad = 0
    parts: list = []
    topics: cython.uint = kd_elements(cython.address(walk))
    while topics > 0:
        topic_id = kd_skip(cython.address(walk), KD_UUID)
        name: bytes = cython.cast(cython.p_char, topic_id)[:KD_UUID]
        left: cython.uint = kd_elements(cython.address(walk))
        while left > 0:
            part: kd_part = kd_next_part(cython.address(walk), topic_id)
            records: object = None
            if part.records is not cython.NULL:
                records = cython.cast(cython.p_char, part.records)[: part.length]
            parts.append(
                (
                    name,
                    cython.cast(cython.int, kd_u32(part.index)),
                    kd_i64(part.offsets),
                    kd_i64(part.offsets + 8),
                    kd_i64(part.offsets + 16),
                    records,
                )
            )
            left -= 1
        kd_expect(cython.address(walk), 0)
        topics -= 1
    return parts


@cython.final
@cython.cclass
class Arrivals:
    """Records that came while a network thread waited, for the application's thread to take.

    Both threads call this, each with the interpreter. On CPython 3.11 making an object may begin a collection, which
    may run code that lets the other thread in. So no object that the collector tracks is made while a record moves.
    """

    def __cinit__(self) -> None:
        self._waiting = []
        self._shown = self._arrivals.flag.fd = -1

    def __dealloc__(self) -> None:
        if self._shown >= 0:
            close_fd(self._shown)
        self._clear()

    def flag(self) -> Flag:
        """The flag that the reading thread waits for. It is raised when records come, without the GIL."""
        flag: Flag = Flag.__new__(Flag)
        flag._flag = cython.address(self._arrivals.flag)
        flag._of = self
        return flag

    def has_some(self) -> bool:
        """True if there is anything to take."""
        return bool(self._waiting) or kd_arrivals_first(cython.address(self._arrivals)) is not cython.NULL

    def take(self, into: object) -> None:
        """Append the arrivals to the deque ``into``, converted by `Follow.read`. Any thread.

        It is taken out in the same step, so an interruption loses nothing and nothing is given twice. An answer
        that does not fit the request is dropped, and so are later ones for the same fetch.
        """
        self._collect()
        waiting: list = self._waiting
        append: object = into.append
        while waiting:
            arrival: Arrival = waiting[0]
            found: tuple = arrival.follow.read(arrival.parts)
            # The other thread may have been faster, or a signal handler.
            if not waiting or waiting[0] is not arrival:
                continue
            fetches: list = found[0]
            # From here on no object is made: no other thread comes in before all of it has moved.
            if fetches is not None:
                for fetch in fetches:
                    append(fetch)
            arrival.fetches = fetches
            arrival.follow.asked = found[1]
            del waiting[0]

    @cython.cfunc
    def _collect(self) -> object:
        """Make objects of what the poller has put."""
        arrivals: cython.pointer(kd_arrivals) = cython.address(self._arrivals)
        while kd_arrivals_first(arrivals) is not cython.NULL:
            arrival: Arrival = Arrival.__new__(Arrival)
            # That may have let another thread in. From here on no object is made until the slot is given back.
            first: cython.pointer(kd_arrival) = kd_arrivals_first(arrivals)
            if first is cython.NULL:
                return None
            owner: Intake = cython.cast(Intake, first.owner)
            arrival.follow = owner._follow
            arrival.number = first.number
            self._waiting.append(arrival)
            try:
                owner._arrived.append(arrival)
            except MemoryError:
                self._waiting.pop()
                raise
            arrival._frame = first.frame
            arrival.size = first.length
            kd_arrivals_taken(arrivals)
        return None

    @cython.cfunc
    def _clear(self) -> object:
        """Free the arrivals that nobody took, before the connections that received them are closed."""
        while (first := kd_arrivals_first(cython.address(self._arrivals))) is not cython.NULL:
            free(first.frame)
            kd_arrivals_taken(cython.address(self._arrivals))
        return None


@cython.final
@cython.cclass
class Flag:
    """As `kadence.consumer.client_state.Signal`; it can be raised without the interpreter, too."""

    def show(self) -> int:
        """A descriptor that becomes readable when it is raised, from now on; below 0: that is not possible.

        It stays open as long as this.
        """
        arrivals: Arrivals = self._of
        if not hasattr(os, "eventfd"):
            return -1
        if arrivals._shown < 0:
            arrivals._shown = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        kd_flag_show(self._flag, arrivals._shown)
        return arrivals._shown

    def seen(self) -> None:
        """The descriptor was readable: lower the flag. A look after this misses nothing."""
        kd_flag_seen(self._flag)

    def hide(self) -> None:
        """No event loop watches it any more."""
        kd_flag_show(self._flag, -1)

    @property
    def waiting(self) -> bool:
        return self._flag.waiting != 0

    @waiting.setter
    def waiting(self, value: cython.bint) -> None:
        kd_flag_await(self._flag, value)

    def enter(self) -> None:
        kd_flag_enter(self._flag)

    def wait(self, seconds: object) -> None:
        _wait(self._flag, seconds)

    def leave(self, *, interrupts: cython.bint = False) -> None:
        kd_flag_await(self._flag, interrupts)
        if interrupts:
            self.set()

    def set(self) -> None:
        if self._flag.waiting:
            if self.on_set is not None:
                self.on_set()
            else:
                kd_flag_raise(self._flag)


@cython.cfunc
def _wait(flag: cython.pointer(kd_flag), seconds: object) -> object:
    """Sleep until the flag is up; handlers of signals run meanwhile."""
    left: int64_t = (
        -1 if seconds is None else cython.cast(int64_t, min(max(float(seconds), 0.0), 1e9) * 1e9)
    )
    until: int64_t = 0 if left < 0 else kd_now_ns() + left
    result: cython.int = 0
    while True:
        with cython.nogil:
            result = kd_flag_wait(flag, left)
        if result >= 0 and (result > 0 or seconds is not None):
            return None
        if result < 0:
            PyErr_CheckSignals()
        if seconds is not None:
            left = until - kd_now_ns()
            if left <= 0:
                return None


def new_arrivals() -> object:
    """`Arrivals`; None where they are not possible: without futexes, or on a free-threaded Python."""
    return Arrivals() if _has_flags() else None


@cython.cfunc
def _has_flags() -> cython.bint:
    """True if a thread can be woken without the interpreter, and only one thread at a time holds that."""
    return KD_HAS_ARRIVALS and getattr(sys, "_is_gil_enabled", lambda: True)()


@cython.cclass
class Wake:
    """Ends a wait of the `Poller` from any thread, without letting go of the interpreter. A flood costs one byte."""

    def __init__(self) -> None:
        self._woken = False
        if hasattr(os, "eventfd"):
            self._reader = self._writer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._reader

    def wake(self) -> None:
        """End the present wait, or the next one. Any thread, and signal handlers."""
        one: int64_t = 1
        # Without the interpreter's lock another thread may close it at any time.
        with cython.critical_section(self):
            # Closed meanwhile: there is no wait left to end.
            if self._woken or self._writer < 0:
                return
            self._woken = True
            write(self._writer, cython.address(one), 8)

    @cython.cfunc
    def _seen(self) -> object:
        """The wait is over. A look after this sees all changes before a call of `wake`."""
        with cython.critical_section(self):
            self._woken = False
        return None

    def close(self) -> None:
        """Close both ends."""
        with cython.critical_section(self):
            reader, writer = self._reader, self._writer
            # Forget the numbers first: once they are closed, another thread may get the same ones.
            self._reader = self._writer = -1
        for fd in {reader, writer} - {-1}:
            os.close(fd)


@cython.cclass
class Poller:
    """Waits for all of one network thread's sockets; see intake.h.

    Attributes:
        releases: how often the GIL was released. arrivals: the destination of records; None: there is none.
    """

    def __cinit__(self, wake: Wake) -> None:
        self.releases = 0
        self._wake = wake
        self.arrivals = None
        self._owners = []
        self._kept = []
        self._places = {}
        self._grow(8)
        self._append(wake.fileno())
        self._set(0, POLLIN, None, None)

    def __dealloc__(self) -> None:
        PyMem_Free(self._fds)
        PyMem_Free(self._intakes)

    def watch(self, fd: cython.int, events: cython.int, owner: object, intake: object = None) -> None:
        """Report these events of ``owner`` from now on. With an ``intake`` bytes are read, and READ means frames."""
        found = self._places.get(fd)
        place: cython.int = self._append(fd) if found is None else found
        wanted: cython.int = (POLLIN if events & _READ else 0) | (POLLOUT if events & _WRITE else 0)
        self._set(place, wanted, owner, intake)

    def pass_on(self) -> object:
        """Pass records on to the application: returns the `Arrivals`; None: that is not possible."""
        self.arrivals = new_arrivals()
        return self.arrivals

    def unwatch(self, fd: cython.int) -> None:
        """Forget it. Before it is closed."""
        place: cython.int = self._places.pop(fd)
        last: cython.int = self._count - 1
        self._set(place, 0, None, None)
        if place != last:
            self._fds[place] = self._fds[last]
            self._intakes[place] = self._intakes[last]
            self._owners[place] = self._owners[last]
            self._kept[place] = self._kept[last]
            self._places[self._fds[place].fd] = place
        self._owners.pop()
        self._kept.pop()
        self._count = last

    def wait(self, wait_ms: object) -> list:
        """Wait at most ``wait_ms`` (None: for ever) for something that Python has to handle: (owner, events) of each.

        The owner of a wake-up is None. A signal ends the wait with nothing, so that its handler can run.
        """
        timeout: int64_t = -1 if wait_ms is None else min(max(wait_ms, 0), _LONGEST_WAIT_MS)
        found: cython.int = 0
        is_long: cython.bint = kd_is_long(self._intakes, self._count)
        is_left: cython.bint = self._ask_leave()
        if self._plain and self._is_plain_pending():
            timeout = 0
        # Events that have come already cost no release of the GIL.
        if not is_long:
            found = kd_look(self._fds, self._intakes, self._count, 0)
        if found == 0 and (timeout != 0 or is_long):
            self.releases += 1
            # A wait of 0 ms means that the network thread holds answers that it has not handled. The state that a
            # request depends on is then out of date.
            if timeout != 0:
                try:
                    self._open_ways()
                except BaseException:
                    self._shut_ways()
                    raise
            with cython.nogil:
                found = kd_wait(self._fds, self._intakes, self._count, timeout)
        place: cython.int
        seen: cython.int
        # Do this before anything that may let another thread in: the code below changes the state that the requests of
        # that thread depend on.
        has_news: cython.bint = self._shut_ways()
        if self.arrivals is not None:
            # Do this before the connections that the arrivals name can end.
            cython.cast(Arrivals, self.arrivals)._collect()
        if found < KD_ERRNO:
            number = KD_ERRNO - found
            raise OSError(number, os.strerror(number))
        ready: list = []
        if has_news:
            # Report these before all other events: then the network thread handles their answers, and their loss, as
            # those of any request.
            for place in range(self._count):
                if self._intakes[place] is not cython.NULL and kd_direct_shut(
                    cython.address(self._intakes[place].direct)
                ):
                    ready.append((self._owners[place], _DIRECT))
        if is_left:
            # Report these first: an answer that comes now belongs to the last of them.
            for place in range(self._count):
                if self._intakes[place] is not cython.NULL and self._intakes[place].again.count > 0:
                    ready.append((self._owners[place], _REPEATED))  # noqa: PERF401 - no list of ours knows the places
        if (found == 0 and not self._plain) or found == KD_INTERRUPTED:
            return ready
        for place in range(self._count):
            seen = self._fds[place].revents
            kept = self._kept[place]
            if self._intakes[place] is not cython.NULL:
                cython.cast(Intake, kept)._of.let_go()
            elif kept is not None:
                if seen & ~POLLOUT or kept.more:
                    kept.advance()
                seen = (seen & POLLOUT) | (POLLIN if kept.is_due else 0)
            if seen:
                if place == 0:
                    self._wake._seen()
                events = (_READ if seen & ~POLLOUT else 0) | (_WRITE if seen & ~POLLIN else 0)
                ready.append((self._owners[place], events))
        return ready

    def close(self) -> None:
        """Forget everything. The owners close their descriptors."""
        if self.arrivals is not None:
            cython.cast(Arrivals, self.arrivals)._clear()
        self._count = self._plain = 0
        self._owners, self._kept, self._places = [], [], {}

    @cython.cfunc
    def _append(self, fd: cython.int) -> object:
        place: cython.int = self._count
        if place == self._size:
            self._grow(2 * self._size)
        self._fds[place].fd = fd
        self._fds[place].revents = 0
        self._owners.append(None)
        self._kept.append(None)
        self._places[fd] = place
        self._count = place + 1
        return place

    @cython.cfunc
    def _set(self, place: cython.int, wanted: cython.int, owner: object, intake: object) -> object:
        # First: the objects that were kept there may go.
        self._intakes[place] = cython.NULL
        self._plain -= _is_plain(self._kept[place])
        self._plain += _is_plain(intake)
        self._fds[place].events = wanted
        self._owners[place] = owner
        self._kept[place] = intake
        if isinstance(intake, Intake):
            cython.cast(Intake, intake)._intake.wanted = wanted
            self._intakes[place] = cython.address(cython.cast(Intake, intake)._intake)
        return None

    @cython.cfunc
    def _ask_leave(self) -> object:
        """True if some connection may send a request again by itself during this wait."""
        place: cython.int
        is_left: cython.bint = False
        for place in range(self._count):
            if (
                self._intakes[place] is not cython.NULL
                and self._intakes[place].again.frame is not cython.NULL
            ):
                leave = cython.cast(Intake, self._kept[place])._leave
                self._intakes[place].again.is_allowed = leave.allowed
                if self._intakes[place].again.asked is not cython.NULL:
                    self._intakes[place].again.room = leave.follow.room()
                is_left = is_left or self._intakes[place].again.is_allowed != 0
        return is_left

    @cython.cfunc
    def _open_ways(self) -> object:
        """Let requests be written during this wait where that is permitted."""
        place: cython.int
        for place in range(self._count):
            if self._intakes[place] is not cython.NULL:
                kept = self._kept[place]
                way = cython.cast(Intake, kept)._direct
                if way is not None:
                    next_id: int32_t = way.may()
                    if next_id >= 0:
                        kd_direct_open(
                            cython.address(cython.cast(Intake, kept)._intake.direct), next_id, way.is_watched
                        )
        return None

    @cython.cfunc
    def _shut_ways(self) -> object:
        """End that. True if there is something to count or to take over."""
        place: cython.int
        has_news: cython.bint = False
        for place in range(self._count):
            if self._intakes[place] is not cython.NULL:
                has_news |= kd_direct_shut(cython.address(self._intakes[place].direct))
        return True if has_news else False  # noqa: SIM210 - this makes no object

    @cython.cfunc
    def _is_plain_pending(self) -> object:
        """True if there are bytes in TLS of Python's ssl, where poll() cannot see them."""
        for kept in self._kept:  # noqa: SIM110 - a generator cannot be made in a C method
            if _is_plain(kept) and (kept.more or kept.is_due):
                return True
        return False

    @cython.cfunc
    def _grow(self, size: cython.int) -> object:
        fds = cython.cast(cython.pointer(pollfd), PyMem_Realloc(self._fds, size * cython.sizeof(pollfd)))
        if fds is cython.NULL:
            raise MemoryError
        self._fds = fds
        intakes = cython.cast(
            cython.pointer(cython.pointer(kd_intake)),
            PyMem_Realloc(self._intakes, size * cython.sizeof(cython.p_void)),
        )
        if intakes is cython.NULL:
            raise MemoryError
        self._intakes = intakes
        self._size = size
        return None


@cython.cfunc
def _is_plain(intake: object) -> cython.bint:
    """True if Python's ssl reads the stream: TLS whose OpenSSL object cannot be reached."""
    return intake is not None and not isinstance(intake, Intake)


@cython.cfunc
def _checked(result: cython.Py_ssize_t) -> object:
    """A result of session.h as Python sees it."""
    if result < KD_ERRNO:
        number = KD_ERRNO - result
        raise OSError(number, os.strerror(number))
    return result
