# What pure-Python Cython syntax cannot say: C declarations. The code is in native_heartbeat.h and _native_heartbeat_c.py.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from kadence.net._drain_c cimport (
    kd_gate,
    kd_ssl_clear,
    kd_ssl_clear_error,
    kd_ssl_error,
    kd_ssl_get_error,
    kd_ssl_io,
    kd_ssl_read,
    kd_ssl_write,
)

cdef extern from "native_heartbeat.h" nogil:
    ctypedef struct kd_heartbeat:
        kd_gate gate
    void kd_heartbeat_open(kd_heartbeat *heartbeat, int fd, void *ssl)
    int kd_heartbeat_arm(
        kd_heartbeat *heartbeat, const unsigned char *frame, size_t length, int64_t due, int64_t until, int64_t interval
    )
    void kd_heartbeat_disarm(kd_heartbeat *heartbeat)
    int64_t kd_heartbeat_sent_at(kd_heartbeat *heartbeat)
    int kd_heartbeat_count_sent(kd_heartbeat *heartbeat)
    void kd_heartbeat_close(kd_heartbeat *heartbeat)
    void kd_heartbeat_free(kd_heartbeat *heartbeat)
    void kd_heartbeat_thread_end()

cdef class NativeHeartbeat:
    cdef kd_heartbeat _heartbeat
