import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic with Kafka's own consumer for a moment and prints what it measures: group, name, tags, description. */
public class Names {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("group.protocol", args[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("client.id", "java");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            int read = 0;
            while (read < Integer.parseInt(args[3])) {
                read += consumer.poll(Duration.ofSeconds(1)).count();
            }
            consumer.commitSync();
            consumer.committed(consumer.assignment());
            var lines = new TreeSet<String>();
            for (MetricName name : consumer.metrics().keySet()) {
                lines.add(name.group() + "\t" + name.name() + "\t" + String.join(",", new TreeSet<>(name.tags().keySet()))
                    + "\t" + name.description());
            }
            lines.forEach(System.out::println);
        }
    }
}
