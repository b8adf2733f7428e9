/* The native thread (G3): one thread for a process that sends heartbeats when the network threads are kept from it.
 *
 * A network thread leaves it a heartbeat as bytes, with two times. By the first one the network thread will have sent
 * the heartbeat itself. From the second one on neither thread may send it. When the first time passes, the native thread
 * sends the bytes on the group's connection, and again after each interval. It never needs the interpreter, so a thread
 * that holds the interpreter cannot stop it.
 *
 * Locks are taken in this order: the native thread's, then one heartbeat's gate. The native thread's guards the list of
 * heartbeats and their times, the gate everything else of a heartbeat.
 */
#ifndef KADENCE_NATIVE_HEARTBEAT_H
#define KADENCE_NATIVE_HEARTBEAT_H

#include <signal.h>
#include <stdint.h>
#include <time.h>

#include "session.h"

#define KD_CORRELATION_AT 8 /* in a frame: length, API key and version come first */
#define KD_FIRST_ID (-2) /* as kadence.connection.connection has it; then downwards */
#define KD_AGAIN_MS 100 /* after this time a write that was not possible is tried again */
#define KD_NEVER INT64_MAX

typedef struct kd_heartbeat {
    kd_gate gate;
    int fd; /* -1: closed */
    void *ssl;
    unsigned char *frame; /* NULL: nothing to send */
    size_t length;
    size_t counter_at; /* in the frame: an int32 that goes up by one with each time it is sent (a session's epoch); 0: none */
    int32_t next_id;
    int64_t sent_at; /* the last time; -1: never */
    int64_t due, until, interval; /* ms of CLOCK_MONOTONIC */
    int64_t looks_at; /* when the native thread looks at it: when it is due, or sooner while the rest of a frame is to go out */
    unsigned process; /* heartbeats of the process before a fork are void */
    struct kd_heartbeat *next;
} kd_heartbeat;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    kd_heartbeat *heartbeats;
    int64_t wakes_at; /* when the thread will look again */
    unsigned process;
    int is_ready, is_running, is_over;
} kd_heartbeat_thread = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t kd_heartbeat_thread_now(void) {
    struct timespec spec;
    clock_gettime(CLOCK_MONOTONIC, &spec);
    return (int64_t)spec.tv_sec * 1000 + spec.tv_nsec / 1000000;
}

/* The functions below need the native thread's lock, unless their comments say otherwise. */

static void kd_heartbeat_thread_wait(int64_t until, int64_t now) {
    struct timespec spec;
    if (until == KD_NEVER) {
        pthread_cond_wait(&kd_heartbeat_thread.changed, &kd_heartbeat_thread.lock);
        return;
    }
#ifdef __APPLE__
    spec.tv_sec = (until - now) / 1000;
    spec.tv_nsec = (until - now) % 1000 * 1000000;
    pthread_cond_timedwait_relative_np(&kd_heartbeat_thread.changed, &kd_heartbeat_thread.lock, &spec);
#else
    (void)now;
    spec.tv_sec = until / 1000;
    spec.tv_nsec = until % 1000 * 1000000;
    pthread_cond_timedwait(&kd_heartbeat_thread.changed, &kd_heartbeat_thread.lock, &spec);
#endif
}

/* The next frame is another one of the same session: after the largest epoch comes 1. */
static void kd_heartbeat_count_up(kd_heartbeat *heartbeat) {
    unsigned char *p = heartbeat->frame + heartbeat->counter_at;
    uint32_t number = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    number = number == INT32_MAX ? 1 : number + 1;
    p[0] = (unsigned char)(number >> 24);
    p[1] = (unsigned char)(number >> 16);
    p[2] = (unsigned char)(number >> 8);
    p[3] = (unsigned char)number;
}

/* Send the frame. 1: it has begun to go out; 0: not now; -1: the connection is broken. The gate is held. */
static int kd_heartbeat_send(kd_heartbeat *heartbeat, int64_t now) {
    uint32_t id = (uint32_t)heartbeat->next_id;
    unsigned char *p = heartbeat->frame + KD_CORRELATION_AT;
    ssize_t result;
    p[0] = (unsigned char)(id >> 24);
    p[1] = (unsigned char)(id >> 16);
    p[2] = (unsigned char)(id >> 8);
    p[3] = (unsigned char)id;
    result = kd_write_unasked(heartbeat->fd, heartbeat->ssl, heartbeat->frame, heartbeat->length);
    if (result < 0) {
        if (result != KD_NOT_NOW) return -1;
        if (heartbeat->ssl == NULL) return 0;
        /* OpenSSL has the frame although it could not write it, and wants the same bytes again. */
        result = 0;
    }
    if ((size_t)result < heartbeat->length) {
        size_t left = heartbeat->length - (size_t)result;
        heartbeat->gate.rest = malloc(left);
        if (heartbeat->gate.rest == NULL) {
            heartbeat->fd = -1; /* a part of the frame is out: the network thread closes the connection after a timeout */
            return -1;
        }
        memcpy(heartbeat->gate.rest, heartbeat->frame + result, left);
        heartbeat->gate.rest_length = left;
    }
    if (heartbeat->counter_at) kd_heartbeat_count_up(heartbeat);
    heartbeat->next_id = heartbeat->next_id == INT32_MIN ? KD_FIRST_ID : heartbeat->next_id - 1;
    heartbeat->gate.native_sent++;
    heartbeat->sent_at = now;
    return 1;
}

