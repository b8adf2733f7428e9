import java.util.List;
import java.util.Scanner;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Min;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedCount;

/** Kafka's own statistics: a line is pairs of time and value, then the time to measure at; it prints what they say. */
public class Stats {
    public static void main(String[] args) {
        MetricConfig config = new MetricConfig();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            List<MeasurableStat> stats =
                List.of(new Rate(), new Rate(new WindowedCount()), new Avg(), new Max(), new Min());
            String[] words = lines.nextLine().split(" ");
            for (int i = 0; i + 1 < words.length; i += 2) {
                for (MeasurableStat stat : stats) {
                    stat.record(config, Double.parseDouble(words[i + 1]), Long.parseLong(words[i]));
                }
            }
            StringBuilder said = new StringBuilder();
            for (MeasurableStat stat : stats) {
                said.append(stat.measure(config, Long.parseLong(words[words.length - 1]))).append(' ');
            }
            System.out.println(said);
        }
    }
}
