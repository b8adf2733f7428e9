#!/usr/bin/env bash
# Apache Kafka 4.4.0: after a restart of the leader a share group may stand still for good, with all its records acknowledged.
#
# Guess: when members have acknowledged all that they got, the start of the share-partition moves over it, and the next
#       poll returns the next records. It does so whether or not the leader was restarted in between.
# Seen: records are acknowledged behind others that are not, and the leader is restarted. It reads the ones before them anew.
#       One of these is released and delivered a second time. All are acknowledged then, each commit succeeds, and the
#       window of the partition stays full (group.share.partition.max.record.locks, 2,000 by default): nobody gets another
#       record. Another restart ends it. Where nothing is released, the group goes on. It seems that the leader keeps
#       where the records begin that its stored state does not know, and that the second delivery moves that place back.
# Who meets it: queues whose window is full now and then, which is where slow work leads to, after any move of a leader.
# Needs Java 17 (JDK), Maven, Python. Takes two minutes. Exits with 0 when it sees the behaviour, 1 when it has changed, 2
# when it could not tell.
# Output seen:
#   first got 0 to 119, acknowledges 100 to 119; the broker is killed and starts again
#   second got 0 to 99, acknowledges all but 5 and 98, which it releases
#   second got 5 98, acknowledges them
#   second got nothing in 30 s; the broker is killed and starts again
#   third got 120 to 159
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -KILL "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck source=_kafka.sh
. "$here/_kafka.sh"
start_kafka 4.4.0 "$work" group.share.partition.max.record.locks=100 group.share.min.partition.max.record.locks=100

restart() {
    kill -KILL "$broker"
    wait "$broker" 2>/dev/null || true
    rm "$work/server.log"
    "${kafka[@]}" kafka.Kafka "$work/server.properties" >"$work/server.log" 2>&1 </dev/null &
    broker=$!
    until grep -qs "Kafka Server started" "$work/server.log"; do
        kill -0 "$broker" 2>/dev/null || { tail -30 "$work/server.log"; exit 2; }
        sleep 0.2
    done
}

cat >"$work/Queue.java" <<'JAVA'
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Queue {
    static String servers;
    static KafkaShareConsumer<String, String> member;

    public static void main(String[] given) throws Exception {
        servers = given[1];
        String part = given[0];
        if (part.equals("first")) {
            prepare();
        }
        member = new KafkaShareConsumer<>(
            Map.of(
                "bootstrap.servers", servers,
                "group.id", "jobs-group",
                "share.acknowledgement.mode", "explicit",
                "max.poll.records", "500"),
            new StringDeserializer(),
            new StringDeserializer());
        member.subscribe(List.of("jobs"));
        if (part.equals("first")) {
            List<Long> got = poll(60, 120, record -> record.offset() >= 100 ? AcknowledgeType.ACCEPT : null);
            say("first got " + shown(got) + ", acknowledges 100 to 119; the broker is killed and starts again");
        } else if (part.equals("second")) {
            List<Long> got = poll(60, 100, record -> record.offset() == 5 || record.offset() == 98
                ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
            say("second got " + shown(got) + ", acknowledges all but 5 and 98, which it releases");
            got = poll(60, 2, record -> AcknowledgeType.ACCEPT);
            say("second got " + shown(got) + ", acknowledges them");
            got = poll(30, 40, record -> AcknowledgeType.ACCEPT);
            say("second got " + shown(got) + (got.isEmpty() ? " in 30 s" : "") + "; the broker is killed and starts again");
        } else {
            say("third got " + shown(poll(60, 40, record -> AcknowledgeType.ACCEPT)));
        }
        // It does not leave: what it has not acknowledged stays with it.
        Runtime.getRuntime().halt(0);
    }

    static void prepare() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic("jobs", Optional.of(1), Optional.empty()))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "jobs-group");
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", servers, "linger.ms", "60000"), new StringSerializer(), new StringSerializer())) {
            for (int batch = 0; batch < 4; batch++) {
                for (int n = 0; n < 40; n++) {
                    producer.send(new ProducerRecord<>("jobs", "job"));
                }
                producer.flush();
            }
        }
    }

    interface Choice {
        AcknowledgeType of(ConsumerRecord<String, String> record);
    }

    /** Poll until so many records have come, or for so long; acknowledge what is chosen, and commit. */
    static List<Long> poll(int seconds, int count, Choice choice) {
        List<Long> got = new ArrayList<>();
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (got.size() < count && System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : member.poll(Duration.ofSeconds(1))) {
                got.add(record.offset());
                AcknowledgeType type = choice.of(record);
                // Explicit mode wants a word on each record before the next poll. RENEW keeps it.
                member.acknowledge(record, type == null ? AcknowledgeType.RENEW : type);
            }
        }
        member.commitSync().forEach((partition, error) -> error.ifPresent(problem -> say("refused: " + problem)));
        return got;
    }

    static String shown(List<Long> offsets) {
        if (offsets.isEmpty()) {
            return "nothing";
        }
        long first = offsets.get(0), last = offsets.get(offsets.size() - 1);
        if (offsets.size() > 2 && last - first == offsets.size() - 1) {
            return first + " to " + last;
        }
        return String.join(" ", offsets.stream().map(String::valueOf).toList());
    }

    static void say(String what) {
        System.out.println(what);
        System.out.flush();
    }
}
JAVA

run() {
    timeout 200 "${kafka[@]}" "$work/Queue.java" "$1" "$servers" 2>>"$work/errors" | tee -a "$work/seen" ||
        { tail -5 "$work/errors"; exit 2; }
}
run first
restart
run second
restart
run third
sed -n 's/^#   \(first\|second\|third\) got/\1 got/p' "$here/kafka_share_group_stands_still.sh" >"$work/expected"
[ -s "$work/expected" ] || exit 2
cmp -s "$work/seen" "$work/expected" || { echo changed; exit 1; }
