import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.timeline.SnapshotRegistry;
import org.apache.kafka.timeline.TimelineHashMap;

/** Reads groups from standard input, as simple_oracle.py writes them, and prints what Kafka's own SimpleAssignor assigns. */
public class SimpleOracle {
    record Topic(Uuid id, int count, Set<Integer> assignable) {}

    static final Map<String, Topic> topics = new HashMap<>();
    static final Map<Uuid, Topic> byId = new HashMap<>();
    static TimelineHashMap<String, String[]> members;
    static boolean same;

    static Uuid uuid(String hex) {
        return new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
    }

    static String hex(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    static List<String> parts(String text, String between) {
        List<String> found = new ArrayList<>();
        for (String each : text.split(between)) if (!each.isEmpty()) found.add(each);
        return found;
    }

    static Set<Integer> numbers(String text) {
        return new HashSet<>(parts(text, "\\.").stream().map(Integer::parseInt).toList());
    }

    static MemberSubscriptionAndAssignmentImpl member(String[] words) {
        Set<Uuid> ids = new LinkedHashSet<>();
        for (String name : new HashSet<>(parts(words[2], ","))) if (topics.containsKey(name)) ids.add(topics.get(name).id());
        Map<Uuid, Set<Integer>> had = new HashMap<>();
        for (String each : parts(words[3], ";")) had.put(uuid(each.substring(0, 32)), numbers(each.substring(33)));
        return new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.empty(), ids, new Assignment(had));
    }

    static void assign() {
        Map<String, MemberSubscriptionAndAssignmentImpl> specs = new HashMap<>();
        members.forEach((id, words) -> specs.put(id, member(words)));
        Map<Uuid, Set<Integer>> assignable = new HashMap<>();
        byId.forEach((id, topic) -> assignable.put(id, topic.assignable()));
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) {
                return byId.containsKey(id) ? byId.get(id).count() : -1;
            }

            public Set<String> racksForPartition(Uuid id, int partition) {
                return Set.of();
            }
        };
        SubscriptionType type = same ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Map<String, MemberAssignment> result = new SimpleAssignor().assign(
            new GroupSpecImpl(Collections.unmodifiableMap(specs), type, Map.of(), Optional.of(assignable)), describer).members();
        for (String id : specs.keySet()) {
            StringBuilder text = new StringBuilder("member " + id + " ");
            if (result.containsKey(id)) {
                new TreeMap<>(result.get(id).partitions()).forEach((topic, partitions) -> {
                    text.append(hex(topic)).append(':');
                    for (int each : new TreeSet<>(partitions)) text.append(each).append('.');
                    text.append(';');
                });
            }
            System.out.println(text);
        }
        System.out.println("end");
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "case" -> {
                    topics.clear();
                    byId.clear();
                    members = new TimelineHashMap<>(new SnapshotRegistry(new LogContext()), 0);
                    same = words[1].equals("same");
                }
                case "topic" -> {
                    Topic topic = new Topic(uuid(words[2]), Integer.parseInt(words[3]), numbers(words[4]));
                    topics.put(words[1], topic);
                    byId.put(topic.id(), topic);
                }
                case "member" -> members.put(words[1], words);
                default -> assign();
            }
        }
    }
}
