import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Share consumers that hold records, each in a group of its own, and are closed together when a line is read.
 * Arguments: bootstrap servers, topic, prefix of the groups, number of consumers. Prints how many records each holds, and the
 * milliseconds that the quickest and the slowest close took.
 */
public class CloseShare {
    public static void main(String[] args) throws Exception {
        List<KafkaShareConsumer<String, String>> consumers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            Properties config = new Properties();
            config.put("bootstrap.servers", args[0]);
            config.put("group.id", args[2] + i);
            config.put("share.acknowledgement.mode", "explicit");
            var consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(args[1]));
            consumers.add(consumer);
        }
        List<Integer> held = new ArrayList<>();
        for (var consumer : consumers) {
            int count = 0;
            for (int i = 0; i < 30 && count == 0; i++) count = consumer.poll(Duration.ofSeconds(1)).count();
            held.add(count);
        }
        System.out.println("held " + held);
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        List<Long> took = Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = new ArrayList<>();
        for (var consumer : consumers) {
            Thread thread = new Thread(() -> {
                long begun = System.nanoTime();
                consumer.close(Duration.ofSeconds(10));
                took.add((System.nanoTime() - begun) / 1_000_000);
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println("quickest " + Collections.min(took));
        System.out.println("slowest " + Collections.max(took));
    }
}
