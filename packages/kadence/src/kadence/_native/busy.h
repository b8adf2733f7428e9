/* A flag that one thread at a time may have up. With the interpreter's lock that takes no instruction of its own. */
#ifndef KADENCE_BUSY_H
#define KADENCE_BUSY_H

#include <Python.h>

/* Put it up; whether it was up before. */
static inline int kd_take(int *flag) {
#ifdef Py_GIL_DISABLED
    return _Py_atomic_exchange_int(flag, 1);
#else
    int was = *flag;
    *flag = 1;
    return was;
#endif
}

static inline void kd_let_go(int *flag) {
#ifdef Py_GIL_DISABLED
    _Py_atomic_store_int_release(flag, 0);
#else
    *flag = 0;
#endif
}

#endif
