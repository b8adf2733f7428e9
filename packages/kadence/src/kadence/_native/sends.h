/* A request with one batch of one partition, which the application's thread writes by itself (direct.h). */
#ifndef KADENCE_SENDS_H
#define KADENCE_SENDS_H

#include "crc32c.h"
#include "following.h"
#include "frame.h"

#define KD_SEND_MOST 16384 /* bytes of a request: every socket takes so much at once when nothing else is on its way */

/* Write the header of an uncompressed batch, with its checksum. */
static void kd_send_seal(kd_frame *frame, long long producer_id, int epoch, int sequence) {
    unsigned char *p = kd_put_number(frame->data, 0, 8);
    uint32_t crc;
    p = kd_put_number(p, (uint64_t)(frame->used - 12), 4);
    p = kd_put_number(p, 0xFFFFFFFF, 4); /* leader epoch */
    *p++ = 2; /* magic */
    p += 4;
    p = kd_put_number(p, 0, 2); /* attributes */
    p = kd_put_number(p, (uint64_t)(frame->count - 1), 4);
    p = kd_put_number(p, (uint64_t)frame->base, 8);
    p = kd_put_number(p, (uint64_t)frame->latest, 8);
    p = kd_put_number(p, (uint64_t)producer_id, 8);
    p = kd_put_number(p, (uint64_t)epoch, 2);
    p = kd_put_number(p, (uint64_t)sequence, 4);
    kd_put_number(p, (uint64_t)frame->count, 4);
    crc = kd_crc32c(0, frame->data + 21, (size_t)frame->used - 21, 0);
    kd_put_number(frame->data + 17, crc, 4);
}

/* Put a request together: head, length of the batch, batch, tail. Its length; 0: it is too long. */
static size_t kd_send_request(
    unsigned char *into, const unsigned char *head, size_t head_length, const kd_frame *frame,
    const unsigned char *tail, size_t tail_length
) {
    size_t size = (size_t)frame->used + 1;
    unsigned char *p = into;
    if (head_length + (size_t)frame->used + tail_length + 5 > KD_SEND_MOST) return 0;
    memcpy(p, head, head_length);
    p += head_length;
    for (; size >= 0x80; size >>= 7) *p++ = (unsigned char)(size | 0x80);
    *p++ = (unsigned char)size;
    memcpy(p, frame->data, (size_t)frame->used);
    p += frame->used;
    memcpy(p, tail, tail_length);
    p += tail_length;
    kd_put_number(into, (uint64_t)(p - into - 4), 4);
    return (size_t)(p - into);
}

#endif
