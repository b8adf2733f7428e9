import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group: WAY BOOTSTRAP TOPIC GROUP COUNT SECONDS MEETING. It prints its figures as one line of JSON.
 *
 * "implicit" and "explicit" read for SECONDS without a clock, in which the compiler does its work, or half of COUNT
 * records, and then the rest of COUNT, or for SECONDS. "work" has handlers of 10 ms on COUNT threads, and counts what they end in the SECONDS that begin when
 * all members are ready, for which they meet in the folder MEETING. Then the value of a record begins with the time at
 * which it was sent.
 */
public class WithShareConsumer {
    static final Duration WAIT = Duration.ofSeconds(1);
    static final long WORK_MS = 10;

    public static void main(String[] given) throws Exception {
        String way = given[0];
        int count = Integer.parseInt(given[4]);
        long lasts = (long) (Double.parseDouble(given[5]) * 1e9);
        String mode = way.equals("implicit") ? "implicit" : "explicit";
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", given[1], "group.id", given[3], "share.acknowledgement.mode", mode);
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(given[2]));
            if (way.equals("work")) {
                work(consumer, count, Path.of(given[6]), lasts);
            } else {
                read(consumer, mode.equals("explicit"), count, lasts);
            }
        }
    }

    static void read(KafkaShareConsumer<byte[], byte[]> consumer, boolean explicit, int count, long lasts) throws Exception {
        long taken = 0;
        while (taken == 0) {
            taken = touch(consumer, explicit);
        }
        for (long until = System.nanoTime() + lasts; taken < count / 2 && System.nanoTime() < until; ) {
            taken += touch(consumer, explicit);
        }
        long began = System.nanoTime(), burnt = cpu(), read = 0;
        while (read + taken < count && System.nanoTime() < began + lasts) {
            read += touch(consumer, explicit);
        }
        double seconds = (System.nanoTime() - began) / 1e9, cpu = (cpu() - burnt) / 1e9;
        System.out.printf(
            "{\"records\": %d, \"seconds\": %f, \"cpu\": %f, \"rss\": %f, \"turns\": 0}%n", read, seconds, cpu, peakMb());
    }

    static long bytes;

    static long touch(KafkaShareConsumer<byte[], byte[]> consumer, boolean explicit) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(WAIT);
        for (ConsumerRecord<byte[], byte[]> record : records) {
            bytes += record.key().length + record.value().length + record.offset();
            if (explicit) {
                consumer.acknowledge(record);
            }
        }
        return records.count();
    }

    static volatile long begins = Long.MAX_VALUE, ends = Long.MAX_VALUE, burnt;

    static void watch(Path meeting, long lasts) {
        try {
            while (!Files.exists(meeting.resolve("begin"))) {
                Thread.sleep(20);
            }
            begins = (long) (Double.parseDouble(Files.readString(meeting.resolve("begin"))) * 1e9);
            ends = begins + lasts;
            Thread.sleep(Math.max((begins - System.nanoTime()) / 1_000_000, 0));
            burnt = cpu();
        } catch (Exception stopped) {
            throw new IllegalStateException(stopped);
        }
    }

    static void work(KafkaShareConsumer<byte[], byte[]> consumer, int workers, Path meeting, long lasts) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(workers);
        AtomicLongArray lags = new AtomicLongArray(60_001);
        Thread watcher = new Thread(() -> watch(meeting, lasts));
        watcher.setDaemon(true);
        watcher.start();
        boolean ready = false;
        while (System.nanoTime() < ends) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(WAIT);
            if (!ready && !records.isEmpty()) {
                ready = Files.createFile(meeting.resolve("ready-" + ProcessHandle.current().pid())) != null;
            }
            List<Callable<Void>> tasks = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                tasks.add(() -> {
                    Thread.sleep(WORK_MS);
                    long now = System.nanoTime();
                    if (now >= begins && now < ends) {
                        long sent = Long.parseLong(new String(record.value(), 0, 19));
                        lags.incrementAndGet((int) Math.min((now - sent) / 1_000_000, 60_000));
                    }
                    return null;
                });
            }
            // Each record has to be acknowledged before the next poll, so all are waited for.
            pool.invokeAll(tasks);
            for (ConsumerRecord<byte[], byte[]> record : records) {
                consumer.acknowledge(record);
            }
        }
        double cpu = (cpu() - burnt) / 1e9;
        pool.shutdown();
        StringBuilder figures = new StringBuilder("{\"cpu\": " + cpu + ", \"rss\": " + peakMb());
        for (int ms = 0; ms < lags.length(); ms++) {
            if (lags.get(ms) > 0) {
                figures.append(", \"").append(ms).append("\": ").append(lags.get(ms));
            }
        }
        System.out.println(figures.append("}"));
    }

    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    static double peakMb() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.split("\\s+")[1]) / 1024.0;
            }
        }
        throw new IllegalStateException("/proc/self/status does not tell the peak of memory");
    }
}
