/* A request that the application's thread writes by itself, and whose plain answer wakes that thread.
 *
 * Such a call costs neither the network thread nor a hand-over of the interpreter. It is possible while the network
 * thread waits in kd_wait (the way is open), for requests whose plain answer is known byte for byte, but for one free
 * part, or at least in its beginning; then all of it is kept for the thread. Anything else that comes is for Python, as
 * are a plain answer that no thread waits for, and a request without an answer when the network thread comes back: it
 * takes that over as one of its own (it is left to it), with everything that may become of requests.
 *
 * The lock guards all of it. It is held for a copy, a comparison, or one write or wake-up that cannot block. The gate of
 * the session is taken under it, and nothing else.
 */
#ifndef KADENCE_DIRECT_H
#define KADENCE_DIRECT_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "arrivals.h"
#include "session.h"

#define KD_DIRECT_MOST 512 /* bytes of an answer, with its length */
#define KD_DIRECT_ID_AT 8  /* where the correlation id stands in a request, */
#define KD_DIRECT_SAME 4   /* and in an answer */
#define KD_DIRECT_FREE 24  /* bytes of an answer that may have any value */
#define KD_DIRECT_LOOK_MS 500 /* a watched way is looked at so often, and what it did is counted no later */

/* States of a way. */
#define KD_DIRECT_SHUT 0
#define KD_DIRECT_IS_OPEN 1
#define KD_DIRECT_ASKED 2 /* it is open, and a request has no answer yet */
#define KD_DIRECT_LEFT 3  /* it is shut, and that request is left to the network thread */
#define KD_DIRECT_ENDED 4 /* it is shut for good: the connection has ended */

/* What became of a request. */
#define KD_DIRECT_WAITING 0 /* a thread waits for its answer */
#define KD_DIRECT_ANSWERED 1
#define KD_DIRECT_TAKEN_OVER 2 /* by the network thread */
#define KD_DIRECT_UNAWAITED 3 /* no thread waits yet, so the network thread gets the answer */

typedef struct {
    int outcome; /* atomic */
    int keeps; /* only the beginning of the plain answer is known, and what follows its correlation id is kept */
    unsigned char found[KD_DIRECT_FREE]; /* the free part, once it is answered */
    unsigned char *kept; /* of malloc, for the owner to free; NULL: nothing is kept */
    size_t kept_length;
} kd_asked;

typedef struct {
    pthread_mutex_t lock;
    int state;
    uint32_t turn; /* goes up each time it is opened; never 0 */
    int32_t next_id, asked_id;
    int is_watched; /* the network thread checks now and then if an answer is late; only it uses this */
    int64_t reminded_ms; /* a request was announced then, and is not out; 0: none */
    kd_asked *asked; /* the request under way, for the thread that waits for it */
    unsigned char answer[KD_DIRECT_MOST]; /* the plain one of the request under way */
    size_t answer_length, free_at, free_length;
    kd_flag *flag; /* raised by the answer */
    /* Of all requests since the network thread counted last: */
    int answered;
    int64_t asked_ms, first_ms, waited_ms; /* the times of the last one and of the first answer, and the sum of waits */
    size_t sent, heard; /* bytes */
} kd_direct;

static void kd_direct_number(unsigned char *at, int32_t id) {
    at[0] = (unsigned char)((uint32_t)id >> 24);
    at[1] = (unsigned char)((uint32_t)id >> 16);
    at[2] = (unsigned char)((uint32_t)id >> 8);
    at[3] = (unsigned char)id;
}

/* Requests may be written from now on, with correlation ids from this one on. The network thread, before it waits. */
static void kd_direct_open(kd_direct *direct, int32_t next_id, int is_watched) {
    pthread_mutex_lock(&direct->lock);
    direct->is_watched = is_watched;
    direct->reminded_ms = 0;
    if (direct->state == KD_DIRECT_SHUT) {
        direct->state = KD_DIRECT_IS_OPEN;
        direct->next_id = next_id;
        if (++direct->turn == 0) direct->turn = 1;
    }
    pthread_mutex_unlock(&direct->lock);
}

/* None may be written from now on. The network thread, after its wait, before anything else. True if there is something
 * to count or to take over. */
