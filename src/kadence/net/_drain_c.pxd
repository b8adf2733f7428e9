# What pure-Python Cython syntax cannot say: C declarations. The code is in _drain_c.py.
from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    ctypedef unsigned long nfds_t
    short POLLIN
    int poll(pollfd *fds, nfds_t nfds, int timeout)

cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t recv(int fd, void *buf, size_t len, int flags)
    Py_ssize_t send(int fd, const void *buf, size_t len, int flags)

# SSL_read_ex and SSL_write_ex, SSL_get_error, ERR_clear_error
ctypedef int (*ssl_io)(void *ssl, void *buf, size_t len, size_t *done) noexcept nogil
ctypedef int (*ssl_get_error)(const void *ssl, int result) noexcept nogil
ctypedef void (*ssl_clear_error)() noexcept nogil

cdef ssl_io _ssl_read
cdef ssl_io _ssl_write
cdef ssl_get_error _ssl_get_error
cdef ssl_clear_error _ssl_clear_error

cdef enum:
    _NOT_NOW = -1
    _ASK = -2
    _ERRNO = -1000  # below this: minus errno
    _WANT_READ = 2  # SSL_ERROR_WANT_READ
