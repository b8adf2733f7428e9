/* The part of threads.c where an application thread writes requests by itself, beside a network thread and a third one.
 *
 * The broker leaves some requests without their plain answer, and some until the network thread has taken them over. Some
 * answers nobody waits for, or not for long. The number of answers, of requests and of what was taken over must be the
 * same on all sides, and a free part of an answer must come with it. Of some requests only the beginning of the answer is
 * known, so that an error is plain, too, and all of it must be kept.
 */
#define ASKS 3000
#define ASK 24

typedef struct {
    kd_session session;
    kd_intake intake;
    kd_gate gate;
    int fds[2], wake, is_over;
    int answered, taken_over, counted; /* as the application, and the network thread, have it */
    int32_t next_id;
} direct_side;

static void answer_of(uint32_t id, unsigned char at[24]) {
    memset(at, 0, 24);
    put_number(at, 20);
    put_number(at + 4, id);
}

/* Each seventh answer has an error, which is not plain. The free part has the number of the request. */
static void *broker_of_requests(void *argument) {
    direct_side *side = argument;
    unsigned char request[ASK], answer[24];
    int number = 0;
    while (frame_from(side->fds[1], request, ASK) > 0) {
        answer_of(kd_u32(request + 4), answer);
        put_number(answer + 8, kd_u32(request + 4));
        if (++number % 7 == 0) answer[23] = 1;
        EXPECT(send(side->fds[1], answer, 24, MSG_NOSIGNAL) == 24);
    }
    return NULL;
}

static void *asking_thread(void *argument) {
    direct_side *side = argument;
    unsigned char request[ASK] = {0}, answer[24];
    /* Each stays where it is until the next one is out. */
    static kd_asked places[2];
    static kd_flag flags[2];
    int number = 0;
    put_number(request, ASK - KD_LENGTH_BYTES);
    answer_of(0, answer);
    flags[0].fd = flags[1].fd = -1;
    pthread_mutex_lock(&interpreter);
    while (side->answered + side->taken_over < ASKS) {
        kd_asked *asked = &places[number % 2];
        kd_flag *flag = &flags[number % 2];
        int is_out = 0, is_late = number % 3 == 1, is_short = number % 3 == 2;
        size_t known = number % 5 == 0 ? 8 : 24;
        uint32_t turn = kd_direct_turn(&side->intake.direct);
        asked->outcome = is_late ? KD_DIRECT_UNAWAITED : KD_DIRECT_WAITING;
        asked->keeps = known == 8;
        kd_flag_enter(flag);
        if (turn) {
            is_out = kd_direct_ask(
                &side->intake.direct, &side->session, turn, request, ASK, answer, known, 8, known == 8 ? 0 : 8, asked, flag,
                kd_now_ms()
            );
        }
        number += is_out;
        if (is_out && is_late) kd_direct_await(asked);
        while (is_out && kd_direct_outcome(asked) == KD_DIRECT_WAITING) {
            pthread_mutex_unlock(&interpreter);
            kd_flag_wait(flag, is_short ? 20000 : 5000000);
            pthread_mutex_lock(&interpreter);
            if (is_short) kd_direct_forsake(asked);
        }
        while (is_out && kd_direct_outcome(asked) == KD_DIRECT_UNAWAITED) {
            pthread_mutex_unlock(&interpreter);
            poll(NULL, 0, 1);
            pthread_mutex_lock(&interpreter);
        }
        kd_flag_await(flag, 0);
        if (is_out && kd_direct_outcome(asked) == KD_DIRECT_ANSWERED) {
            EXPECT(!asked->keeps || (asked->kept != NULL && asked->kept_length == 16));
            EXPECT(kd_u32(asked->keeps ? asked->kept : asked->found) == kd_u32(request + 8));
            side->answered++;
        } else if (is_out) {
            EXPECT(asked->kept == NULL);
            side->taken_over++;
        }
        if (is_out) {
            free(asked->kept);
            asked->kept = NULL;
        }
        pthread_mutex_unlock(&interpreter);
        if (!is_out) poll(NULL, 0, 1);
        pthread_mutex_lock(&interpreter);
    }
    side->is_over = 1;
    pthread_mutex_unlock(&interpreter);
    return NULL;
}

static void *waking_thread(void *argument) {
    static const uint64_t one = 1;
    direct_side *side = argument;
    int is_over = 0;
    while (!is_over) {
        EXPECT(write(side->wake, &one, sizeof one) == sizeof one);
        poll(NULL, 0, 2);
        pthread_mutex_lock(&interpreter);
        is_over = side->is_over;
        pthread_mutex_unlock(&interpreter);
    }
    return NULL;
}

static void run_direct(void) {
    static direct_side side;
    struct pollfd fds[2];
    kd_intake *intakes[2] = {NULL, &side.intake};
    pthread_t broker, asking, waking;
    int left = 0, taken = 0;
    kd_direct_init(&side.intake.direct);
    pthread_mutex_init(&side.gate.lock, NULL);
    connected(side.fds, 0);
    side.session.fd = side.fds[0];
    side.session.gate = &side.gate;
    side.intake.session = &side.session;
    side.intake.wanted = POLLIN;
    EXPECT((side.intake.room = malloc(KD_ROOM)) != NULL && (side.wake = eventfd(0, EFD_NONBLOCK)) >= 0);
    fds[0] = (struct pollfd){side.wake, POLLIN, 0};
    fds[1] = (struct pollfd){side.fds[0], POLLIN, 0};
    broker = started(broker_of_requests, &side);
    pthread_mutex_lock(&interpreter);
    asking = started(asking_thread, &side);
    waking = started(waking_thread, &side);
    /* As Poller.wait, and as `kadence.net.direct`. */
    while (!side.is_over || left) {
        if (kd_look(fds, intakes, 2, 0) == 0) {
            if (!left) kd_direct_open(&side.intake.direct, side.next_id, 1);
            pthread_mutex_unlock(&interpreter);
            kd_wait(fds, intakes, 2, 5);
            pthread_mutex_lock(&interpreter);
        }
        if (kd_direct_shut(&side.intake.direct)) {
            int count = side.intake.direct.answered;
            EXPECT(!left);
            left = side.intake.direct.state == KD_DIRECT_LEFT;
            side.counted += count;
            side.next_id += count + left;
            kd_direct_counted(&side.intake.direct);
        }
        while (kd_has_frame(&side.intake)) {
            unsigned char *frame = side.intake.room + side.intake.begin;
            /* What Python sees is the answer to what it has taken over. */
            EXPECT(left && kd_u32(frame + 4) == (uint32_t)side.next_id - 1);
            side.intake.begin += 24;
            taken++;
            left = 0;
        }
    }
    pthread_mutex_unlock(&interpreter);
    EXPECT(pthread_join(asking, NULL) == 0 && pthread_join(waking, NULL) == 0);
    EXPECT(shutdown(side.fds[0], SHUT_RDWR) == 0 && pthread_join(broker, NULL) == 0);
    EXPECT(side.counted == side.answered && taken == side.taken_over && side.answered > 0 && taken > 0);
    close(side.fds[0]);
    close(side.fds[1]);
    free(side.intake.room);
    printf("%d answered, %d taken over\n", side.answered, taken);
}
