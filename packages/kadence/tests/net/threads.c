/* Drives the native heartbeat and the poller from several threads, for ThreadSanitizer; test_threads.py compiles and runs it.
 *
 *     threads heartbeats   network threads and the native thread write on plain and TLS connections
 *     threads poller       a network thread waits for connections, application threads take the records that it passes on
 *     threads direct       an application thread writes requests while a network thread waits, and gets their answers
 *     threads race         two threads write one number: what a sanitizer that works must report
 *
 * A mutex stands for the interpreter's lock. Whatever Kadence does with the interpreter is done under it here, and
 * nothing else is. Each program also checks what comes out at the other end, and fails with a line that says what is wrong.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "intake.h"
#include "native_heartbeat.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static pthread_mutex_t interpreter = PTHREAD_MUTEX_INITIALIZER;

static pthread_t started(void *(*run)(void *), void *argument) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, run, argument) == 0);
    return thread;
}

/* A pair of sockets. Ours does not block, and takes little at a time. */
static void connected(int fds[2], int room) {
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    EXPECT(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    if (room) EXPECT(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
}

/* Read a whole frame; its length without these four bytes, or -1 at the end of the stream. */
static ssize_t frame_from(int fd, unsigned char *into, size_t room) {
    unsigned char head[4];
    ssize_t length, count = recv(fd, head, 4, MSG_WAITALL);
    if (count == 0) return -1;
    EXPECT(count == 4);
    length = (ssize_t)kd_u32(head);
    EXPECT((size_t)length <= room);
    EXPECT(recv(fd, into, (size_t)length, MSG_WAITALL) == length);
    return length;
}

static void put_number(unsigned char *at, uint32_t value) { kd_put_number(at, value, 4); }

/* ---- heartbeats ---- */

#define CONNECTIONS 3
#define ROUNDS 30
#define FRAMES 40
#define LONG 20000 /* more than a socket takes at once */

/* Stands for OpenSSL: an object that two threads must not use at once, and that says now and then what only Python understands. */
typedef struct {
    int fd, error;
    long calls;
} fake_ssl;

static int fake_get_error(const void *ssl, int result) {
    (void)result;
    return ((const fake_ssl *)ssl)->error;
}

static void fake_clear(void) {}

static int fake_write(void *ssl, void *data, size_t length, size_t *done) {
    fake_ssl *fake = ssl;
    ssize_t result;
    fake->calls++;
    result = send(fake->fd, data, length, MSG_NOSIGNAL);
    fake->error = KD_SSL_ERROR_WANT_WRITE;
    if (result < 0) return 0;
    *done = (size_t)result;
    return 1;
}

static int fake_read(void *ssl, void *data, size_t length, size_t *done) {
    fake_ssl *fake = ssl;
    ssize_t result;
    /* Each other time it has to be asked through Python's ssl. */
    fake->error = ++fake->calls % 2 ? KD_SSL_ERROR_WANT_READ : KD_SSL_ERROR_WANT_WRITE;
    result = recv(fake->fd, data, length, 0);
    if (result <= 0) return 0;
    *done = (size_t)result;
    return 1;
}

/* The broker's end: every frame is whole and of one thread, and the native thread's numbers follow one another. */
static void *broker_of_heartbeats(void *argument) {
    static const size_t room = LONG + 64;
    int fd = *(int *)argument;
    unsigned char *frame = malloc(room);
    int32_t expected = KD_FIRST_ID;
    intptr_t count = 0;
    ssize_t length;
    EXPECT(frame != NULL);
    while ((length = frame_from(fd, frame, room)) >= 0) {
        EXPECT(length > 8);
        for (ssize_t at = 8; at < length; at++) EXPECT(frame[at] == frame[8]);
        if (frame[8] != 'h') continue;
        EXPECT((int32_t)kd_u32(frame + 4) == expected--);
        EXPECT(send(fd, "answer", 6, MSG_NOSIGNAL | MSG_DONTWAIT) == 6 || errno == EAGAIN || errno == EPIPE);
        count++;
    }
    free(frame);
    return (void *)count;
}

static void frame_of(unsigned char *frame, size_t length, char kind) {
    memset(frame, kind, length);
    put_number(frame, (uint32_t)(length - 4));
    memset(frame + 4, 0, 8);
}

/* Write a frame of the network thread as net/channel.py does; how many native heartbeats that found. */
static int write_frame(kd_session *session, kd_heartbeat *heartbeat, const unsigned char *frame, size_t length) {
    struct pollfd writable = {session->fd, POLLOUT, 0};
    fake_ssl *fake = session->ssl;
    int counted = 0;
    for (size_t done = 0; done < length;) {
        ssize_t result = kd_session_write(session, frame + done, length - done);
        if (result == KD_NATIVE_SENT) {
            counted += kd_heartbeat_count_sent(heartbeat);
            continue;
        }
        if (result == KD_ASK) {
            size_t written = 0;
            /* Python's ssl repeats it, and the native thread keeps off as long as that takes. */
            poll(NULL, 0, 1);
            fake_write(fake, (void *)(frame + done), length - done, &written);
            kd_session_asked(session, 1, done + written > 0 && done + written < length);
            result = written ? (ssize_t)written : KD_NOT_NOW;
        }
        EXPECT(result == KD_NOT_NOW || result >= 0);
        if (result == KD_NOT_NOW) poll(&writable, 1, 10);
        else done += (size_t)result;
    }
    return counted;
}

static void read_answers(kd_session *session) {
    unsigned char answers[256];
    ssize_t result = kd_session_read(session, answers, sizeof answers);
    if (result == KD_ASK) {
        size_t done = 0;
        poll(NULL, 0, 1);
        fake_read(session->ssl, answers, sizeof answers, &done);
        kd_session_asked(session, 0, 0);
    }
    EXPECT(result >= KD_ASK);
}

/* One network thread: a connection after the other, each with a native heartbeat that is always due. */
static void *network_thread_of_heartbeats(void *is_tls) {
    unsigned char *frame = malloc(LONG), *native = malloc(LONG);
    intptr_t total = 0;
    EXPECT(frame != NULL && native != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = round % 2 ? 100 : LONG;
        kd_heartbeat heartbeat;
        kd_session session;
        fake_ssl fake;
        pthread_t broker;
        void *heard;
        intptr_t counted = 0;
        int fds[2];
        connected(fds, 4096);
        memset(&fake, 0, sizeof fake);
        memset(&session, 0, sizeof session);
        fake.fd = session.fd = fds[0];
        session.ssl = is_tls ? &fake : NULL;
        kd_heartbeat_open(&heartbeat, session.fd, session.ssl);
        session.gate = &heartbeat.gate;
        broker = started(broker_of_heartbeats, &fds[1]);
        frame_of(native, length, 'h');
        for (int number = 0; number < FRAMES; number++) {
            int result;
            int64_t now = kd_heartbeat_thread_now();
            while ((result = kd_heartbeat_arm(&heartbeat, native, length, 0, now, now + 60000, 1)) == KD_NATIVE_SENT)
                counted += kd_heartbeat_count_sent(&heartbeat);
            EXPECT(result == 0);
            frame_of(frame, number % 3 ? 50 : LONG, 'n');
            /* Sometimes the native thread comes first. */
            if (number % 4 == 0) poll(NULL, 0, 1);
            counted += write_frame(&session, &heartbeat, frame, number % 3 ? 50 : LONG);
            read_answers(&session);
            EXPECT(kd_heartbeat_sent_at(&heartbeat) >= -1);
            if (number % 5 == 0) kd_heartbeat_disarm(&heartbeat);
        }
        kd_heartbeat_disarm(&heartbeat);
        /* Whatever went out in part is finished before this frame. */
        frame_of(frame, 50, 'n');
        counted += write_frame(&session, &heartbeat, frame, 50);
        counted += kd_heartbeat_count_sent(&heartbeat);
        kd_heartbeat_close(&heartbeat);
        EXPECT(shutdown(fds[0], SHUT_WR) == 0);
        EXPECT(pthread_join(broker, &heard) == 0);
        EXPECT((intptr_t)heard == counted);
        kd_heartbeat_free(&heartbeat);
        close(fds[0]);
        close(fds[1]);
        total += counted;
    }
    free(frame);
    free(native);
    return (void *)total;
}

static void run_heartbeats(void) {
    pthread_t threads[2 * CONNECTIONS];
    long total = 0;
    kd_ssl_read = fake_read;
    kd_ssl_write = fake_write;
    kd_ssl_get_error = fake_get_error;
    kd_ssl_clear_error = fake_clear;
    for (int number = 0; number < 2 * CONNECTIONS; number++)
        threads[number] = started(network_thread_of_heartbeats, number % 2 ? "tls" : NULL);
    for (int number = 0; number < 2 * CONNECTIONS; number++) {
        void *count;
        EXPECT(pthread_join(threads[number], &count) == 0);
        EXPECT((intptr_t)count > 0);
        total += (intptr_t)count;
    }
    kd_heartbeat_thread_end();
    printf("%ld native heartbeats\n", total);
}

/* ---- the poller ---- */

#define ANSWERS 400 /* with records, of each connection */
#define EPOCH_AT 20 /* where a request of ours has its session epoch */
#define REQUEST (EPOCH_AT + 6) /* an empty list of topics and one more byte come behind that */
#define LONG_ANSWER (3 * KD_ROOM)

static const unsigned char TOPIC[KD_UUID] = "a topic of tests";

static unsigned char *put_varint(unsigned char *at, uint32_t value) {
    while (value > 0x7f) {
        *at++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *at++ = (unsigned char)value;
    return at;
}

/* The answer to this request, with its length: nothing (0), a batch (1), or what is for Python to see (2). */
static size_t answer_to(uint32_t id, int kind, unsigned char *at) {
    unsigned char *start = at, *batch;
    at = kd_put_number(at + KD_LENGTH_BYTES, id, 4);
    at = kd_put_number(at, 0, KD_SAME_HEAD - 4);
    if (kind == 0) {
        at = kd_put_number(at, 0x0100, 2);
    } else if (kind == 2) {
        memset(at, 'l', LONG_ANSWER);
        at += LONG_ANSWER;
    } else {
        *at++ = 2;
        at = kd_put_copy(at, TOPIC, KD_UUID);
        *at++ = 2;
        at = kd_put_number(at, 0, 6);
        at = kd_put_number(at, 100, 8);
        at = kd_put_number(at, 100, 8);
        at = kd_put_number(at, 0, 8);
        *at++ = 0;
        at = kd_put_number(at, 0xffffffff, 4);
        at = put_varint(at, KD_BATCH_HEADER + 1);
        batch = at;
        memset(batch, 0, KD_BATCH_HEADER);
        put_number(batch + 4, id);
        put_number(batch + 8, KD_BATCH_HEADER - KD_OVERHEAD);
        batch[16] = 2;
        put_number(batch + 57, 1);
        at += KD_BATCH_HEADER;
        at = kd_put_number(at, 0, 3);
    }
    put_number(start, (uint32_t)(at - start - KD_LENGTH_BYTES));
    return (size_t)(at - start);
}

/* The broker's end of a fetch session. */
static void *broker_of_fetches(void *argument) {
    int fd = *(int *)argument;
    unsigned char *request = malloc(LONG_ANSWER), *answer = malloc(LONG_ANSWER + 64);
    uint32_t id = 0;
    int passed = 0;
    EXPECT(request != NULL && answer != NULL);
    for (int number = 0; frame_from(fd, request, LONG_ANSWER) >= 0; number++) {
        int kind = number % 3 == 0 ? 0 : number % 16 == 1 ? 2 : 1;
        size_t length;
        EXPECT(kd_u32(request + 4) == ++id);
        if (kind == 1 && passed == ANSWERS) continue;
        passed += kind == 1;
        length = answer_to(id, kind, answer);
        /* Once the last record is taken the other end closes, also while this is on its way. */
        if (send(fd, answer, length, MSG_NOSIGNAL) != (ssize_t)length) break;
        /* Now and then nothing comes for a while, so that all sides wait. */
        if (number % 10 == 0) poll(NULL, 0, 1);
    }
    free(request);
    free(answer);
    return NULL;
}

typedef struct {
    kd_arrivals arrivals;
    int wake, is_over;
    int taken, woken;
} shared;

/* As Arrivals._collect: with the interpreter. */
static void collect(shared *all) {
    kd_arrival *first;
    while ((first = kd_arrivals_first(&all->arrivals)) != NULL) {
        EXPECT(first->length > KD_BATCH_HEADER && first->frame[0] == 2);
        free(first->frame);
        kd_arrivals_taken(&all->arrivals);
        all->taken++;
    }
}

/* The thread that waits for records, as Flag.wait does. */
static void *application_thread(void *argument) {
    shared *all = argument;
    pthread_mutex_lock(&interpreter);
    while (all->taken < CONNECTIONS * ANSWERS) {
        kd_flag_enter(&all->arrivals.flag);
        if (kd_arrivals_first(&all->arrivals) == NULL) {
            pthread_mutex_unlock(&interpreter);
            all->woken += kd_flag_wait(&all->arrivals.flag, 50000000) == 1;
            pthread_mutex_lock(&interpreter);
        }
        kd_flag_await(&all->arrivals.flag, 0);
        collect(all);
    }
    all->is_over = 1;
    pthread_mutex_unlock(&interpreter);
    return NULL;
}

/* Others look at the flag, take records and wake the network thread, as a signal handler or a second thread may. */
static void *other_thread(void *argument) {
    static const uint64_t one = 1;
    shared *all = argument;
    int is_over = 0;
    for (int number = 0; !is_over; number++) {
        pthread_mutex_lock(&interpreter);
        is_over = all->is_over;
        if (number % 3 == 0) collect(all);
        if (number % 7 == 0 && all->arrivals.flag.waiting) kd_flag_raise(&all->arrivals.flag);
        /* Seldom: the ring is to be filled and emptied many times during one wait. */
        if (number % 20 == 0) EXPECT(write(all->wake, &one, sizeof one) == sizeof one);
        pthread_mutex_unlock(&interpreter);
        poll(NULL, 0, 1);
    }
    return NULL;
}

typedef struct {
    kd_session session;
    kd_intake intake;
    unsigned char *target;
    unsigned char request[REQUEST];
    int fds[2];
    uint32_t id;
} connection;

/* Fetch, and have that fetch go out again by itself (Intake.send_again and follow). */
static void fetch(connection *each, shared *all, const unsigned char *asked) {
    kd_again *again = &each->intake.again;
    unsigned char answer[64];
    put_number(each->request + KD_CORRELATION_AT, ++each->id);
    if (each->id % 2 && kd_session_takes(&each->session)) {
        EXPECT(kd_outbox_empty(&each->session.outbox, 2));
        kd_outbox_put(&each->session.outbox, each->request, 10);
        kd_outbox_put(&each->session.outbox, each->request + 10, REQUEST - 10);
    } else {
        EXPECT(kd_session_write(&each->session, each->request, REQUEST) == REQUEST);
    }
    memcpy(again->frame, each->request, REQUEST);
    again->length = REQUEST;
    again->epoch_at = EPOCH_AT;
    again->answer_length = answer_to(each->id, 0, answer);
    memcpy(again->answer, answer, again->answer_length);
    again->sent_ms = again->least_ms = 0;
    again->until_ms = INT64_MAX;
    again->asked = (unsigned char *)asked;
    again->asked_length = KD_ASKED;
    again->arrivals = &all->arrivals;
    again->owner = each;
}

/* What Python does with a frame: all of them are long, or came while the ring was full. */
static void take_frame(connection *each, shared *all, const unsigned char *asked) {
    kd_intake *intake = &each->intake;
    EXPECT(intake->state == KD_OPEN);
    each->id += (uint32_t)intake->again.count;
    intake->again.count = 0;
    if (intake->into == NULL) {
        size_t length = (size_t)kd_length(intake), held = intake->end - intake->begin - KD_LENGTH_BYTES;
        if (held > length) held = length;
        EXPECT((each->target = malloc(length)) != NULL);
        memcpy(each->target, intake->room + intake->begin + KD_LENGTH_BYTES, held);
        intake->begin = intake->end = 0;
        intake->into = each->target + held;
        intake->missing = length - held;
    }
    if (intake->missing > 0) return;
    EXPECT(kd_u32(each->target) == each->id);
    if (each->target[KD_SAME_HEAD] == 2) all->taken++;
    free(each->target);
    intake->into = NULL;
    fetch(each, all, asked);
}

static void run_poller(void) {
    static connection connections[CONNECTIONS];
    static shared all;
    unsigned char asked[KD_ASKED] = {0};
    struct pollfd fds[1 + CONNECTIONS];
    kd_intake *intakes[1 + CONNECTIONS] = {NULL};
    pthread_t brokers[CONNECTIONS], application, other;
    int passed_on = 0, releases = 0;
    memcpy(asked, TOPIC, KD_UUID);
    all.arrivals.flag.fd = -1;
    EXPECT((all.wake = eventfd(0, EFD_NONBLOCK)) >= 0);
    fds[0] = (struct pollfd){all.wake, POLLIN, 0};
    for (int number = 0; number < CONNECTIONS; number++) {
        connection *each = &connections[number];
        connected(each->fds, 0);
        each->session.fd = each->fds[0];
        each->intake.session = &each->session;
        each->intake.wanted = POLLIN;
        EXPECT((each->intake.room = malloc(KD_ROOM)) != NULL);
        EXPECT((each->intake.again.frame = malloc(REQUEST)) != NULL);
        put_number(each->request, REQUEST - KD_LENGTH_BYTES);
        each->request[EPOCH_AT + 4] = 1;
        fds[1 + number] = (struct pollfd){each->session.fd, POLLIN, 0};
        intakes[1 + number] = &each->intake;
        brokers[number] = started(broker_of_fetches, &each->fds[1]);
        fetch(each, &all, asked);
    }
    pthread_mutex_lock(&interpreter);
    application = started(application_thread, &all);
    other = started(other_thread, &all);
    /* As Poller.wait. */
    while (!all.is_over) {
        int found;
        for (int number = 0; number < CONNECTIONS; number++) {
            kd_again *again = &connections[number].intake.again;
            connections[number].id += (uint32_t)again->count;
            passed_on += again->arrived;
            again->count = again->arrived = 0;
            again->is_allowed = 1;
            again->room = 2 * KD_LEAST_ROOM;
        }
        found = kd_look(fds, intakes, 1 + CONNECTIONS, 0);
        if (found == 0) {
            pthread_mutex_unlock(&interpreter);
            releases++;
            found = kd_wait(fds, intakes, 1 + CONNECTIONS, 20);
            pthread_mutex_lock(&interpreter);
        }
        collect(&all);
        EXPECT(found >= KD_INTERRUPTED);
        for (int number = 0; number < CONNECTIONS; number++) {
            if (fds[1 + number].revents & POLLIN) take_frame(&connections[number], &all, asked);
        }
    }
    pthread_mutex_unlock(&interpreter);
    EXPECT(pthread_join(application, NULL) == 0 && pthread_join(other, NULL) == 0);
    for (int number = 0; number < CONNECTIONS; number++) {
        connection *each = &connections[number];
        EXPECT(shutdown(each->fds[0], SHUT_RDWR) == 0);
        EXPECT(pthread_join(brokers[number], NULL) == 0);
        close(each->fds[0]);
        close(each->fds[1]);
        free(each->intake.room);
        free(each->intake.again.frame);
        free(each->session.outbox.pieces);
    }
    EXPECT(passed_on > 0 && releases > 0 && all.woken > 0);
    printf("%d answers, %d of them passed on, %d waits without the interpreter\n", all.taken, passed_on, releases);
}

#include "threads_direct.h"

/* ---- what must be reported ---- */

static int number_of_nobody;

static void *race(void *nothing) {
    for (int count = 0; count < 1000; count++) number_of_nobody++;
    return nothing;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "heartbeats") == 0) run_heartbeats();
    else if (strcmp(what, "poller") == 0) run_poller();
    else if (strcmp(what, "direct") == 0) run_direct();
    else if (strcmp(what, "race") == 0) {
        pthread_t one = started(race, NULL), other = started(race, NULL);
        EXPECT(pthread_join(one, NULL) == 0 && pthread_join(other, NULL) == 0);
    } else {
        fprintf(stderr, "what? heartbeats, poller, direct or race\n");
        return 2;
    }
    return 0;
}
