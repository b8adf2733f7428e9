# The C declarations that append.pyx uses, and its types for rows.pyx.

cimport cython
from kadence._native.builder cimport RecordEncoder

cdef extern from "murmur2.h" nogil:
    unsigned int kd_murmur2(const unsigned char* data, Py_ssize_t size)

cdef extern from "shared.h":
    ctypedef int kd_shared_int
    ctypedef long long kd_shared_number

cdef extern from "wall.h" nogil:
    long long kd_wall_ms()

cdef extern from "pid.h" nogil:
    long kd_process()

cdef extern from *:
    """
    /* The cycle collector does not look at it: with a callback for each record, or futures in a list, it would go
     * through all of them again and again. A batch that is decided gives up what could be a cycle. */
    static inline PyObject *kd_new(PyObject *type, PyObject *nothing) {
        PyObject *made = ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, nothing, NULL);
        if (made != NULL) PyObject_GC_UnTrack(made);
        return made;
    }
    """
    object kd_new(object type, object nothing)

cdef extern from *:
    """
    /* Without a call of __init__. */
    static inline PyObject *kd_made(PyObject *type, PyObject *nothing) {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, nothing, NULL);
    }
    """
    object kd_made(object type, object nothing)

cdef class ProduceRequestResult:
    cdef readonly object gate
    cdef readonly bint done
    cdef public bint is_written
    cdef public int outstanding
    cdef public str topic
    cdef public object partition
    cdef public object expedite
    cdef public object asked
    cdef public object direct
    cdef public list _parts
    cdef public object _watchers
    cdef public object _waiters
    cdef public object _unnotified
    cdef list _callbacks
    cdef object _is_mine
    cdef long long _base_offset
    cdef long long _log_append_time
    cdef object begin(self, str topic, object partition, object gate, object is_mine, object unnotified)
    cdef bint is_watched(self)
    cdef bint write_alone(self, long long base_offset, long long log_append_time)

cdef class FutureRecordMetadata:
    cdef readonly object delivery
    cdef readonly Py_ssize_t index
    cdef readonly long long timestamp

cdef class OpenBatch:
    cdef public RecordEncoder builder
    cdef public object delivery
    cdef public long long size
    cdef public long long limit
    cdef public bint is_open
    cdef public bint lingers
    cdef public object tp
    cdef public long long created
    cdef public long long deadline
    cdef public long long not_before
    cdef public int first
    cdef public int attempts
    cdef public long long producer_id
    cdef public int epoch
    cdef public int base_sequence
    cdef public object encoded
    cdef public object last_error
    cdef object begin(
        self, object tp, long long created, long long deadline, RecordEncoder builder, object delivery, long long limit
    )

cdef class Sticky:
    cdef public kd_shared_int current
    cdef public kd_shared_number used
    cdef public long long switch_bytes

cdef class TopicInfo:
    cdef readonly tuple infos
    cdef readonly tuple partitions
    cdef readonly tuple available
    cdef readonly Sticky sticky
    cdef readonly list open_batches
    cdef readonly int count

cdef class FastAppender:
    cdef readonly object gate
    cdef readonly dict places
    cdef readonly long long batch_size
    cdef readonly long long buffer_memory
    cdef readonly long long largest
    cdef public long long used_bytes
    cdef public long long claimed_bytes
    cdef public bint is_usable
    cdef public bint has_news
    cdef public object now_ms
    cdef public object direct
    cdef public object expedite
    cdef public set incomplete
    cdef public set unnotified
    cdef public dict waiting
    cdef public dict _limits
    cdef public set _busy
    cdef long long delivery_timeout_ms
    cdef long process
    cdef object delivery_type
    cdef object builder_type
    cdef object batch_type
    cdef object acquire
    cdef object release
    cdef object check_entry
    cdef object is_mine
    cdef readonly object future_type
    cdef readonly object wall_ms
    cdef readonly bint is_system
    cdef object holds(self, OpenBatch batch)
    cdef object lets_go(self, OpenBatch batch)
    cdef OpenBatch make(self, object tp, long long now)
    cdef object place(
        self, object topic, object value, object key, object partition, object timestamp, object headers, bint is_anywhere
    )
    cdef object add(
        self, TopicInfo place, long long number, long long when, unsigned char* key, Py_ssize_t key_size,
        unsigned char* value, Py_ssize_t value_size, long long size, object key_object, object value_object,
        object headers, FutureRecordMetadata future
    )
    cdef object add_first(
        self, TopicInfo place, long long number, long long when, unsigned char* key, Py_ssize_t key_size,
        unsigned char* value, Py_ssize_t value_size, long long size, object key_object, object value_object,
        object headers, FutureRecordMetadata future
    )

cdef class ShortWay:
    cdef readonly FastAppender appender
    cdef object key_serializer
    cdef object value_serializer
    cdef object key_method
    cdef object value_method
    cdef bint shows_headers
    cdef object choose
    cdef readonly bint is_plain
    cdef readonly dict held
    cdef public bint is_serializing
    cdef object looked_at
    cdef object not_taken
    cdef object loop
    cdef object running
    cdef object check
    cdef object made(self, str field, object serializer, object method, str topic, object headers, object data)

cdef bint is_alike(object data) noexcept
cdef bint is_ready(object data) noexcept
cdef long long size_of_plain(object headers) except -2
