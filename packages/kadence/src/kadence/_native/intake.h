/* Waiting for many connections, reading from those that have something, and reporting complete frames.
 *
 * kd_wait does all of it in one call, so that the interpreter has to be taken back once for a whole frame. It returns
 * only when Python has something to do: a frame is whole, a long one needs memory, a length must be judged, a
 * connection ended, a socket can be written, another thread woke this one, or the time is over.
 *
 * Short frames are read ahead into the connection's own room, many with one system call. A frame that does not fit
 * there is read into memory that Python gives (`into`), beginning with what the room holds of it.
 *
 * An idle consumer's fetch is answered with nothing, again and again. Such an answer is known byte for byte, and so is
 * the request that follows it: both are dealt with here (kd_repeat), and Python hears of it when it comes by. A ShareFetch
 * goes out for a poll that waits, and waits no longer than that poll (poll_wait.h). Small answers with records are dealt
 * with here, too: the application is woken for them, and the next fetch leaves at once (following.h, arrivals.h).
 * A request that the application's thread has written by itself is answered to it (direct.h).
 */
#ifndef KADENCE_INTAKE_H
#define KADENCE_INTAKE_H

#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arrivals.h"
#include "direct.h"
#include "following.h"
#include "poll_wait.h"
#include "session.h"

#define KD_LENGTH_BYTES 4
#define KD_SHORTEST 4 /* as kadence.connection.frames has it */
#define KD_ROOM 65536
#define KD_AT_ONCE (1 << 20) /* of one long frame, before the other connections get their turn */

#define KD_OPEN 0
#define KD_ENDED 1 /* other states: KD_ASK, or below KD_ERRNO */

#define KD_INTERRUPTED (-1)

#define KD_VERSION_AT 6 /* in a request's frame: length and API key come first */
#define KD_CORRELATION_AT 8
#define KD_EPOCH_BYTES 4
#define KD_WAIT_BYTES 4 /* of a ShareFetch, after its epoch: how long the broker may hold it */
#define KD_EMPTY_MOST 32 /* bytes of an answer without partitions: 21 in version KD_LAST_KNOWN_LAYOUT */
#define KD_LAG_MS 500 /* Python counts records no later than this after they came, */
#define KD_LEAST_ROOM 32768 /* or when there is room for no more than so many bytes of them */

/* A fetch that goes out again, with the next numbers, without Python (kd_repeat). */
typedef struct {
    unsigned char *frame; /* one that names no partition; NULL: there is none */
    size_t length, epoch_at; /* where its session epoch stands; the topics come next */
    unsigned char answer[KD_EMPTY_MOST]; /* the frame of an answer without partitions */
    size_t answer_length;
    int64_t sent_ms, least_ms, until_ms; /* not sooner than least_ms after the last one, and not from until_ms on */
    int is_allowed, count; /* how often it went out since Python counted last */
    size_t sent, heard; /* bytes of that */
    unsigned char *asked; /* what the session asks of each partition; NULL: an answer with records is for Python */
    size_t asked_length, room; /* the bytes of answers that may still come before Python counts again */
    kd_arrivals *arrivals;
    void *owner; /* their owner, for Python */
    int arrived; /* how many came with records since Python counted last, the first of them at first_ms */
    int64_t first_ms;
    kd_poll_wait *poll_wait; /* it goes out only for a poll of wanted_count records, as long as that waits; NULL: always */
    int64_t wanted_count, shortest_ms, longest_ms; /* and how long the broker may hold it */
} kd_again;

typedef struct {
    kd_session *session;
    unsigned char *room;
    size_t begin, end; /* what was read ahead and not taken */
    unsigned char *into; /* where the rest of a long frame goes; NULL: no long frame. The room is empty then. */
    size_t missing;
    ssize_t state;
    int64_t heard_ms; /* when something was read last, by the monotonic clock */
    int more; /* the last read did not empty the connection: there may be bytes that poll() cannot see */
    short wanted; /* the events that Python wants to hear of */
    kd_again again;
    kd_direct direct;
} kd_intake;

/* The length of the first frame, as sent. Only when its four bytes are there. */
static int32_t kd_length(const kd_intake *intake) {
    const unsigned char *p = intake->room + intake->begin;
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3]);
}

