"""Native heartbeats: they are sent though the interpreter is held (native_heartbeat.h).

There is no replacement on Windows: lateness is measured and reported.
"""

import os

import cython

from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.kadence._native.drain import (
    Session,
    kd_gate,
    kd_ssl_clear,
    kd_ssl_clear_error,
    kd_ssl_error,
    kd_ssl_get_error,
    kd_ssl_io,
    kd_ssl_read,
    kd_ssl_write,
)
from cython.cimports.libc.stdint import int64_t, uintptr_t

cdef extern from "native_heartbeat.h" nogil:
    ctypedef struct kd_heartbeat:
        kd_gate gate
    void kd_heartbeat_open(kd_heartbeat *heartbeat, int fd, void *ssl)
    int kd_heartbeat_arm(
        kd_heartbeat *heartbeat, const unsigned char *frame, size_t length, size_t counter_at, int64_t due, int64_t until,
        int64_t interval
    )
    void kd_heartbeat_disarm(kd_heartbeat *heartbeat)
    int64_t kd_heartbeat_sent_at(kd_heartbeat *heartbeat)
    int kd_heartbeat_count_sent(kd_heartbeat *heartbeat)
    void kd_heartbeat_close(kd_heartbeat *heartbeat)
    void kd_heartbeat_free(kd_heartbeat *heartbeat)
    void kd_heartbeat_thread_end()


def bind_openssl(read: uintptr_t, write: uintptr_t, get_error: uintptr_t, clear_error: uintptr_t) -> None:
    """As `drain.bind_openssl`, for this module."""
    global kd_ssl_read, kd_ssl_write, kd_ssl_get_error, kd_ssl_clear_error
    kd_ssl_read = cython.cast(kd_ssl_io, read)
    kd_ssl_write = cython.cast(kd_ssl_io, write)
    kd_ssl_get_error = cython.cast(kd_ssl_error, get_error)
    kd_ssl_clear_error = cython.cast(kd_ssl_clear, clear_error)


def end() -> None:
    """Send nothing any more: the interpreter ends."""
    kd_heartbeat_thread_end()


@cython.cclass
class NativeHeartbeat:
    """The frames that the native thread may send on one connection. Network thread.

    Args:
        session: the connection's. From now on its writes pass through a gate, and answer UNSETTLED where `count_sent`
            must be called first.
    """

    _heartbeat: kd_heartbeat

    def __cinit__(self, session: Session) -> None:
        kd_heartbeat_open(cython.address(self._heartbeat), session._session.fd, session._session.ssl)
        session._session.gate = cython.address(self._heartbeat.gate)
        session._gate_of = self

    def __dealloc__(self) -> None:
        kd_heartbeat_free(cython.address(self._heartbeat))

    def arm(
        self, frame: bytes, due: int64_t, until: int64_t, interval: int64_t, counter_at: cython.Py_ssize_t = 0
    ) -> bool:
        """Send this frame at ``due`` and each ``interval`` after it, but not from ``until`` on (monotonic ms).

        Its correlation id is made here: -2, -3 …, one for each time it is sent. At ``counter_at`` it has another number
        of 4 bytes that goes up by one with each time, the epoch of a session; 0: it has none.

        Returns:
            False: nothing changed, because frames were sent that `count_sent` has not returned yet.

        Raises:
            OSError: there is no memory, or no thread can be started.
        """
        if counter_at < 0 or counter_at > PyBytes_GET_SIZE(frame) - 4:
            raise ValueError("the counter lies outside the frame")
        failed = kd_heartbeat_arm(
            cython.address(self._heartbeat),
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(frame)),
            PyBytes_GET_SIZE(frame),
            counter_at,
            due,
            until,
            interval,
        )
        if failed > 0:
            raise OSError(failed, os.strerror(failed))
        return failed == 0

    def disarm(self) -> None:
        """Send nothing more."""
        kd_heartbeat_disarm(cython.address(self._heartbeat))

    def count_sent(self) -> int:
        """The number of frames that were sent since the last call."""
        return kd_heartbeat_count_sent(cython.address(self._heartbeat))

    @property
    def sent_at(self) -> int:
        """The time at which it was sent last (monotonic ms); -1: never."""
        return kd_heartbeat_sent_at(cython.address(self._heartbeat))

    def close(self) -> None:
        """Never touch the connection again. Call this before its descriptor is closed."""
        kd_heartbeat_close(cython.address(self._heartbeat))
