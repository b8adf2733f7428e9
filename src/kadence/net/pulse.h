/* The pulse (G3): one thread for a process that sends heartbeats when the network threads are kept from it.
 *
 * A network thread leaves it a beat: a heartbeat ready as bytes, the time by which it will have sent that itself, and
 * the time from which nobody may send it. Only when the first time passes does the pulse send the bytes on the group's
 * connection, and again after each interval. It never needs the interpreter, so nobody who holds that can stop it.
 *
 * Locks are taken in this order: the pulse's, then one beat's gate. The pulse's guards the list of beats and their
 * times, the gate everything else of a beat.
 */
#ifndef KADENCE_PULSE_H
#define KADENCE_PULSE_H

#include <signal.h>
#include <stdint.h>
#include <time.h>

#include "session.h"

#define KD_CORRELATION_AT 8 /* in a frame: length, API key and version come first */
#define KD_FIRST_ID (-2) /* as kadence.connection.connection has it; then downwards */
#define KD_AGAIN_MS 100 /* after so long a write is repeated that could not be made */
#define KD_NEVER INT64_MAX

typedef struct kd_beat {
    kd_gate gate;
    int fd; /* -1: closed */
    void *ssl;
    unsigned char *frame; /* NULL: nothing to send */
    size_t length;
    int32_t next_id;
    int64_t sent_at; /* the last time; -1: never */
    int64_t due, until, interval; /* ms of CLOCK_MONOTONIC */
    int64_t looks_at; /* when the pulse looks at it: when it is due, or sooner while the rest of a frame is to go out */
    unsigned process; /* beats of the process before a fork are nobody's */
    struct kd_beat *next;
} kd_beat;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    kd_beat *beats;
    int64_t wakes_at; /* when the thread will look again */
    unsigned process;
    int is_ready, is_running, is_over;
} kd_pulse = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t kd_pulse_now(void) {
    struct timespec spec;
    clock_gettime(CLOCK_MONOTONIC, &spec);
    return (int64_t)spec.tv_sec * 1000 + spec.tv_nsec / 1000000;
}

/* The pulse's lock is held from here on, but where it says otherwise. */

static void kd_pulse_wait(int64_t until, int64_t now) {
    struct timespec spec;
    if (until == KD_NEVER) {
        pthread_cond_wait(&kd_pulse.changed, &kd_pulse.lock);
        return;
    }
#ifdef __APPLE__
    spec.tv_sec = (until - now) / 1000;
    spec.tv_nsec = (until - now) % 1000 * 1000000;
    pthread_cond_timedwait_relative_np(&kd_pulse.changed, &kd_pulse.lock, &spec);
#else
    (void)now;
    spec.tv_sec = until / 1000;
    spec.tv_nsec = until % 1000 * 1000000;
    pthread_cond_timedwait(&kd_pulse.changed, &kd_pulse.lock, &spec);
#endif
}

/* Send the frame. 1: it has begun to go out; 0: not now; -1: the connection is broken. The gate is held. */
static int kd_beat_send(kd_beat *beat, int64_t now) {
    uint32_t id = (uint32_t)beat->next_id;
    unsigned char *p = beat->frame + KD_CORRELATION_AT;
    ssize_t result;
    p[0] = (unsigned char)(id >> 24);
    p[1] = (unsigned char)(id >> 16);
    p[2] = (unsigned char)(id >> 8);
    p[3] = (unsigned char)id;
    result = kd_write_unasked(beat->fd, beat->ssl, beat->frame, beat->length);
    if (result < 0) {
        if (result != KD_NOT_NOW) return -1;
        if (beat->ssl == NULL) return 0;
        /* OpenSSL has the frame although it could not write it, and wants the same bytes again. */
        result = 0;
    }
    if ((size_t)result < beat->length) {
        size_t left = beat->length - (size_t)result;
        beat->gate.rest = malloc(left);
        if (beat->gate.rest == NULL) {
            beat->fd = -1; /* half a frame is out: the network thread's patience ends the connection */
            return -1;
        }
        memcpy(beat->gate.rest, beat->frame + result, left);
        beat->gate.rest_length = left;
    }
    beat->next_id = beat->next_id == INT32_MIN ? KD_FIRST_ID : beat->next_id - 1;
    beat->gate.unsettled++;
    beat->sent_at = now;
    return 1;
}

static void kd_beat_fire(kd_beat *beat, int64_t now) {
    pthread_mutex_lock(&beat->gate.lock);
    beat->looks_at = now + KD_AGAIN_MS;
    if (beat->fd < 0 || beat->frame == NULL) {
        beat->looks_at = KD_NEVER;
    } else if (beat->gate.is_shut || beat->gate.is_inside) {
        /* The network thread was stopped in the middle of something. It cannot be helped here, only waited for. */
    } else if (beat->gate.rest != NULL) {
        if (kd_finish(beat->fd, beat->ssl, &beat->gate) == 0) beat->looks_at = beat->due;
    } else if (now >= beat->until) {
        beat->looks_at = KD_NEVER;
    } else if (now < beat->due) {
        beat->looks_at = beat->due;
    } else {
        int begun = kd_beat_send(beat, now);
        if (begun < 0) beat->looks_at = KD_NEVER;
        if (begun > 0) {
            beat->due = now + beat->interval;
            if (beat->gate.rest == NULL) beat->looks_at = beat->due;
        }
    }
    pthread_mutex_unlock(&beat->gate.lock);
}

