#!/usr/bin/env bash
# Apache Kafka 4.4.0: a request for offsets of a share group is not answered if one of its partitions does not exist.
#
# Guess: listShareGroupOffsets() of a partition that its topic does not have answers with an error for that partition,
#        or without it, as listConsumerGroupOffsets() does.
# Seen: the broker does not answer DescribeShareGroupOffsets. Java's Admin runs into its timeout, also for the existing
#       partition in the same call. Asked for the existing partition alone, the broker answers at once.
# Who meets it: tools that ask for a fixed list of partitions, or for those of a topic that was made anew with fewer. Ask
#       for all partitions of the group (an empty specification), and choose among them.
# Needs Java 17 (JDK), Maven, Python. Takes a minute. Exits with 0 when it sees the behaviour, 1 when it has changed, 2
# when it could not tell.
# Output seen:
#   jobs-0: answered, start offset 0
#   jobs-0 and jobs-7: not answered within 15 s
#   SEEN
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -KILL "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck source=_kafka.sh
. "$here/_kafka.sh"
start_kafka 4.4.0 "$work"

cat >"$work/Offsets.java" <<'JAVA'
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

public class Offsets {
    public static void main(String[] servers) throws Exception {
        TopicPartition there = new TopicPartition("jobs", 0), missing = new TopicPartition("jobs", 7);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers[0], "request.timeout.ms", 15_000, "default.api.timeout.ms", 15_000);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic("jobs", Optional.of(1), Optional.empty()))).all().get();
            admin.alterShareGroupOffsets("queue", Map.of(there, 0L)).all().get();
            System.out.println("jobs-0: answered, start offset " + offsets(admin, List.of(there)).get(there));
            try {
                System.out.println("jobs-0 and jobs-7: answered, " + offsets(admin, List.of(there, missing)));
                System.exit(1);
            } catch (ExecutionException problem) {
                if (!(problem.getCause() instanceof TimeoutException)) {
                    System.out.println("jobs-0 and jobs-7: " + problem.getCause());
                    System.exit(1);
                }
                System.out.println("jobs-0 and jobs-7: not answered within 15 s");
                System.out.println("SEEN");
            }
        }
    }

    static Map<TopicPartition, Long> offsets(Admin admin, List<TopicPartition> of) throws Exception {
        var spec = Map.of("queue", new ListShareGroupOffsetsSpec().topicPartitions(of));
        var found = admin.listShareGroupOffsets(spec).partitionsToOffsetInfo("queue").get();
        var offsets = new java.util.HashMap<TopicPartition, Long>();
        found.forEach((each, info) -> offsets.put(each, info == null ? null : info.startOffset()));
        return offsets;
    }
}
JAVA
status=0
"${kafka[@]}" -Dorg.slf4j.simpleLogger.defaultLogLevel=off "$work/Offsets.java" "$servers" || status=$?
case $status in
    0 | 1) exit "$status" ;;
    *) exit 2 ;;
esac