/* True if the first frame is complete, or its length is for Python to judge or to find memory for. */
static int kd_has_frame(const kd_intake *intake) {
    size_t held = intake->end - intake->begin;
    int32_t length;
    if (intake->into != NULL) return intake->missing == 0;
    if (held < KD_LENGTH_BYTES) return 0;
    length = kd_length(intake);
    if (length < KD_SHORTEST || length > KD_ROOM - KD_LENGTH_BYTES) return 1;
    return held - KD_LENGTH_BYTES >= (size_t)length;
}

/* True if Python has something to do with it. */
static int kd_is_due(const kd_intake *intake) {
    return intake->state != KD_OPEN || kd_has_frame(intake);
}

static int64_t kd_now_ns(void) {
    struct timespec spec;
    clock_gettime(CLOCK_MONOTONIC, &spec);
    return (int64_t)spec.tv_sec * 1000000000 + spec.tv_nsec;
}

static int64_t kd_now_ms(void) { return kd_now_ns() / 1000000; }

/* Read what is there, as far as there is memory for it. */
static void kd_advance(kd_intake *intake) {
    size_t taken = 0;
    intake->more = 0;
    while (intake->state == KD_OPEN) {
        unsigned char *into;
        size_t length;
        ssize_t result;
        if (intake->into != NULL) {
            into = intake->into;
            length = intake->missing;
        } else {
            if (intake->begin > 0) {
                memmove(intake->room, intake->room + intake->begin, intake->end - intake->begin);
                intake->end -= intake->begin;
                intake->begin = 0;
            }
            into = intake->room + intake->end;
            length = KD_ROOM - intake->end;
        }
        if (length == 0 || taken >= KD_AT_ONCE) {
            intake->more = 1;
            return;
        }
        result = kd_session_read(intake->session, into, length);
        if (result > 0) {
            if (intake->into != NULL) {
                intake->into += result;
                intake->missing -= (size_t)result;
            } else {
                intake->end += (size_t)result;
            }
            taken += (size_t)result;
            intake->heard_ms = kd_now_ms();
            /* A short read has emptied a plain socket. OpenSSL gives one TLS record at a time. */
            if (intake->session->ssl == NULL && (size_t)result < length) return;
        } else if (result == KD_NOT_NOW) {
            return;
        } else {
            intake->state = result == 0 ? KD_ENDED : result;
        }
    }
}

/* The version of a request in its frame. */
static int kd_version(const unsigned char *frame) { return frame[KD_VERSION_AT] << 8 | frame[KD_VERSION_AT + 1]; }

/* Add to a number of four bytes. */
static void kd_count(unsigned char *at, int change) {
    uint32_t number = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
    number += (uint32_t)change;
    at[0] = (unsigned char)(number >> 24);
    at[1] = (unsigned char)(number >> 16);
    at[2] = (unsigned char)(number >> 8);
    at[3] = (unsigned char)number;
}

/* Send a fetch whose correlation id and epoch are one less than they are to be. True if it is out. */
static int kd_send_again(kd_intake *intake, unsigned char *frame, size_t length) {
    kd_again *again = &intake->again;
    ssize_t result;
    kd_count(frame + KD_CORRELATION_AT, 1);
    kd_count(frame + again->epoch_at, 1);
    result = kd_session_write(intake->session, frame, length);
    if (result == (ssize_t)length) {
        if (frame != again->frame) {
            kd_count(again->frame + KD_CORRELATION_AT, 1);
            kd_count(again->frame + again->epoch_at, 1);
        }
        kd_count(again->answer + KD_LENGTH_BYTES, 1);
        again->sent_ms = intake->heard_ms;
        again->count++;
        again->sent += length;
        again->heard += intake->end - intake->begin;
        intake->begin = intake->end = 0;
        return 1;
    }
    again->is_allowed = 0;
    if (result == KD_NOT_NOW || result == KD_NATIVE_SENT) {
        kd_count(frame + KD_CORRELATION_AT, -1);
        kd_count(frame + again->epoch_at, -1);
    } else {
        /* Only a part of it is out. This hardly ever happens, because no other request was in flight. */
        intake->state = KD_ERRNO - EPIPE;
    }
    return 0;
}

