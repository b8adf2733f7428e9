# The C declarations that drain.pyx uses, and its types for native_heartbeat.pyx.

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    short POLLIN
    short POLLOUT

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t write(int fd, const void *data, size_t length)
    int close_fd "close"(int fd)

cdef extern from "gate.h" nogil:
    ctypedef struct kd_gate:
        pass

cdef extern from "outbox.h" nogil:
    ctypedef struct kd_outbox:
        void *pieces
        size_t unwritten
    int kd_outbox_empty(kd_outbox *box, int count)
    void kd_outbox_put(kd_outbox *box, void *data, size_t length)

cdef extern from "session.h" nogil:
    enum:
        KD_NOT_NOW
        KD_ASK
        KD_NATIVE_SENT
        KD_ERRNO
    ctypedef struct kd_session:
        int fd
        void *ssl
        kd_gate *gate
        kd_outbox outbox
    ctypedef int (*kd_ssl_io)(void *ssl, void *data, size_t length, size_t *done) noexcept nogil
    ctypedef int (*kd_ssl_error)(const void *ssl, int result) noexcept nogil
    ctypedef void (*kd_ssl_clear)() noexcept nogil
    kd_ssl_io kd_ssl_read
    kd_ssl_io kd_ssl_write
    kd_ssl_error kd_ssl_get_error
    kd_ssl_clear kd_ssl_clear_error
    Py_ssize_t kd_session_read(kd_session *session, void *into, size_t length)
    Py_ssize_t kd_session_write(kd_session *session, const void *data, size_t length)
    int kd_session_takes(const kd_session *session)
    void kd_session_asked(kd_session *session, int wrote, int is_inside)

cdef extern from "arrivals.h" nogil:
    enum:
        KD_HAS_ARRIVALS
    ctypedef struct kd_flag:
        unsigned int up
        unsigned int waiting
        int fd
    ctypedef struct kd_arrival:
        void *owner
        unsigned char *frame
        size_t length
        int number
    ctypedef struct kd_arrivals:
        kd_flag flag
    void kd_flag_await(kd_flag *flag, int waiting)
    void kd_flag_enter(kd_flag *flag)
    void kd_flag_raise(kd_flag *flag)
    void kd_flag_show(kd_flag *flag, int fd)
    void kd_flag_seen(kd_flag *flag)
    int kd_flag_wait(kd_flag *flag, int64_t timeout_ns)
    kd_arrival *kd_arrivals_first(kd_arrivals *arrivals)
    void kd_arrivals_taken(kd_arrivals *arrivals)

cdef extern from "direct.h" nogil:
    enum:
        KD_DIRECT_MOST
        KD_DIRECT_ID_AT
        KD_DIRECT_SAME
        KD_DIRECT_FREE
        KD_DIRECT_LEFT
        KD_DIRECT_WAITING
        KD_DIRECT_ANSWERED
        KD_DIRECT_UNAWAITED
    ctypedef struct kd_asked:
        int outcome
        int keeps
        unsigned char *found
        unsigned char *kept
        size_t kept_length
    ctypedef struct kd_direct:
        int state
        int32_t asked_id
        int answered
        int64_t asked_ms
        int64_t waited_ms
        size_t sent
        size_t heard
    void kd_direct_init(kd_direct *direct)
    void kd_direct_open(kd_direct *direct, int32_t next_id, int is_watched)
    int kd_direct_shut(kd_direct *direct)
    unsigned int kd_direct_turn(kd_direct *direct)
    int kd_direct_ask(
        kd_direct *direct, kd_session *session, unsigned int turn, unsigned char *frame, size_t length,
        const unsigned char *answer, size_t answer_length, size_t free_at, size_t free_length, kd_asked *asked,
        kd_flag *flag, int64_t now_ms
    )
    void kd_direct_remind(kd_direct *direct, int64_t now_ms)
    int kd_direct_outcome(const kd_asked *asked)
    int kd_direct_await(kd_asked *asked)
    void kd_direct_forsake(kd_asked *asked)
    void kd_direct_counted(kd_direct *direct)
    void kd_direct_end(kd_direct *direct)

cdef extern from "following.h" nogil:
    enum:
        KD_FIRST_WITH_IDS
        KD_LAST_KNOWN_LAYOUT
        KD_UUID
    ctypedef struct kd_bytes:
        const unsigned char *at
        const unsigned char *end
        int is_bad
    ctypedef struct kd_part:
        const unsigned char *topic_id
        const unsigned char *index
        const unsigned char *offsets
        const unsigned char *records
        size_t length
    unsigned int kd_u32(const unsigned char *p)
    int64_t kd_i64(const unsigned char *p)
    unsigned char *kd_put_number(unsigned char *at, uint64_t value, int bytes)
    const unsigned char *kd_skip(kd_bytes *bytes, size_t count)
    unsigned int kd_elements(kd_bytes *bytes)
    void kd_expect(kd_bytes *bytes, unsigned int value)
    kd_part kd_next_part(kd_bytes *bytes, const unsigned char *topic_id)

