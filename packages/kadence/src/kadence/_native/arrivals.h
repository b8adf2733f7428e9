/* Answers that arrive while the network thread waits, and the flag that wakes their reader, both without the
 * interpreter.
 *
 * The network thread puts answers in while it waits without the GIL. A thread with the GIL takes them out. So each end of
 * the ring has one thread at a time. A reader sleeps on the flag by futex, which a signal interrupts; an event loop watches
 * the flag's descriptor. Only Linux has this.
 */
#ifndef KADENCE_ARRIVALS_H
#define KADENCE_ARRIVALS_H

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's numbers, as in linux/futex.h, which Alpine does not install with the compiler. */
#define KD_FUTEX_WAIT_PRIVATE 128
#define KD_FUTEX_WAKE_PRIVATE 129
#endif

#define KD_ARRIVALS 64 /* a power of two */

typedef struct {
    uint32_t up, waiting;
    int fd; /* becomes readable when it is raised; below 0: a thread sleeps on it */
} kd_flag;

/* One answer: its frame without the length, and which of the repeated fetches it answered. */
typedef struct {
    void *owner;
    unsigned char *frame;
    size_t length;
    int number;
} kd_arrival;

typedef struct {
    kd_arrival slots[KD_ARRIVALS];
    uint32_t put, taken;
    kd_flag flag;
} kd_arrivals;

#if defined(__linux__) && !defined(Py_GIL_DISABLED)
#define KD_HAS_ARRIVALS 1

/* Set whether the network thread raises the flag. That thread may read this at any moment, without the interpreter. */
static void kd_flag_await(kd_flag *flag, int waiting) {
    __atomic_store_n(&flag->waiting, (uint32_t)waiting, __ATOMIC_SEQ_CST);
}

/* Lower the flag, and let it be raised from now on. The caller looks afterwards, and so sees earlier arrivals. */
static void kd_flag_enter(kd_flag *flag) {
    __atomic_store_n(&flag->up, 0, __ATOMIC_SEQ_CST);
    kd_flag_await(flag, 1);
}

static void kd_flag_raise(kd_flag *flag) {
    static const uint64_t one = 1;
    int fd;
    if (__atomic_exchange_n(&flag->up, 1, __ATOMIC_SEQ_CST)) return;
    fd = __atomic_load_n(&flag->fd, __ATOMIC_SEQ_CST);
    if (fd < 0) {
        syscall(SYS_futex, &flag->up, KD_FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    } else if (write(fd, &one, sizeof one) < 0) {
        /* The descriptor's counter is full, so it is readable already. */
    }
}

/* The descriptor that becomes readable when the flag is raised; below 0: none. */
static void kd_flag_show(kd_flag *flag, int fd) { __atomic_store_n(&flag->fd, fd, __ATOMIC_SEQ_CST); }

/* Lower the flag, whose descriptor was readable. The descriptor is emptied first: a thread that raises the flag in between
 * need not write again, because the caller looks afterwards. */
static void kd_flag_seen(kd_flag *flag) {
    uint64_t count;
    if (read(flag->fd, &count, sizeof count) < 0) {
        /* Another thread has emptied it. */
    }
    __atomic_store_n(&flag->up, 0, __ATOMIC_SEQ_CST);
}

/* Sleep until the flag is up, at most so long (ns; below 0: for ever), and lower it. 1: it was up; 0: the time is over;
 * -1: a signal. */
static int kd_flag_wait(kd_flag *flag, int64_t timeout_ns) {
    struct timespec spec = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
    if (__atomic_exchange_n(&flag->up, 0, __ATOMIC_SEQ_CST)) return 1;
    if (syscall(SYS_futex, &flag->up, KD_FUTEX_WAIT_PRIVATE, 0, timeout_ns < 0 ? NULL : &spec, NULL, 0) < 0) {
        if (errno == EINTR) return -1;
        if (errno == ETIMEDOUT) return 0;
    }
    return (int)__atomic_exchange_n(&flag->up, 0, __ATOMIC_SEQ_CST);
}
#else
#define KD_HAS_ARRIVALS 0

static void kd_flag_await(kd_flag *flag, int waiting) { flag->waiting = (uint32_t)waiting; }

static void kd_flag_enter(kd_flag *flag) {
    flag->up = 0;
    kd_flag_await(flag, 1);
}

static void kd_flag_raise(kd_flag *flag) { flag->up = 1; }

static void kd_flag_show(kd_flag *flag, int fd) { flag->fd = fd; }

static void kd_flag_seen(kd_flag *flag) { flag->up = 0; }

static int kd_flag_wait(kd_flag *flag, int64_t timeout_ns) {
    (void)flag;
    (void)timeout_ns;
    return 0;
}
#endif

/* The slot for the next answer; NULL: there is no room, or no reader. */
static kd_arrival *kd_arrivals_room(kd_arrivals *arrivals) {
    if (arrivals == NULL || !KD_HAS_ARRIVALS) return NULL;
    if (arrivals->put - __atomic_load_n(&arrivals->taken, __ATOMIC_ACQUIRE) >= KD_ARRIVALS) return NULL;
    return &arrivals->slots[arrivals->put % KD_ARRIVALS];
}

/* Publish the slot that was written, and wake the reader. */
static void kd_arrivals_put(kd_arrivals *arrivals) {
    __atomic_store_n(&arrivals->put, arrivals->put + 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&arrivals->flag.waiting, __ATOMIC_SEQ_CST)) kd_flag_raise(&arrivals->flag);
}

/* The oldest answer; NULL: there is none. Its memory belongs to the caller after `kd_arrivals_taken`. */
static kd_arrival *kd_arrivals_first(kd_arrivals *arrivals) {
    if (arrivals->taken == __atomic_load_n(&arrivals->put, __ATOMIC_SEQ_CST)) return NULL;
    return &arrivals->slots[arrivals->taken % KD_ARRIVALS];
}

static void kd_arrivals_taken(kd_arrivals *arrivals) {
    __atomic_store_n(&arrivals->taken, arrivals->taken + 1, __ATOMIC_RELEASE);
}

#endif
