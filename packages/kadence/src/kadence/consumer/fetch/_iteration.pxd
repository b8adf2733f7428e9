# The C types of _iteration.py, and what it takes from C.

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from kadence.consumer.fetch._steps cimport Steps

cdef extern from "Python.h":
    int PyIter_Send(object iterator, object value, PyObject **result) except -1

cdef extern from "awaits.h":
    ctypedef int (*kd_send)(object, object, PyObject **) except -1
    void kd_answer_sends(object type, kd_send send)

@cython.final
cdef class Iteration:
    cdef Steps steps
    cdef object slowly

@cython.final
cdef class AsyncIteration:
    cdef Steps steps
    cdef object slowly

@cython.final
cdef class Next:
    cdef Steps steps
    cdef object slowly
    cdef object inner
    cdef object take(self)