static int kd_direct_shut(kd_direct *direct) {
    int has_news;
    pthread_mutex_lock(&direct->lock);
    if (direct->state == KD_DIRECT_IS_OPEN) direct->state = KD_DIRECT_SHUT;
    if (direct->state == KD_DIRECT_ASKED) {
        direct->state = KD_DIRECT_LEFT;
        __atomic_store_n(&direct->asked->outcome, KD_DIRECT_TAKEN_OVER, __ATOMIC_SEQ_CST);
    }
    has_news = direct->answered > 0 || direct->state == KD_DIRECT_LEFT;
    pthread_mutex_unlock(&direct->lock);
    return has_news;
}

/* The number of the present opening; 0: it is shut, or a request is under way. */
static uint32_t kd_direct_turn(kd_direct *direct) {
    uint32_t turn;
    pthread_mutex_lock(&direct->lock);
    turn = direct->state == KD_DIRECT_IS_OPEN ? direct->turn : 0;
    pthread_mutex_unlock(&direct->lock);
    return turn;
}

/* Write a request, if the network thread has done nothing since this turn was read. Its correlation id is put into it.
 * `asked` has its first outcome. True if it is out: `asked` and `flag` stay where they are until the next one is. */
static int kd_direct_ask(
    kd_direct *direct, kd_session *session, uint32_t turn, unsigned char *frame, size_t length,
    const unsigned char *answer, size_t answer_length, size_t free_at, size_t free_length, kd_asked *asked,
    kd_flag *flag, int64_t now_ms
) {
    int is_out = 0;
    pthread_mutex_lock(&direct->lock);
    if (direct->state == KD_DIRECT_IS_OPEN && direct->turn == turn && direct->next_id < INT32_MAX) {
        ssize_t result;
        kd_direct_number(frame + KD_DIRECT_ID_AT, direct->next_id);
        result = kd_session_write_once(session, frame, length);
        /* Also after an error: the network thread finds out that the connection has ended. */
        if (result != KD_NOT_NOW) {
            is_out = 1;
            direct->asked_id = direct->next_id++;
            memcpy(direct->answer, answer, answer_length);
            kd_direct_number(direct->answer + KD_DIRECT_SAME, direct->asked_id);
            direct->asked = asked;
            direct->answer_length = answer_length;
            direct->free_at = free_at;
            direct->free_length = free_length;
            direct->flag = flag;
            direct->asked_ms = now_ms;
            direct->sent += length;
            direct->reminded_ms = 0;
            direct->state = KD_DIRECT_ASKED;
        }
    }
    pthread_mutex_unlock(&direct->lock);
    return is_out;
}

/* True if these bytes are the plain answer. The lock is held. */
static int kd_direct_is_plain(const kd_direct *direct, const unsigned char *bytes, size_t held) {
    size_t after = direct->free_at + direct->free_length;
    if (direct->asked->keeps) {
        uint32_t length = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
        if (held < direct->answer_length || held - KD_DIRECT_SAME != length) return 0;
        after = direct->answer_length - KD_DIRECT_SAME;
        return memcmp(bytes + KD_DIRECT_SAME, direct->answer + KD_DIRECT_SAME, after) == 0;
    }
    if (held != direct->answer_length || memcmp(bytes, direct->answer, direct->free_at) != 0) return 0;
    return memcmp(bytes + after, direct->answer + after, held - after) == 0;
}

/* Keep what follows the correlation id of an answer, if that is wanted. False: there is no memory for it. */
static int kd_direct_keep(kd_asked *asked, const unsigned char *bytes, size_t held) {
    size_t begin = KD_DIRECT_SAME + 4;
    if (!asked->keeps) return 1;
    if ((asked->kept = malloc(held)) == NULL) return 0;
    asked->kept_length = held - begin;
    memcpy(asked->kept, bytes + begin, held - begin);
    return 1;
}

/* Take the plain answer away if these bytes are it, and nothing else, and a thread waits for it. True if so. The network
 * thread, without the interpreter. */
