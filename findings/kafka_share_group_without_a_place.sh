#!/usr/bin/env bash
# Apache Kafka 4.4.0: a share group that has not acknowledged anything forgets what is written while its member is away.
#
# Guess: share.auto.offset.reset=latest (the default) chooses a start once, when the group first reads a partition. What
#        is written later is delivered, also after the member was away, as with a consumer group that has committed.
# Seen: the chosen start is stored with the first acknowledgement, not before. A member that polled an idle topic, closed
#       and came back gets none of the 10 records that were written in between. After one acknowledged record the same
#       absence costs nothing.
# Who meets it: a new queue whose worker is deployed before its first job, and is restarted while the first jobs come.
#       Set share.auto.offset.reset=earliest for the group, or its offsets (alterShareGroupOffsets), before it first reads.
# Needs Java 17 (JDK), Maven, Python. Takes a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2
# when it could not tell.
# Output seen:
#   idle before it went: 0 of the 10 records that were written meanwhile
#   had acknowledged one: 10 of the 10 records that were written meanwhile
#   SEEN
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -KILL "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck source=_kafka.sh
. "$here/_kafka.sh"
start_kafka 4.4.0 "$work" group.share.heartbeat.interval.ms=500 group.share.min.heartbeat.interval.ms=500

cat >"$work/Away.java" <<'JAVA'
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Away {
    static String servers;

    public static void main(String[] given) throws Exception {
        servers = given[0];
        int idle = story("idle", false), busy = story("busy", true);
        System.out.println("idle before it went: " + idle + " of the 10 records that were written meanwhile");
        System.out.println("had acknowledged one: " + busy + " of the 10 records that were written meanwhile");
        if (busy != 10) {
            System.exit(2);
        }
        System.out.println(idle == 0 ? "SEEN" : "changed");
        System.exit(idle == 0 ? 0 : 1);
    }

    /** A member polls for 8 s and goes, 10 records are written, and a member polls again. How many come? */
    static int story(String name, boolean acknowledges) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic(name, Optional.of(1), Optional.empty()))).all().get();
        }
        try (KafkaShareConsumer<String, String> member = member(name)) {
            poll(member, 6);
            if (acknowledges) {
                write(name, 1);
                if (poll(member, 2) != 1) {
                    System.exit(2);
                }
                member.commitSync();
            } else {
                poll(member, 2);
            }
        }
        Thread.sleep(1_000);
        write(name, 10);
        try (KafkaShareConsumer<String, String> member = member(name)) {
            return poll(member, 8);
        }
    }

    static KafkaShareConsumer<String, String> member(String name) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "group.id", name);
        var member = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        member.subscribe(List.of(name));
        return member;
    }

    static int poll(KafkaShareConsumer<String, String> member, int seconds) {
        int count = 0;
        for (long end = System.nanoTime() + seconds * 1_000_000_000L; System.nanoTime() < end; ) {
            count += member.poll(Duration.ofMillis(200)).count();
        }
        return count;
    }

    static void write(String topic, int count) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, "job " + number)).get();
            }
        }
    }
}
JAVA
status=0
"${kafka[@]}" -Dorg.slf4j.simpleLogger.defaultLogLevel=off "$work/Away.java" "$servers" || status=$?
case $status in
    0 | 1) exit "$status" ;;
    *) exit 2 ;;
esac