cdef extern from "poll_wait.h" nogil:
    ctypedef struct kd_poll_wait:
        pass
    void kd_poll_wait_init(kd_poll_wait *wait)
    void kd_poll_wait_set(kd_poll_wait *wait, int64_t until_ms, int64_t count)

cdef extern from "intake.h" nogil:
    enum:
        KD_LENGTH_BYTES
        KD_ROOM
        KD_OPEN
        KD_ENDED
        KD_INTERRUPTED
        KD_CORRELATION_AT
        KD_EPOCH_BYTES
        KD_WAIT_BYTES
        KD_EMPTY_MOST
    ctypedef struct kd_again:
        unsigned char *frame
        size_t length
        size_t epoch_at
        unsigned char *answer
        size_t answer_length
        int64_t sent_ms
        int64_t least_ms
        int64_t until_ms
        int is_allowed
        int count
        size_t sent
        size_t heard
        unsigned char *asked
        size_t asked_length
        size_t room
        kd_arrivals *arrivals
        void *owner
        int arrived
        kd_poll_wait *poll_wait
        int64_t wanted_count
        int64_t shortest_ms
        int64_t longest_ms
    ctypedef struct kd_intake:
        kd_session *session
        unsigned char *room
        size_t begin
        size_t end
        unsigned char *into
        size_t missing
        Py_ssize_t state
        int64_t heard_ms
        int more
        short wanted
        kd_again again
        kd_direct direct
    int kd_version(const unsigned char *frame)
    int64_t kd_now_ns()
    int32_t kd_length(const kd_intake *intake)
    int kd_has_frame(const kd_intake *intake)
    int kd_is_due(const kd_intake *intake)
    void kd_advance(kd_intake *intake)
    int kd_look(pollfd *fds, kd_intake **intakes, int count, int timeout_ms)
    int kd_wait(pollfd *fds, kd_intake **intakes, int count, int64_t timeout_ms)
    int kd_is_long(kd_intake **intakes, int count)

cdef class Session:
    cdef kd_session _session
    cdef object _gate_of
    cdef list _taken
    cdef object let_go(self)

@cython.final
cdef class _Target:
    cdef Py_buffer view

cdef class Flag

@cython.final
cdef class PollWait:
    cdef kd_poll_wait _wait

@cython.final
cdef class Asked:
    cdef kd_asked _asked
    cdef kd_flag _flag
    cdef bint _has_flag
    cdef object _request
    cdef object _keeper
    cdef object _raise(self)
    cpdef bint enter(self, int fd=*, object keeper=*)
    cpdef object wait(self, object seconds)
    cpdef object leave(self)

cdef class Intake:
    cdef kd_intake _intake
    cdef Session _of
    cdef object _repeat
    cdef object _leave
    cdef object _follow
    cdef PollWait _poll_wait
    cdef object _arrivals
    cdef _Target _target
    cdef list _arrived
    cdef object _direct
    cdef Asked _asked
    cdef Flag _answer_flag
    cdef object _ask(self)
    cdef bint _write(
        self, unsigned int turn, unsigned char *frame, size_t length, bytes answer, size_t free_at, size_t free_length,
        Asked asked, Flag flag
    )

@cython.final
cdef class OffsetForm:
    cdef Intake _intake
    cdef bytearray _frame
    cdef size_t _at
    cdef bytes _answer
    cdef Flag _flag

@cython.final
cdef class Arrival:
    cdef readonly object follow
    cdef readonly list fetches
    cdef readonly int number
    cdef readonly Py_ssize_t size
    cdef unsigned char *_frame
    cdef list _parts

@cython.final
cdef class Flag:
    cdef kd_flag *_flag
    cdef object _of
    cdef public object on_set

@cython.final
cdef class Arrivals:
    cdef kd_arrivals _arrivals
    cdef list _waiting
    cdef int _shown
    cdef object _collect(self)
    cdef object _clear(self)

cdef class Wake:
    cdef int _reader
    cdef int _writer
    cdef bint _woken
    cdef object _seen(self)

cdef class Poller:
    cdef readonly long long releases
    cdef Wake _wake
    cdef readonly object arrivals
    cdef pollfd *_fds
    cdef kd_intake **_intakes
    cdef int _count
    cdef int _size
    cdef list _owners
    cdef list _kept
    cdef int _plain
    cdef dict _places
    cdef object _append(self, int fd)
    cdef object _set(self, int place, int wanted, object owner, object intake)
    cdef object _is_plain_pending(self)
    cdef object _ask_leave(self)
    cdef object _open_ways(self)
    cdef object _shut_ways(self)
    cdef object _grow(self, int size)
