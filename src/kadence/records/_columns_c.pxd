# What _columns_c.py takes from C; Cython merges this with the .py file.

cdef extern from "varint.h" nogil:
    bint kd_varint(unsigned char** at, unsigned char* end, int* into)
    void kd_prefetch(unsigned char* at, Py_ssize_t size)
