"""Reads TLS without the interpreter, through OpenSSL's own object behind Python's ssl.

Python's ssl decrypts one record (16 KiB at most) per call and gives the interpreter away for each. Beside a busy
Python thread every call then waits a switch interval, and TLS falls to a few MB/s (`bench/gil.py` measures it).
There is no public way to read more per call, so the handshake, the certificates and the errors stay with Python's
ssl, and `_native.drain` (session.h) calls ``SSL_read_ex`` itself on the connection that they made.

Two things are needed, both checked before use; if either is missing, Python's ssl does all the work:

* the functions: looked up through the `_ssl` module's own library handle, so they are those of the very OpenSSL that
  made the connection (a statically linked `_ssl` shows none of them). The library that they are found in must have
  the version that Python's ssl reports: a second OpenSSL that was loaded before may hide it;
* the pointer: CPython's `_SSLSocket` begins, since 3.8, with a weak reference to its owner, the ``SSL *`` and the
  context. The two neighbours are known from outside; if both are at their expected places, so is the pointer between
  them.

And OpenSSL must not call Python while it reads or writes (`calls_python`).

`tls` imports it for clients with TLS: a plaintext one needs neither ctypes nor OpenSSL's functions.

Only the network thread touches the object, and on a group's connection the native thread, which keeps off it while
Python's ssl is at work (gate.h). So nothing uses it at the same time as Python's ssl.
"""

from __future__ import annotations

import ctypes
import os
import socket
import ssl
import sys
import weakref
from typing import Any, Final

from kadence.loaded import attribute_if_loaded
from kadence.net import drain, native_heartbeat

__all__ = ["BOUND", "calls_python", "functions", "hindrance", "pointer", "read_ahead"]

_HEAD: Final = object.__basicsize__
_WORD: Final = ctypes.sizeof(ctypes.c_void_p)
_READ_AHEAD_BYTES: Final = 131_072


def _library() -> tuple[Any | None, str]:
    """The library with the functions, or the reason why there is none."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None, "it takes CPython with its global lock"
    path = attribute_if_loaded("_ssl", "__file__")
    if path is None:
        return None, "this Python has its module _ssl built in"
    try:
        library = ctypes.CDLL(path)
        for name in ("SSL_read_ex", "SSL_write_ex", "SSL_get_error", "ERR_clear_error", "SSL_set_read_ahead"):
            getattr(library, name)
        tell_version = library.OpenSSL_version_num
    except (OSError, AttributeError):
        return None, "this Python's module _ssl shows no functions of OpenSSL"
    tell_version.restype = ctypes.c_ulong
    if tell_version() != ssl.OPENSSL_VERSION_NUMBER:
        return None, "another OpenSSL than the one of Python's ssl is loaded"
    return library, ""


_LIBRARY, _LACK = _library()


def hindrance() -> str:
    """Why OpenSSL cannot be called without the interpreter, as far as known without a connection; or an empty text."""
    if _LIBRARY is None:
        return _LACK
    if os.environ.get("SSLKEYLOGFILE") and not sys.flags.ignore_environment:
        return "SSLKEYLOGFILE is set, so OpenSSL calls Python"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    one, other = socket.socketpair()
    with other, context.wrap_socket(one, do_handshake_on_connect=False) as sock:
        return "" if pointer(sock) else "this Python's objects for TLS are of another form than is known"


def functions() -> tuple[int, int, int, int] | None:
    """Addresses of SSL_read_ex, SSL_write_ex, SSL_get_error and ERR_clear_error; None where they cannot be had."""
    if _LIBRARY is None:
        return None
    found = [
        ctypes.cast(getattr(_LIBRARY, name), ctypes.c_void_p).value or 0
        for name in ("SSL_read_ex", "SSL_write_ex", "SSL_get_error", "ERR_clear_error")
    ]
    return found[0], found[1], found[2], found[3]


def _bind() -> bool:
    found = functions() if drain.COMPILED else None
    if found is None:
        return False
    drain.drain.bind_openssl(*found)
    native_heartbeat.bind_openssl(found)
    return True


BOUND: Final = _bind()
"""Whether TLS is read and written without the interpreter. Needs this module to be imported only for a `pointer`."""


def pointer(sock: ssl.SSLSocket) -> int:
    """The ``SSL *`` of a connected socket; 0 when it is not where it is expected."""
    inner: Any = getattr(sock, "_sslobj", None)
    if _LIBRARY is None or inner is None or type(inner).__basicsize__ < _HEAD + 3 * _WORD:
        return 0
    if calls_python(sock.context):
        return 0
    owner, found, context = (
        ctypes.c_void_p.from_address(id(inner) + _HEAD + place * _WORD).value or 0 for place in range(3)
    )
    # One plain weak reference per object: asking again returns the one that the constructor created.
    if owner != id(weakref.ref(sock)) or context != id(sock.context):
        return 0
    return found


def calls_python(context: ssl.SSLContext) -> bool:
    """Whether OpenSSL calls Python while reading and writing: to log keys (SSLKEYLOGFILE), or messages.

    Such a callback waits for the interpreter. A thread that calls OpenSSL while it holds one of our locks (the native
    thread, gate.h) would then wait for a thread that waits for that lock.
    """
    return bool(context.keylog_filename) or getattr(context, "_msg_callback", None) is not None


def read_ahead(ssl_pointer: int) -> None:
    """Let OpenSSL read many records per system call instead of one in two calls. Before the handshake."""
    if _LIBRARY is None or not ssl_pointer:
        return
    _LIBRARY.SSL_set_read_ahead(ctypes.c_void_p(ssl_pointer), 1)
    set_length = getattr(_LIBRARY, "SSL_set_default_read_buffer_len", None)
    if set_length is not None:
        set_length(ctypes.c_void_p(ssl_pointer), ctypes.c_size_t(_READ_AHEAD_BYTES))
