# What pure-Python Cython syntax cannot say: C declarations. The code is in pulse.h and _pulse_c.py.
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

cdef extern from "pulse.h" nogil:
    ctypedef struct kd_beat:
        kd_gate gate
        int64_t sent_at
    void kd_beat_open(kd_beat *beat, int fd, void *ssl)
    int kd_beat_arm(
        kd_beat *beat, const unsigned char *frame, size_t length, int64_t due, int64_t until, int64_t interval
    )
    void kd_beat_disarm(kd_beat *beat)
    int kd_beat_settle(kd_beat *beat)
    void kd_beat_close(kd_beat *beat)
    void kd_beat_free(kd_beat *beat)
    void kd_pulse_end()

cdef class Beat:
    cdef kd_beat _beat