static void kd_heartbeat_fire(kd_heartbeat *heartbeat, int64_t now) {
    pthread_mutex_lock(&heartbeat->gate.lock);
    heartbeat->looks_at = now + KD_AGAIN_MS;
    if (heartbeat->fd < 0 || heartbeat->frame == NULL) {
        heartbeat->looks_at = KD_NEVER;
    } else if (heartbeat->gate.is_shut || heartbeat->gate.is_inside) {
        /* The network thread was stopped in the middle of a write. The native thread can only wait for it. */
    } else if (heartbeat->gate.rest != NULL) {
        if (kd_finish(heartbeat->fd, heartbeat->ssl, &heartbeat->gate) == 0) heartbeat->looks_at = heartbeat->due;
    } else if (now >= heartbeat->until) {
        heartbeat->looks_at = KD_NEVER;
    } else if (now < heartbeat->due) {
        heartbeat->looks_at = heartbeat->due;
    } else {
        int begun = kd_heartbeat_send(heartbeat, now);
        if (begun < 0) heartbeat->looks_at = KD_NEVER;
        if (begun > 0) {
            heartbeat->due = now + heartbeat->interval;
            if (heartbeat->gate.rest == NULL) heartbeat->looks_at = heartbeat->due;
        }
    }
    pthread_mutex_unlock(&heartbeat->gate.lock);
}

/* The thread. */
static void *kd_heartbeat_thread_run(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&kd_heartbeat_thread.lock);
    for (;;) {
        int64_t now = kd_heartbeat_thread_now(), first = KD_NEVER;
        for (kd_heartbeat *heartbeat = kd_heartbeat_thread.heartbeats; heartbeat != NULL && !kd_heartbeat_thread.is_over; heartbeat = heartbeat->next) {
            if (heartbeat->looks_at <= now) kd_heartbeat_fire(heartbeat, now);
            if (heartbeat->looks_at < first) first = heartbeat->looks_at;
        }
        kd_heartbeat_thread.wakes_at = first;
        kd_heartbeat_thread_wait(first, now);
    }
    return NULL;
}

/* A forked child has no native thread, and locks may stay held in it for ever: initialise everything again. */
static void kd_heartbeat_thread_forked(void) {
    pthread_condattr_t monotonic;
    pthread_mutex_init(&kd_heartbeat_thread.lock, NULL);
    pthread_condattr_init(&monotonic);
#ifndef __APPLE__
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&kd_heartbeat_thread.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    kd_heartbeat_thread.heartbeats = NULL;
    kd_heartbeat_thread.is_running = 0;
    kd_heartbeat_thread.process++;
}

/* Signals are for threads of the interpreter. 0, or an error number. */
static int kd_heartbeat_thread_start(void) {
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, before;
    int failed;
    if (kd_heartbeat_thread.is_running) return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&thread, &detached, kd_heartbeat_thread_run, NULL);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return failed;
    kd_heartbeat_thread.is_running = 1;
#ifdef __linux__
    pthread_setname_np(thread, "kadence-native");
#endif
    return 0;
}

/* For the network threads; no lock is held. */

