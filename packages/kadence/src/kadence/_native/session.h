/* One connection's socket, plain or TLS: the only place that calls recv, send, SSL_read_ex and SSL_write_ex.
 *
 * Every call is made on a non-blocking descriptor and never waits. For TLS they work on OpenSSL's own object
 * (openssl.py says why, and how its address is obtained). Anything but bytes and "not now" is KD_ASK there: the caller
 * repeats the call through Python's ssl, which knows the exceptions.
 *
 * None of these functions touches the interpreter, so they may be called with it or without it. If the native thread writes
 * on the connection, too, it has a gate (gate.h), and each call passes through it.
 */
#ifndef KADENCE_SESSION_H
#define KADENCE_SESSION_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "gate.h"
#include "outbox.h"

#define KD_NOT_NOW (-1)
#define KD_ASK (-2)
#define KD_NATIVE_SENT (-3) /* the native thread has sent frames that the network thread has not counted yet */
#define KD_ERRNO (-1000) /* below this: minus errno */

#define KD_SSL_ERROR_WANT_READ 2
#define KD_SSL_ERROR_WANT_WRITE 3

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

typedef struct {
    int fd;
    void *ssl; /* NULL: a plain socket */
    kd_gate *gate; /* NULL: the network thread alone */
    kd_outbox outbox; /* of a plain socket that the network thread alone writes to; see kd_session_takes */
} kd_session;

typedef int (*kd_ssl_io)(void *ssl, void *data, size_t length, size_t *done);
typedef int (*kd_ssl_error)(const void *ssl, int result);
typedef void (*kd_ssl_clear)(void);

static kd_ssl_io kd_ssl_read, kd_ssl_write;
static kd_ssl_error kd_ssl_get_error;
static kd_ssl_clear kd_ssl_clear_error;

static ssize_t kd_failed(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? KD_NOT_NOW : KD_ERRNO - errno;
}

static ssize_t kd_read_now(int fd, void *ssl, void *into, size_t length) {
    ssize_t result;
    if (ssl != NULL) {
        size_t done = 0;
        /* SSL_get_error looks at the thread's error queue, which others may have left something in. */
        kd_ssl_clear_error();
        int outcome = kd_ssl_read(ssl, into, length, &done);
        if (outcome == 1) return (ssize_t)done;
        return kd_ssl_get_error(ssl, outcome) == KD_SSL_ERROR_WANT_READ ? KD_NOT_NOW : KD_ASK;
    }
    result = recv(fd, into, length, 0);
    return result < 0 ? kd_failed() : result;
}

static ssize_t kd_write_now(int fd, void *ssl, const void *data, size_t length) {
    ssize_t result;
    if (ssl != NULL) {
        size_t done = 0;
        kd_ssl_clear_error();
        return kd_ssl_write(ssl, (void *)data, length, &done) == 1 ? (ssize_t)done : KD_ASK;
    }
    result = send(fd, data, length, MSG_NOSIGNAL);
    return result < 0 ? kd_failed() : result;
}

/* The outcome of a TLS write by the native thread, which cannot raise. The reader gets a fatal error, too. */
static ssize_t kd_ssl_outcome(void *ssl, int outcome) {
    int error = kd_ssl_get_error(ssl, outcome);
    return error == KD_SSL_ERROR_WANT_READ || error == KD_SSL_ERROR_WANT_WRITE ? KD_NOT_NOW : KD_ERRNO - EPIPE;
}

/* As kd_write_now, for bytes of the native thread: never KD_ASK. */
static ssize_t kd_write_unasked(int fd, void *ssl, const void *data, size_t length) {
    size_t done = 0;
    int outcome;
    if (ssl == NULL) return kd_write_now(fd, NULL, data, length);
    kd_ssl_clear_error();
    outcome = kd_ssl_write(ssl, (void *)data, length, &done);
    return outcome == 1 ? (ssize_t)done : kd_ssl_outcome(ssl, outcome);
}