/* The thread. */
static void *kd_pulse_run(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&kd_pulse.lock);
    for (;;) {
        int64_t now = kd_pulse_now(), first = KD_NEVER;
        for (kd_beat *beat = kd_pulse.beats; beat != NULL && !kd_pulse.is_over; beat = beat->next) {
            if (beat->looks_at <= now) kd_beat_fire(beat, now);
            if (beat->looks_at < first) first = beat->looks_at;
        }
        kd_pulse.wakes_at = first;
        kd_pulse_wait(first, now);
    }
    return NULL;
}

/* In the child there is no thread, and what it held is held for ever: all begins anew. */
static void kd_pulse_forked(void) {
    pthread_condattr_t monotonic;
    pthread_mutex_init(&kd_pulse.lock, NULL);
    pthread_condattr_init(&monotonic);
#ifndef __APPLE__
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&kd_pulse.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    kd_pulse.beats = NULL;
    kd_pulse.is_running = 0;
    kd_pulse.process++;
}

/* Signals are for threads of the interpreter. 0, or an error number. */
static int kd_pulse_start(void) {
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, before;
    int failed;
    if (kd_pulse.is_running) return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&thread, &detached, kd_pulse_run, NULL);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return failed;
    kd_pulse.is_running = 1;
#ifdef __linux__
    pthread_setname_np(thread, "kadence-pulse");
#endif
    return 0;
}

/* For the network threads; no lock is held. */

static void kd_beat_open(kd_beat *beat, int fd, void *ssl) {
    memset(beat, 0, sizeof *beat);
    pthread_mutex_init(&beat->gate.lock, NULL);
    beat->fd = fd;
    beat->ssl = ssl;
    beat->next_id = KD_FIRST_ID;
    beat->sent_at = -1;
    beat->due = beat->looks_at = KD_NEVER;
    pthread_mutex_lock(&kd_pulse.lock);
    if (!kd_pulse.is_ready) {
        /* The condition variable needs a clock that a static one cannot name. */
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
#ifndef __APPLE__
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
#endif
        pthread_cond_init(&kd_pulse.changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        pthread_atfork(NULL, NULL, kd_pulse_forked);
        kd_pulse.is_ready = 1;
    }
    beat->process = kd_pulse.process;
    beat->next = kd_pulse.beats;
    kd_pulse.beats = beat;
    pthread_mutex_unlock(&kd_pulse.lock);
}

/* Send `frame` from `due` on, unless told otherwise before. 0; KD_UNSETTLED: count first; or an error number. */
static int kd_beat_arm(
    kd_beat *beat, const unsigned char *frame, size_t length, int64_t due, int64_t until, int64_t interval
) {
    unsigned char *mine = malloc(length);
    unsigned char *old;
    int failed = 0;
    if (mine == NULL) return ENOMEM;
    memcpy(mine, frame, length);
    if (beat->process != kd_pulse.process) {
        free(mine);
        return 0;
    }
    pthread_mutex_lock(&kd_pulse.lock);
    pthread_mutex_lock(&beat->gate.lock);
    if (beat->gate.unsettled > 0) {
        pthread_mutex_unlock(&beat->gate.lock);
        pthread_mutex_unlock(&kd_pulse.lock);
        free(mine);
        return KD_UNSETTLED;
    }
    old = beat->frame;
    beat->frame = mine;
    beat->length = length;
    /* What has begun to go out does not wait until the next is due. */
    if (beat->gate.rest == NULL || due < beat->looks_at) beat->looks_at = due;
    pthread_mutex_unlock(&beat->gate.lock);
    beat->due = due;
    beat->until = until;
    beat->interval = interval;
    failed = kd_pulse_start();
    if (due < kd_pulse.wakes_at) {
        kd_pulse.wakes_at = due;
        pthread_cond_signal(&kd_pulse.changed);
    }
    pthread_mutex_unlock(&kd_pulse.lock);
    free(old);
    return failed;
}

/* Send nothing more. What has begun to go out is finished all the same. */
static void kd_beat_disarm(kd_beat *beat) {
    if (beat->process != kd_pulse.process) return;
    pthread_mutex_lock(&kd_pulse.lock);
    beat->until = 0;
    if (beat->gate.rest == NULL) beat->looks_at = KD_NEVER;
    pthread_mutex_unlock(&kd_pulse.lock);
}

/* How many frames were sent since the last call. */
static int kd_beat_settle(kd_beat *beat) {
    int count;
    if (beat->process != kd_pulse.process) return 0;
    pthread_mutex_lock(&beat->gate.lock);
    count = beat->gate.unsettled;
    beat->gate.unsettled = 0;
    pthread_mutex_unlock(&beat->gate.lock);
    return count;
}

/* Touch the connection never again. Before its descriptor is closed. */
static void kd_beat_close(kd_beat *beat) {
    if (beat->process == kd_pulse.process) {
        pthread_mutex_lock(&kd_pulse.lock);
        for (kd_beat **at = &kd_pulse.beats; *at != NULL; at = &(*at)->next) {
            if (*at == beat) {
                *at = beat->next;
                break;
            }
        }
        pthread_mutex_unlock(&kd_pulse.lock);
    }
    beat->fd = -1;
}

static void kd_beat_free(kd_beat *beat) {
    kd_beat_close(beat);
    free(beat->frame);
    free(beat->gate.rest);
}

/* The interpreter ends: OpenSSL may be taken down under the thread. */
static void kd_pulse_end(void) {
    pthread_mutex_lock(&kd_pulse.lock);
    kd_pulse.is_over = 1;
    pthread_mutex_unlock(&kd_pulse.lock);
}

#endif
