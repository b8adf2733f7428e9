/* Numbers that one thread writes while others may look at them.
 *
 * Without the interpreter's lock each look and each write is atomic. With it they are plain numbers.
 */
#ifndef KADENCE_SHARED_H
#define KADENCE_SHARED_H

#include <Python.h>

#if !defined(Py_GIL_DISABLED)
#define KD_SHARED(type) type
#elif defined(_MSC_VER)
#define KD_SHARED(type) volatile type
#else
#define KD_SHARED(type) _Atomic(type)
#endif

typedef KD_SHARED(Py_ssize_t) kd_shared_size;
typedef KD_SHARED(long long) kd_shared_number;
typedef KD_SHARED(unsigned long) kd_shared_thread;
typedef KD_SHARED(int) kd_shared_int;
typedef KD_SHARED(int) kd_shared_bool;

#endif