/* Write what is left of the native thread's frame. 0: it is whole; else KD_NOT_NOW, or below KD_ERRNO. The gate is held. */
static ssize_t kd_finish(int fd, void *ssl, kd_gate *gate) {
    while (gate->rest != NULL) {
        ssize_t result = kd_write_unasked(fd, ssl, gate->rest, gate->rest_length);
        if (result < 0) return result;
        gate->rest_length -= (size_t)result;
        memmove(gate->rest, gate->rest + result, gate->rest_length);
        if (gate->rest_length == 0) {
            free(gate->rest);
            gate->rest = NULL;
        }
    }
    return 0;
}

/* Bytes read; 0 at the end of the stream; KD_NOT_NOW, KD_ASK, or below KD_ERRNO. */
static ssize_t kd_session_read(kd_session *session, void *into, size_t length) {
    kd_gate *gate = session->gate;
    ssize_t result;
    /* One thread may read from a plain socket while another one writes to it. */
    if (gate == NULL || session->ssl == NULL) return kd_read_now(session->fd, session->ssl, into, length);
    pthread_mutex_lock(&gate->lock);
    result = kd_read_now(session->fd, session->ssl, into, length);
    if (result == KD_ASK) gate->is_shut = 1;
    pthread_mutex_unlock(&gate->lock);
    return result;
}

/* Bytes written; KD_NOT_NOW, KD_ASK, KD_UNSETTLED, or below KD_ERRNO. */
static ssize_t kd_session_write(kd_session *session, const void *data, size_t length) {
    kd_gate *gate = session->gate;
    ssize_t result;
    if (session->outbox.unwritten > 0) return KD_NOT_NOW;
    if (gate == NULL) return kd_write_now(session->fd, session->ssl, data, length);
    pthread_mutex_lock(&gate->lock);
    if (gate->native_sent > 0) {
        result = KD_NATIVE_SENT;
    } else {
        result = kd_finish(session->fd, session->ssl, gate);
        if (result == 0) {
            result = kd_write_now(session->fd, session->ssl, data, length);
            gate->is_inside = result != (ssize_t)length;
            if (result == KD_ASK) gate->is_shut = 1;
        }
    }
    pthread_mutex_unlock(&gate->lock);
    return result;
}

/* As kd_session_write, for a thread that does not try again: KD_NOT_NOW means that nothing was written. */
static ssize_t kd_session_write_once(kd_session *session, const void *data, size_t length) {
    kd_gate *gate = session->gate;
    ssize_t result = KD_NOT_NOW;
    /* TLS may need Python. With nothing in the outbox the network thread's wait writes only what passes the gate. */
    if (session->ssl != NULL || session->outbox.unwritten > 0) return KD_NOT_NOW;
    if (gate != NULL) pthread_mutex_lock(&gate->lock);
    if (gate == NULL || !(gate->native_sent > 0 || gate->is_inside || gate->is_shut || gate->rest != NULL)) {
        result = kd_write_now(session->fd, NULL, data, length);
        if (result != KD_NOT_NOW && result != (ssize_t)length) {
            /* Half a frame, or an error: the connection has ended. Under the gate, so that nothing follows the half. */
            if (gate != NULL) gate->is_inside = 1;
            shutdown(session->fd, SHUT_RDWR);
        }
    }
    if (gate != NULL) pthread_mutex_unlock(&gate->lock);
    return result;
}

/* True if a frame may go to the outbox now. */
static int kd_session_takes(const kd_session *session) {
    return session->ssl == NULL && session->gate == NULL && session->outbox.unwritten == 0;
}

/* Python's ssl has done what was asked of it. `is_inside`: it wrote, and not the whole frame. */
static void kd_session_asked(kd_session *session, int wrote, int is_inside) {
    kd_gate *gate = session->gate;
    if (gate == NULL) return;
    pthread_mutex_lock(&gate->lock);
    gate->is_shut = 0;
    if (wrote) gate->is_inside = is_inside;
    pthread_mutex_unlock(&gate->lock);
}

#endif