static void kd_heartbeat_open(kd_heartbeat *heartbeat, int fd, void *ssl) {
    memset(heartbeat, 0, sizeof *heartbeat);
    pthread_mutex_init(&heartbeat->gate.lock, NULL);
    heartbeat->fd = fd;
    heartbeat->ssl = ssl;
    heartbeat->next_id = KD_FIRST_ID;
    heartbeat->sent_at = -1;
    heartbeat->due = heartbeat->looks_at = KD_NEVER;
    pthread_mutex_lock(&kd_heartbeat_thread.lock);
    if (!kd_heartbeat_thread.is_ready) {
        /* The condition variable needs a clock that a static initialiser cannot choose. */
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
#ifndef __APPLE__
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
#endif
        pthread_cond_init(&kd_heartbeat_thread.changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        pthread_atfork(NULL, NULL, kd_heartbeat_thread_forked);
        kd_heartbeat_thread.is_ready = 1;
    }
    heartbeat->process = kd_heartbeat_thread.process;
    heartbeat->next = kd_heartbeat_thread.heartbeats;
    kd_heartbeat_thread.heartbeats = heartbeat;
    pthread_mutex_unlock(&kd_heartbeat_thread.lock);
}

/* Send `frame` from `due` on, unless disarmed before. 0; KD_NATIVE_SENT: count first; or an error number. */
static int kd_heartbeat_arm(
    kd_heartbeat *heartbeat, const unsigned char *frame, size_t length, size_t counter_at, int64_t due, int64_t until,
    int64_t interval
) {
    unsigned char *mine = malloc(length);
    unsigned char *old;
    int failed = 0;
    if (mine == NULL) return ENOMEM;
    memcpy(mine, frame, length);
    if (heartbeat->process != kd_heartbeat_thread.process) {
        free(mine);
        return 0;
    }
    pthread_mutex_lock(&kd_heartbeat_thread.lock);
    pthread_mutex_lock(&heartbeat->gate.lock);
    if (heartbeat->gate.native_sent > 0) {
        pthread_mutex_unlock(&heartbeat->gate.lock);
        pthread_mutex_unlock(&kd_heartbeat_thread.lock);
        free(mine);
        return KD_NATIVE_SENT;
    }
    old = heartbeat->frame;
    heartbeat->frame = mine;
    heartbeat->length = length;
    heartbeat->counter_at = counter_at;
    /* A frame that has begun to go out does not wait until the next is due. */
    if (heartbeat->gate.rest == NULL || due < heartbeat->looks_at) heartbeat->looks_at = due;
    pthread_mutex_unlock(&heartbeat->gate.lock);
    heartbeat->due = due;
    heartbeat->until = until;
    heartbeat->interval = interval;
    failed = kd_heartbeat_thread_start();
    if (due < kd_heartbeat_thread.wakes_at) {
        kd_heartbeat_thread.wakes_at = due;
        pthread_cond_signal(&kd_heartbeat_thread.changed);
    }
    pthread_mutex_unlock(&kd_heartbeat_thread.lock);
    free(old);
    return failed;
}

/* Send nothing more. A frame that has begun to go out is finished all the same. */
static void kd_heartbeat_disarm(kd_heartbeat *heartbeat) {
    if (heartbeat->process != kd_heartbeat_thread.process) return;
    pthread_mutex_lock(&kd_heartbeat_thread.lock);
    heartbeat->until = 0;
    if (heartbeat->gate.rest == NULL) heartbeat->looks_at = KD_NEVER;
    pthread_mutex_unlock(&kd_heartbeat_thread.lock);
}

/* The time at which it was sent last; -1: never. */
static int64_t kd_heartbeat_sent_at(kd_heartbeat *heartbeat) {
    int64_t sent_at;
    if (heartbeat->process != kd_heartbeat_thread.process) return heartbeat->sent_at;
    pthread_mutex_lock(&heartbeat->gate.lock);
    sent_at = heartbeat->sent_at;
    pthread_mutex_unlock(&heartbeat->gate.lock);
    return sent_at;
}

/* The number of frames that were sent since the last call. */
static int kd_heartbeat_count_sent(kd_heartbeat *heartbeat) {
    int count;
    if (heartbeat->process != kd_heartbeat_thread.process) return 0;
    pthread_mutex_lock(&heartbeat->gate.lock);
    count = heartbeat->gate.native_sent;
    heartbeat->gate.native_sent = 0;
    pthread_mutex_unlock(&heartbeat->gate.lock);
    return count;
}

/* Never touch the connection again. Call this before its descriptor is closed. */
static void kd_heartbeat_close(kd_heartbeat *heartbeat) {
    if (heartbeat->process == kd_heartbeat_thread.process) {
        pthread_mutex_lock(&kd_heartbeat_thread.lock);
        for (kd_heartbeat **at = &kd_heartbeat_thread.heartbeats; *at != NULL; at = &(*at)->next) {
            if (*at == heartbeat) {
                *at = heartbeat->next;
                break;
            }
        }
        pthread_mutex_unlock(&kd_heartbeat_thread.lock);
    }
    heartbeat->fd = -1;
}

static void kd_heartbeat_free(kd_heartbeat *heartbeat) {
    kd_heartbeat_close(heartbeat);
    free(heartbeat->frame);
    free(heartbeat->gate.rest);
}

/* The interpreter ends: OpenSSL may be taken down under the thread. */
static void kd_heartbeat_thread_end(void) {
    pthread_mutex_lock(&kd_heartbeat_thread.lock);
    kd_heartbeat_thread.is_over = 1;
    pthread_mutex_unlock(&kd_heartbeat_thread.lock);
}

#endif
