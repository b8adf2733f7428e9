#!/usr/bin/env bash
# Apache Kafka 4.4.0: the dead letter queue of a share group gets transaction markers, as if they were records.
#
# Guess: the dead letter queue (KIP-1191, new in 4.4.0) gets the records that the group could not process: those that a
#       member rejects, and those whose delivery count reaches its limit. A marker of a transaction is no record: no
#       consumer is given one, and no member of the group was.
# Seen: where members reject the records, the queue has these and nothing else. Where the members die or let the lock time
#       run out until the limit is reached, it has an entry for each marker among them, too. With
#       errors.deadletterqueue.copy.record.enable its key and value are the bytes of the marker; without, the entry names an
#       offset at which nobody can read a record. Nothing but the offset tells such an entry from a record.
# Who meets it: share groups that read what transactional producers write, such as Kafka Streams with exactly_once_v2,
#       which adds a marker with each commit. Whoever replays the queue sends four and six bytes of binary data to the
#       topic that had JSON, or waits for a record that is not there. Tried with share.isolation.level=read_committed.
# Needs Java 17 (JDK), Maven, Python. Takes a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2
# when it could not tell.
# Output seen:
#   rejected: the members got 0 1 6 7, the queue has 0=a 1=b 6=e 7=f
#   timed out: the members got 0 1 6 7, the queue has 0=a 1=b 2=(00000001 000000000000) 5=(00000000 000000000000) 6=e 7=f 8=(00000001 000000000000)
#   timed out, not copied: the members got 0 1 6 7, the queue names 0 1 2 5 6 7 8
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -KILL "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck source=_kafka.sh
. "$here/_kafka.sh"
start_kafka 4.4.0 "$work" transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 \
    transaction.state.log.num.partitions=1 group.share.min.record.lock.duration.ms=1000 broker.session.timeout.ms=120000

cat >"$work/Letters.java" <<'JAVA'
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Letters {
    static final int LIMIT = 2; // deliveries
    static String servers;

    public static void main(String[] given) throws Exception {
        servers = given[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic("jobs", Optional.of(1), Optional.empty()))).all().get();
            write();
            group(admin, "rejected", true);
            group(admin, "timed-out", true);
            group(admin, "not-copied", false);
        }
        String rejected = words(members("rejected", true));
        String timedOut = words(members("timed-out", false));
        String notCopied = words(members("not-copied", false));
        Map<String, TreeMap<Long, String>> letters = letters();
        System.out.println("rejected: the members got " + rejected
            + ", the queue has " + words(letters.get("rejected").values()));
        System.out.println("timed out: the members got " + timedOut
            + ", the queue has " + words(letters.get("timed-out").values()));
        System.out.println("timed out, not copied: the members got " + notCopied
            + ", the queue names " + words(letters.get("not-copied").keySet()));
        Runtime.getRuntime().halt(0);
    }

    /** Three transactions, the second of them aborted. */
    static void write() {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", servers, "transactional.id", "writer"), new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (String values : List.of("ab", "cd", "ef")) {
                producer.beginTransaction();
                for (String value : values.split("")) {
                    producer.send(new ProducerRecord<>("jobs", "key", value));
                }
                producer.flush();
                if (values.equals("cd")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    static void group(Admin admin, String name, boolean copy) throws Exception {
        admin.createTopics(List.of(new NewTopic("dlq." + name, Optional.of(1), Optional.empty())
            .configs(Map.of("errors.deadletterqueue.group.enable", "true")))).all().get();
        List<AlterConfigOp> settings = new ArrayList<>();
        Map.of(
            "errors.deadletterqueue.topic.name", "dlq." + name,
            "errors.deadletterqueue.copy.record.enable", String.valueOf(copy),
            "share.auto.offset.reset", "earliest",
            "share.delivery.count.limit", String.valueOf(LIMIT),
            "share.isolation.level", "read_committed",
            "share.record.lock.duration.ms", "5000").forEach((setting, value) ->
                settings.add(new AlterConfigOp(new ConfigEntry(setting, value), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, name), settings)).all().get();
    }

    /** The offsets that a group's members are given. A member rejects them, or each lets the time of its lock run out. */
    static Collection<?> members(String group, boolean reject) throws Exception {
        TreeSet<Long> offsets = new TreeSet<>();
        for (int delivery = 0; delivery < (reject ? 1 : LIMIT); delivery++) {
            KafkaShareConsumer<String, String> member = new KafkaShareConsumer<>(
                Map.of("bootstrap.servers", servers, "group.id", group, "share.acknowledgement.mode", "explicit"),
                new StringDeserializer(), new StringDeserializer());
            member.subscribe(List.of("jobs"));
            ConsumerRecords<String, String> records;
            long end = System.nanoTime() + 120_000_000_000L;
            do {
                records = member.poll(Duration.ofSeconds(1));
            } while (records.isEmpty() && System.nanoTime() < end);
            for (ConsumerRecord<String, String> record : records) {
                offsets.add(record.offset());
                if (reject) {
                    member.acknowledge(record, AcknowledgeType.REJECT);
                }
            }
            if (reject) {
                member.commitSync();
            }
            // It neither acknowledges nor leaves otherwise, like one that hangs.
        }
        return offsets;
    }

    /** The entries of each group's queue by offset: until each has as many as there are records, and 20 s bring no more. */
    static Map<String, TreeMap<Long, String>> letters() {
        Map<String, TreeMap<Long, String>> letters = Map.of(
            "rejected", new TreeMap<>(), "timed-out", new TreeMap<>(), "not-copied", new TreeMap<>());
        List<TopicPartition> queues = letters.keySet().stream().map(group -> new TopicPartition("dlq." + group, 0)).toList();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            Map.of("bootstrap.servers", servers), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(queues);
            consumer.seekToBeginning(queues);
            long start = System.nanoTime(), last = start;
            boolean enough = false;
            while (System.nanoTime() < (enough ? last + 20_000_000_000L : start + 900_000_000_000L)) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    byte[] header = record.headers().lastHeader("__dlq.errors.offset").value();
                    String offset = new String(header, StandardCharsets.UTF_8);
                    letters.get(record.topic().substring(4)).put(Long.valueOf(offset), offset + "=" + shown(record));
                    last = System.nanoTime();
                }
                enough = letters.values().stream().allMatch(queue -> queue.size() >= 4);
            }
        }
        return letters;
    }

    static String shown(ConsumerRecord<byte[], byte[]> record) {
        if (record.value() == null) {
            return "null";
        }
        String value = new String(record.value(), StandardCharsets.UTF_8);
        return value.matches("[a-f]") ? value : "(" + hex(record.key()) + " " + hex(record.value()) + ")";
    }

    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    static String words(Collection<?> values) {
        return String.join(" ", values.stream().map(String::valueOf).toList());
    }
}
JAVA
timeout 1200 "${kafka[@]}" "$work/Letters.java" "$servers" 2>"$work/errors" | tee "$work/seen" || { tail -5 "$work/errors"; exit 2; }
sed -n 's/^#   \(rejected\|timed out\)/\1/p' "$here/kafka_share_dlq_has_markers.sh" >"$work/expected"
[ -s "$work/expected" ] || exit 2
cmp -s "$work/seen" "$work/expected" || { echo changed; exit 1; }
