# The declarations of buffers.pyx for modules that gather columns.

from libc.string cimport memcpy

cdef extern from "pages.h" nogil:
    size_t kd_whole_pages(size_t room)
    void* kd_grow(void* data, size_t used, size_t room)

cdef struct ByteBuffer:
    unsigned char* data
    Py_ssize_t size
    Py_ssize_t room

cdef struct Strings:
    ByteBuffer ends
    ByteBuffer data
    ByteBuffer nulls
    Py_ssize_t null_count

cdef class Block:
    cdef unsigned char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef bint is_writable

cdef bint grow(ByteBuffer* byte_buffer, Py_ssize_t more) noexcept nogil
cdef void give_up(unsigned char* data, Py_ssize_t room) noexcept nogil
cdef bint mark_null(ByteBuffer* byte_buffer, Py_ssize_t row) noexcept nogil
cdef void free_strings(Strings* strings) noexcept nogil
cdef Block block(ByteBuffer* byte_buffer)
cdef object validity(ByteBuffer* nulls, Py_ssize_t rows)
cdef object column(Strings* strings, Py_ssize_t rows)

cdef inline bint make_room(ByteBuffer* byte_buffer, Py_ssize_t more) noexcept nogil:
    """Make room for more bytes; False without memory."""
    if byte_buffer.room - byte_buffer.size >= more:
        return True
    return grow(byte_buffer, more)

cdef inline void put_int(ByteBuffer* byte_buffer, Py_ssize_t number) noexcept nogil:
    """Append an int32; room was made before."""
    (<int*> (byte_buffer.data + byte_buffer.size))[0] = <int> number
    byte_buffer.size += 4

cdef inline bint add_string(Strings* strings, Py_ssize_t row, unsigned char* data, Py_ssize_t size) noexcept nogil:
    """Append one byte string, null when its size is negative; room for its end was made before."""
    if size > 0:
        if not make_room(&strings.data, size):
            return False
        memcpy(strings.data.data + strings.data.size, data, size)
        strings.data.size += size
    elif size < 0:
        if not mark_null(&strings.nulls, row):
            return False
        strings.null_count += 1
    put_int(&strings.ends, strings.data.size)
    return True