static int kd_direct_look(kd_direct *direct, const unsigned char *bytes, size_t held, int64_t now_ms) {
    int is_taken = 0, waiting = KD_DIRECT_WAITING;
    pthread_mutex_lock(&direct->lock);
    if (direct->state == KD_DIRECT_ASKED && kd_direct_is_plain(direct, bytes, held)) {
        memcpy(direct->asked->found, bytes + direct->free_at, direct->free_length);
        is_taken = kd_direct_keep(direct->asked, bytes, held) && __atomic_compare_exchange_n(
            &direct->asked->outcome, &waiting, KD_DIRECT_ANSWERED, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST
        );
        if (!is_taken) {
            free(direct->asked->kept);
            direct->asked->kept = NULL;
        }
    }
    if (is_taken) {
        direct->state = KD_DIRECT_IS_OPEN;
        if (direct->answered++ == 0) direct->first_ms = now_ms;
        direct->waited_ms += now_ms - direct->asked_ms;
        direct->heard += held;
        if (__atomic_load_n(&direct->flag->waiting, __ATOMIC_SEQ_CST)) kd_flag_raise(direct->flag);
    }
    pthread_mutex_unlock(&direct->lock);
    return is_taken;
}

/* A request will soon be written. If it is not, the network thread comes back. */
static void kd_direct_remind(kd_direct *direct, int64_t now_ms) {
    pthread_mutex_lock(&direct->lock);
    direct->reminded_ms = now_ms;
    pthread_mutex_unlock(&direct->lock);
}

static int kd_direct_outcome(const kd_asked *asked) { return __atomic_load_n(&asked->outcome, __ATOMIC_SEQ_CST); }

/* A thread waits for the answer from now on. False: it is too late, or another one does. */
static int kd_direct_await(kd_asked *asked) {
    int unawaited = KD_DIRECT_UNAWAITED;
    return __atomic_compare_exchange_n(
        &asked->outcome, &unawaited, KD_DIRECT_WAITING, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST
    );
}

/* It waits no more. */
static void kd_direct_forsake(kd_asked *asked) {
    int waiting = KD_DIRECT_WAITING;
    __atomic_compare_exchange_n(
        &asked->outcome, &waiting, KD_DIRECT_UNAWAITED, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST
    );
}

/* How long the network thread may sleep, in ms; 0: a request has waited for long, or there is something to count; below
 * 0: for ever. */
static int64_t kd_direct_left(kd_direct *direct, int64_t now_ms) {
    int64_t left = KD_DIRECT_LOOK_MS;
    if (!direct->is_watched) return -1;
    pthread_mutex_lock(&direct->lock);
    if (direct->state == KD_DIRECT_ASKED) left = direct->asked_ms + KD_DIRECT_LOOK_MS - now_ms;
    if (direct->answered > 0 && direct->first_ms + KD_DIRECT_LOOK_MS - now_ms < left) {
        left = direct->first_ms + KD_DIRECT_LOOK_MS - now_ms;
    }
    if (direct->reminded_ms && direct->reminded_ms + KD_DIRECT_LOOK_MS - now_ms < left) {
        left = direct->reminded_ms + KD_DIRECT_LOOK_MS - now_ms;
    }
    pthread_mutex_unlock(&direct->lock);
    return left < 0 ? 0 : left;
}

/* All is counted. The network thread, while it is shut. */
static void kd_direct_counted(kd_direct *direct) {
    pthread_mutex_lock(&direct->lock);
    direct->answered = 0;
    direct->waited_ms = 0;
    direct->sent = direct->heard = 0;
    if (direct->state == KD_DIRECT_LEFT) direct->state = KD_DIRECT_SHUT;
    pthread_mutex_unlock(&direct->lock);
}

/* None may ever be written from now on. The network thread, before the connection is closed. */
static void kd_direct_end(kd_direct *direct) {
    pthread_mutex_lock(&direct->lock);
    if (direct->state == KD_DIRECT_ASKED || direct->state == KD_DIRECT_LEFT) {
        __atomic_store_n(&direct->asked->outcome, KD_DIRECT_TAKEN_OVER, __ATOMIC_SEQ_CST);
    }
    direct->is_watched = 0;
    direct->state = KD_DIRECT_ENDED;
    pthread_mutex_unlock(&direct->lock);
}

static void kd_direct_init(kd_direct *direct) {
    memset(direct, 0, sizeof *direct);
    pthread_mutex_init(&direct->lock, NULL);
}

#endif
