/* A long frame on its way out of a plain connection: its pieces, which the waiting thread writes.
 *
 * A socket takes some ten KiB at a time, as the peer reads them. If Python wrote them, the network thread would need
 * the interpreter each time, and might wait a switch interval for it beside a thread that computes. So kd_wait
 * (intake.h) writes the pieces without the interpreter, several with one system call. Python looks at them only when
 * it has more to write.
 */
#ifndef KADENCE_OUTBOX_H
#define KADENCE_OUTBOX_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#define KD_PIECES 64 /* of one system call; every system takes as many */

typedef struct {
    struct iovec *pieces; /* NULL: nothing was ever put in */
    int next, count;
    size_t unwritten; /* bytes */
    int failed; /* errno of a write that failed, 0: none. The unwritten rest is then dropped. */
} kd_outbox;

/* Room for so many pieces, when all that was put in before is written; 0 without memory. */
static inline int kd_outbox_empty(kd_outbox *box, int count) {
    struct iovec *pieces = (struct iovec *)realloc(box->pieces, (size_t)(count > 0 ? count : 1) * sizeof(struct iovec));
    if (pieces == NULL) return 0;
    box->pieces = pieces;
    box->next = box->count = 0;
    return 1;
}

/* The memory stays where it is until all is written. */
static inline void kd_outbox_put(kd_outbox *box, void *data, size_t length) {
    box->pieces[box->count].iov_base = data;
    box->pieces[box->count++].iov_len = length;
    box->unwritten += length;
}

/* Write what fits. Never waits. */
static inline void kd_outbox_write(kd_outbox *box, int fd, int flags) {
    while (box->unwritten > 0) {
        struct msghdr message;
        ssize_t written;
        int left = box->count - box->next;
        memset(&message, 0, sizeof message);
        message.msg_iov = box->pieces + box->next;
        message.msg_iovlen = left < KD_PIECES ? left : KD_PIECES;
        written = sendmsg(fd, &message, flags);
        if (written < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
            box->failed = errno;
            box->unwritten = 0;
            return;
        }
        box->unwritten -= (size_t)written;
        while (box->next < box->count && (size_t)written >= box->pieces[box->next].iov_len)
            written -= (ssize_t)box->pieces[box->next++].iov_len;
        if (box->next < box->count) {
            box->pieces[box->next].iov_base = (char *)box->pieces[box->next].iov_base + written;
            box->pieces[box->next].iov_len -= (size_t)written;
        }
    }
}

#endif