/* An answer with plain records: put it where the application finds it, and send the fetch that follows. */
static void kd_pass_on(kd_intake *intake) {
    kd_again *again = &intake->again;
    const unsigned char *answer = intake->room + intake->begin;
    size_t held = intake->end - intake->begin, head = KD_LENGTH_BYTES + KD_SAME_HEAD;
    size_t topics_at = again->epoch_at + KD_EPOCH_BYTES;
    kd_arrival *arrival = kd_arrivals_room(again->arrivals);
    unsigned char *frame, *kept, *end;
    if (arrival == NULL || held <= head || held > again->room) return;
    if ((size_t)kd_length(intake) + KD_LENGTH_BYTES != held) return;
    if (memcmp(answer + KD_LENGTH_BYTES, again->answer + KD_LENGTH_BYTES, KD_SAME_HEAD) != 0) return;
    frame = malloc(again->length + held);
    kept = malloc(held);
    if (frame != NULL && kept != NULL) {
        end = kd_follow(answer + head, held - head, again->asked, again->asked_length, frame + topics_at);
        if (end != NULL) {
            size_t rest = again->length - topics_at - 1;
            memcpy(frame, again->frame, topics_at);
            end = kd_put_copy(end, again->frame + topics_at + 1, rest);
            kd_put_number(frame, (uint64_t)(end - frame - KD_LENGTH_BYTES), KD_LENGTH_BYTES);
            memcpy(kept, answer + head, held - head);
            if (kd_send_again(intake, frame, (size_t)(end - frame))) {
                if (again->arrived++ == 0) again->first_ms = intake->heard_ms;
                again->room -= held;
                arrival->owner = again->owner;
                arrival->frame = kept;
                arrival->length = held - head;
                arrival->number = again->count;
                kept = NULL;
                kd_arrivals_put(again->arrivals);
            }
        }
    }
    free(frame);
    free(kept);
}

/* Have the broker hold the next fetch no longer than the poll waits for it. True if one does. */
static int kd_fits_poll(kd_again *again, int64_t now) {
    int64_t left;
    if (again->poll_wait == NULL) return 1;
    left = kd_poll_wait_left(again->poll_wait, now, again->wanted_count);
    if (left == 0) return 0;
    if (left < again->shortest_ms) left = again->shortest_ms;
    if (left > again->longest_ms) left = again->longest_ms;
    kd_put_number(again->frame + again->epoch_at + KD_EPOCH_BYTES, (uint64_t)left, KD_WAIT_BYTES);
    again->least_ms = left / 2;
    return 1;
}

/* If exactly one answer was read that Python need not know of at once, take it away and send the fetch again. */
static void kd_repeat(kd_intake *intake) {
    kd_again *again = &intake->again;
    size_t held = intake->end - intake->begin;
    int64_t now = intake->heard_ms;
    if (!again->is_allowed || intake->state != KD_OPEN || intake->into != NULL || intake->more) return;
    if (intake->session->outbox.unwritten || now >= again->until_ms) return;
    if (held == again->answer_length && memcmp(intake->room + intake->begin, again->answer, held) == 0) {
        /* A broker that does not wait is asked again at Python's pace. */
        if (now - again->sent_ms >= again->least_ms && kd_fits_poll(again, now)) {
            kd_send_again(intake, again->frame, again->length);
        }
    } else if (again->asked != NULL) {
        kd_pass_on(intake);
    }
}

/* If exactly the plain answer was read that a thread of the application waits for, take it away. */
static void kd_answer(kd_intake *intake) {
    size_t held = intake->end - intake->begin;
    if (held == 0 || intake->state != KD_OPEN || intake->into != NULL || intake->more) return;
    if (kd_direct_look(&intake->direct, intake->room + intake->begin, held, intake->heard_ms)) {
        intake->begin = intake->end = 0;
    }
}

/* Before poll(): also ask for room to write on connections whose outbox is not empty. */
static void kd_want(struct pollfd *fds, kd_intake **intakes, int count) {
    for (int place = 0; place < count; place++) {
        kd_intake *intake = intakes[place];
        if (intake != NULL) fds[place].events = intake->wanted | (intake->session->outbox.unwritten ? POLLOUT : 0);
    }
}

