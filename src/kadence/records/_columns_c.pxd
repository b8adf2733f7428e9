# What the compiled half takes from C; read together with _columns_c.py (Cython merges the two).

from libc.stdint cimport uint32_t

cdef extern from "crc32c.h" nogil:
    int kd_hardware
    void kd_crc32c_init()
    uint32_t kd_crc32c(uint32_t crc, const unsigned char* data, size_t n, int portable)
