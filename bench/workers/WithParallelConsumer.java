import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A worker with Confluent's parallel consumer, as its README has it. */
public class WithParallelConsumer {
    static final Map<String, ProcessingOrder> ORDERS = Map.of(
        "key", ProcessingOrder.KEY, "partition", ProcessingOrder.PARTITION, "none", ProcessingOrder.UNORDERED);

    public static void main(String[] given) throws Exception {
        String bootstrap = given[0], topic = given[1], group = given[2];
        long waitMs = Math.round(Double.parseDouble(given[3]) * 1000);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        ParallelConsumerOptions<byte[], byte[]> options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .consumer(consumer)
            .ordering(ORDERS.get(given[5]))
            .maxConcurrency(Integer.parseInt(given[4]))
            .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
            .commitInterval(Duration.ofMillis(500))
            .build();
        ParallelStreamProcessor<byte[], byte[]> processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(topic));
        AtomicLong handled = new AtomicLong();
        processor.poll(context -> {
            if (waitMs > 0) {
                try {
                    Thread.sleep(waitMs);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                    return;
                }
            }
            handled.incrementAndGet();
        });
        while (true) {
            Thread.sleep(20);
            System.out.println(System.currentTimeMillis() + " " + handled.get());
        }
    }
}
