/* An answer with records, and the next Fetch of its session, as bytes.
 *
 * The next Fetch names each partition that had records, with the offset after them. The answer and the session's state of
 * each partition (`asked`) have all that this needs. Python handles every other answer: an error, a throttle, tags, another
 * replica, aborted transactions, a truncated batch or one of an older format.
 */
#ifndef KADENCE_FOLLOWING_H
#define KADENCE_FOLLOWING_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The versions of Fetch whose layout this file and intake.h know; before the first, requests do not name topics
 * by id. Before you raise the last, read what is new in requests and answers. `Intake` refuses frames of other versions. */
#define KD_FIRST_WITH_IDS 13
#define KD_LAST_KNOWN_LAYOUT 18

#define KD_UUID 16
#define KD_ASKED 28 /* topic id, partition, leader epoch and size of one partition, as they stand in a request */
#define KD_MOST_NAMED 127 /* topics, or partitions of one: their count takes one byte */
#define KD_MOST_ASKED 256 /* partitions of a session */
#define KD_BATCH_HEADER 61
#define KD_OVERHEAD 12 /* bytes of a batch that its length field does not count */
#define KD_SAME_HEAD 15 /* of an answer: correlation id, tags, throttle, error and session id */

typedef struct {
    const unsigned char *at, *end;
    int is_bad;
} kd_bytes;

/* One partition of an answer. `records` is NULL without any. */
typedef struct {
    const unsigned char *topic_id, *index, *offsets, *records;
    size_t length;
} kd_part;

static uint32_t kd_u32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static int64_t kd_i64(const unsigned char *p) {
    return (int64_t)((uint64_t)kd_u32(p) << 32 | kd_u32(p + 4));
}

static const unsigned char *kd_skip(kd_bytes *bytes, size_t count) {
    const unsigned char *at = bytes->at;
    if (bytes->is_bad || (size_t)(bytes->end - at) < count) {
        bytes->is_bad = 1;
        return NULL;
    }
    bytes->at += count;
    return at;
}

static uint32_t kd_uvarint(kd_bytes *bytes) {
    uint32_t value = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        const unsigned char *at = kd_skip(bytes, 1);
        if (at == NULL) return 0;
        value |= (uint32_t)(*at & 0x7f) << shift;
        if (!(*at & 0x80)) return value;
    }
    bytes->is_bad = 1;
    return 0;
}

static void kd_expect(kd_bytes *bytes, uint32_t value) {
    if (kd_uvarint(bytes) != value) bytes->is_bad = 1;
}

/* The number of elements of an array. */
static uint32_t kd_elements(kd_bytes *bytes) {
    uint32_t count = kd_uvarint(bytes);
    if (count == 0) bytes->is_bad = 1;
    return count - 1;
}

/* The next partition of a topic. */
static kd_part kd_next_part(kd_bytes *bytes, const unsigned char *topic_id) {
    kd_part part = {topic_id, kd_skip(bytes, 4), NULL, NULL, 0};
    const unsigned char *error = kd_skip(bytes, 2), *replica;
    uint32_t size;
    part.offsets = kd_skip(bytes, 24);
    if (kd_uvarint(bytes) > 1) bytes->is_bad = 1; /* aborted transactions */
    replica = kd_skip(bytes, 4);
    size = kd_uvarint(bytes);
    if (size > 1) {
        part.length = size - 1;
        part.records = kd_skip(bytes, part.length);
    }
    kd_expect(bytes, 0);
    if (bytes->is_bad || error[0] || error[1] || kd_u32(replica) != 0xffffffff) bytes->is_bad = 1;
    return part;
}