/* Write on, then read. Returns the events that Python has to see. */
static short kd_serve(kd_intake *intake, short seen) {
    kd_outbox *outbox = &intake->session->outbox;
    if (seen && outbox->unwritten) kd_outbox_write(outbox, intake->session->fd, MSG_NOSIGNAL);
    if ((seen & ~POLLOUT) || intake->more) {
        kd_advance(intake);
        kd_answer(intake);
        kd_repeat(intake);
    }
    /* A connection that cannot be written to has ended, once what came before is read. */
    if (outbox->failed && intake->state == KD_OPEN && !intake->more) intake->state = KD_ERRNO - outbox->failed;
    seen &= outbox->unwritten ? 0 : POLLOUT & intake->wanted;
    return (short)(seen | (kd_is_due(intake) ? POLLIN : 0));
}

/* One look: reads from what is readable, and writes what waits in an outbox. Leaves in `revents` only what Python has
 * to see; returns how many have that.
 *
 * fds[0] is the descriptor that wakes the thread; its bytes are taken away here.
 */
static int kd_look(struct pollfd *fds, kd_intake **intakes, int count, int timeout_ms) {
    unsigned char waste[64];
    int found = 0;
    kd_want(fds, intakes, count);
    if (poll(fds, (nfds_t)count, timeout_ms) < 0) {
        if (errno == EINTR) return KD_INTERRUPTED;
        return KD_ERRNO - errno;
    }
    for (int place = 0; place < count; place++) {
        kd_intake *intake = intakes[place];
        short seen = fds[place].revents;
        if (intake != NULL) {
            seen = kd_serve(intake, seen);
        } else if (place == 0 && seen) {
            while (read(fds[0].fd, waste, sizeof waste) < 0 && errno == EINTR) {}
        }
        fds[place].revents = seen;
        found += seen != 0;
    }
    return found;
}

/* True if there is no need to wait: something is due, or bytes may be where poll() cannot see them. */
static int kd_is_pending(kd_intake **intakes, int count) {
    for (int place = 0; place < count; place++) {
        if (intakes[place] != NULL && (intakes[place]->more || kd_is_due(intakes[place]))) return 1;
    }
    return 0;
}

/* True if much may have to be read or written, which should not be done with the GIL. */
static int kd_is_long(kd_intake **intakes, int count) {
    for (int place = 0; place < count; place++) {
        if (intakes[place] == NULL) continue;
        if (intakes[place]->into != NULL && intakes[place]->missing > KD_ROOM) return 1;
        if (intakes[place]->session->outbox.unwritten > KD_ROOM) return 1;
    }
    return 0;
}

/* When Python must count the arrivals, in ms from now; below 0: there are none. */
static int64_t kd_until_counted(kd_intake **intakes, int count, int64_t now) {
    int64_t left = -1;
    for (int place = 0; place < count; place++) {
        int64_t due;
        if (intakes[place] == NULL || !intakes[place]->again.arrived) continue;
        due = intakes[place]->again.first_ms + KD_LAG_MS - now;
        if (due < 0 || intakes[place]->again.room < KD_LEAST_ROOM) due = 0;
        if (left < 0 || due < left) left = due;
    }
    return left;
}

/* How long direct requests let the network thread sleep, in ms; below 0: for ever. */
static int64_t kd_until_direct(kd_intake **intakes, int count, int64_t now) {
    int64_t left = -1;
    for (int place = 0; place < count; place++) {
        int64_t its = intakes[place] == NULL ? -1 : kd_direct_left(&intakes[place]->direct, now);
        if (its >= 0 && (left < 0 || its < left)) left = its;
    }
    return left;
}

/* Look until something is found or the time is over (below 0: for ever). Without the interpreter. */
static int kd_wait(struct pollfd *fds, kd_intake **intakes, int count, int64_t timeout_ms) {
    int64_t now = kd_now_ms(), until = timeout_ms < 0 ? -1 : now + timeout_ms;
    for (;;) {
        int64_t left = kd_until_counted(intakes, count, now), direct = kd_until_direct(intakes, count, now);
        int found;
        if (direct >= 0 && (left < 0 || direct < left)) left = direct;
        if (left == 0) return 0;
        if (kd_is_pending(intakes, count)) {
            left = 0;
        } else if (until >= 0 && (left < 0 || until - now < left)) {
            left = until - now < 0 ? 0 : until - now;
        }
        if (left > INT_MAX) left = INT_MAX;
        found = kd_look(fds, intakes, count, (int)left);
        if (found != 0) return found;
        now = kd_now_ms();
        if (until >= 0 && now >= until) return 0;
    }
}

#endif
