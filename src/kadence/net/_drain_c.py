# cython: language_level=3, boundscheck=False, wraparound=False
# mypy: ignore-errors
# The C names come from _drain_c.pxd.
"""Bytes between a socket and memory with as few hand-overs of the interpreter as can be. Compiled by Cython.

Whoever gives the interpreter away beside a busy Python thread waits a switch interval (5 ms) to get it back.
So short transfers that cannot block are made *with* the interpreter (`read_now`, `write_now`: microseconds),
and a long frame is read in one stretch *without* it (`fill`), waiting inside for its missing parts.

For TLS the same three work on OpenSSL's own object (`openssl.py` says why, and how it is obtained): Python's
ssl gives the interpreter away once per 16 KiB. There, anything but bytes and "not now" is answered with `ASK`:
the caller repeats the call through Python's ssl, which knows the exceptions.

Descriptors must be non-blocking. ``ssl`` is 0 for a plain socket.
"""

import os

import cython

if not cython.compiled:
    raise ImportError("kadence.net._drain_c is not compiled; kadence.net.stream has the same in Python")

from cython.cimports.libc.errno import EAGAIN, EINTR, errno
from cython.cimports.libc.stddef import size_t
from cython.cimports.libc.stdint import uintptr_t
from cython.cimports.posix.time import CLOCK_MONOTONIC, clock_gettime, timespec

NOT_NOW = -1
ASK = -2


def bind_openssl(read: uintptr_t, write: uintptr_t, get_error: uintptr_t, clear_error: uintptr_t) -> None:
    """The addresses of SSL_read_ex, SSL_write_ex, SSL_get_error and ERR_clear_error. Once, before any TLS call."""
    global _ssl_read, _ssl_write, _ssl_get_error, _ssl_clear_error
    _ssl_read = cython.cast(ssl_io, read)
    _ssl_write = cython.cast(ssl_io, write)
    _ssl_get_error = cython.cast(ssl_get_error, get_error)
    _ssl_clear_error = cython.cast(ssl_clear_error, clear_error)


def read_now(fd: cython.int, ssl: uintptr_t, into: cython.uchar[::1]) -> int:
    """Read what is there, with the interpreter. Bytes read; 0 at the end of the stream; NOT_NOW; ASK.

    Raises:
        OSError: the connection broke.
    """
    if into.shape[0] == 0:
        return NOT_NOW
    return _checked(_read(fd, ssl, cython.address(into[0]), into.shape[0]))


def write_now(fd: cython.int, ssl: uintptr_t, data: cython.const[cython.uchar][::1]) -> int:
    """Write what fits, with the interpreter. Bytes written; NOT_NOW; ASK.

    Raises:
        OSError: the connection broke.
    """
    result: cython.Py_ssize_t
    done: size_t = 0
    if data.shape[0] == 0:
        return 0
    source: cython.p_void = cython.cast(cython.p_void, cython.address(data[0]))
    if ssl:
        _ssl_clear_error()
        if _ssl_write(cython.cast(cython.p_void, ssl), source, data.shape[0], cython.address(done)) == 1:
            return done
        return ASK
    result = send(fd, source, data.shape[0], 0)
    if result < 0:
        result = _NOT_NOW if errno == EAGAIN or errno == EINTR else _ERRNO - errno
    return _checked(result)


def fill(
    fd: cython.int,
    ssl: uintptr_t,
    wake_fd: cython.int,
    into: cython.uchar[::1],
    patience_ms: cython.int,
    stretch_ms: cython.int,
) -> int:
    """Read until ``into`` is full, without the interpreter. Bytes read; 0 at the end; NOT_NOW; ASK.

    Waits inside for more, at most ``patience_ms`` each time and ``stretch_ms`` in all, and not once
    ``wake_fd`` is readable. An end or an error that comes after some bytes shows in the next call.

    Raises:
        OSError: the connection broke.
    """
    length: cython.Py_ssize_t = into.shape[0]
    done: cython.Py_ssize_t = 0
    result: cython.Py_ssize_t = _NOT_NOW
    until: cython.longlong
    left: cython.longlong
    ready: cython.int
    if length == 0:
        return NOT_NOW
    start: cython.p_uchar = cython.address(into[0])
    fds: pollfd[2]
    fds[0].fd = fd
    fds[0].events = POLLIN
    fds[1].fd = wake_fd
    fds[1].events = POLLIN
    with cython.nogil:
        until = _now_ms() + stretch_ms
        while done < length:
            result = _read(fd, ssl, start + done, length - done)
            if result > 0:
                done += result
                continue
            if result != _NOT_NOW:
                break
            left = until - _now_ms()
            if left <= 0:
                break
            ready = poll(
                cython.address(fds[0]),
                2,
                patience_ms if patience_ms < left else cython.cast(cython.int, left),
            )
            if ready <= 0 or fds[1].revents != 0:
                break
    return done if done > 0 else _checked(result)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read(
    fd: cython.int, ssl: uintptr_t, into: cython.p_uchar, length: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    result: cython.Py_ssize_t
    outcome: cython.int
    done: size_t = 0
    if ssl:
        # SSL_get_error looks at the thread's error queue, which others may have left something in.
        _ssl_clear_error()
        outcome = _ssl_read(cython.cast(cython.p_void, ssl), into, length, cython.address(done))
        if outcome == 1:
            return done
        return _NOT_NOW if _ssl_get_error(cython.cast(cython.p_void, ssl), outcome) == _WANT_READ else _ASK
    result = recv(fd, into, length, 0)
    if result < 0:
        if errno == EAGAIN or errno == EINTR:
            return _NOT_NOW
        return _ERRNO - errno
    return result


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _now_ms() -> cython.longlong:
    spec: timespec
    clock_gettime(CLOCK_MONOTONIC, cython.address(spec))
    return cython.cast(cython.longlong, spec.tv_sec) * 1000 + spec.tv_nsec // 1000000


@cython.cfunc
def _checked(result: cython.Py_ssize_t) -> object:
    """A result of `_read` as Python sees it."""
    if result < _ERRNO:
        number = _ERRNO - result
        raise OSError(number, os.strerror(number))
    return result