/* The offset behind the last batch and its leader epoch. 0: these are not whole batches one after the other. */
static int kd_behind(const kd_part *part, int64_t *offset, uint32_t *epoch) {
    const unsigned char *at = part->records, *end = at + part->length;
    *offset = -1;
    while (at < end) {
        int32_t length, delta;
        int64_t base;
        if (end - at < KD_BATCH_HEADER || at[16] != 2) return 0;
        length = (int32_t)kd_u32(at + 8);
        delta = (int32_t)kd_u32(at + 23);
        base = kd_i64(at);
        *epoch = kd_u32(at + 12);
        if (length < KD_BATCH_HEADER - KD_OVERHEAD || length > end - at - KD_OVERHEAD) return 0;
        if (base < 0 || base < *offset || base >= INT64_MAX - INT32_MAX || delta < 0 || (int32_t)*epoch < 0) return 0;
        if ((int32_t)kd_u32(at + 57) < 0) return 0;
        *offset = base + delta + 1;
        at += length + KD_OVERHEAD;
    }
    return *offset >= 0;
}

static unsigned char *kd_put_copy(unsigned char *at, const void *bytes, size_t count) {
    memcpy(at, bytes, count);
    return at + count;
}

static unsigned char *kd_put_number(unsigned char *at, uint64_t value, int bytes) {
    while (bytes-- > 0) *at++ = (unsigned char)(value >> (8 * bytes));
    return at;
}

/* The index of this partition among those of the session; below 0: none. */
static int kd_asked_of(const unsigned char *asked, size_t length, const kd_part *part) {
    for (size_t at = 0; at + KD_ASKED <= length && at < KD_MOST_ASKED * KD_ASKED; at += KD_ASKED) {
        if (memcmp(asked + at, part->topic_id, KD_UUID) == 0 && memcmp(asked + at + KD_UUID, part->index, 4) == 0) {
            return (int)(at / KD_ASKED);
        }
    }
    return -1;
}

/* Write the topics that the next Fetch names, for the rest of an answer after its head. Returns their end; NULL: the answer
 * is not plain. `at` has as much room as the answer: a partition takes less there than in the answer. */
static unsigned char *kd_follow(
    const unsigned char *answer, size_t length, const unsigned char *asked, size_t asked_length, unsigned char *at
) {
    kd_bytes bytes = {answer, answer + length, 0};
    uint32_t topics = kd_elements(&bytes), named = 0;
    unsigned char *start = at++, seen[KD_MOST_ASKED] = {0};
    for (uint32_t topic = 0; topic < topics && !bytes.is_bad; topic++) {
        const unsigned char *topic_id = kd_skip(&bytes, KD_UUID);
        uint32_t parts = kd_elements(&bytes), count = 0;
        unsigned char *counted;
        if (bytes.is_bad) return NULL;
        counted = at + KD_UUID;
        at = kd_put_copy(at, topic_id, KD_UUID) + 1;
        for (uint32_t number = 0; number < parts && !bytes.is_bad; number++) {
            kd_part part = kd_next_part(&bytes, topic_id);
            const unsigned char *want;
            int place;
            int64_t offset;
            uint32_t epoch;
            if (bytes.is_bad) return NULL;
            place = kd_asked_of(asked, asked_length, &part);
            if (place < 0 || seen[place]) return NULL;
            seen[place] = 1;
            want = asked + (size_t)place * KD_ASKED;
            if (part.records == NULL) continue;
            if (!kd_behind(&part, &offset, &epoch)) return NULL;
            at = kd_put_copy(at, want + KD_UUID, 8);
            at = kd_put_number(at, (uint64_t)offset, 8);
            at = kd_put_number(at, epoch, 4);
            at = kd_put_number(at, UINT64_MAX, 8);
            at = kd_put_copy(at, want + KD_UUID + 8, 4);
            *at++ = 0;
            count++;
        }
        kd_expect(&bytes, 0);
        if (count == 0) {
            at = counted - KD_UUID;
            continue;
        }
        if (count >= KD_MOST_NAMED) return NULL;
        *counted = (unsigned char)(count + 1);
        *at++ = 0;
        named++;
    }
    kd_expect(&bytes, 0);
    if (bytes.is_bad || bytes.at != bytes.end || named == 0 || named >= KD_MOST_NAMED) return NULL;
    *start = (unsigned char)(named + 1);
    return at;
}

#endif
