import java.io.FileInputStream;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Produces and consumes a record with each configuration file; prints the outcome of each. */
public class SecureClient {
    public static void main(String[] args) throws Exception {
        String topic = args[0];
        for (int i = 1; i < args.length; i++) {
            String name = new java.io.File(args[i]).getName().replace(".properties", "");
            String outcome = outcome(topic, args[i]);
            System.out.println("\n" + name + " " + outcome); // after lines of the log, which may not end
        }
    }

    static String outcome(String topic, String file) {
        Properties config = new Properties();
        try (FileInputStream in = new FileInputStream(file)) {
            config.load(in);
        } catch (Exception e) {
            return e.toString();
        }
        config.put("request.timeout.ms", "15000");
        config.put("default.api.timeout.ms", "20000");
        config.put("max.block.ms", "20000");
        config.put("delivery.timeout.ms", "20000");
        config.put("auto.offset.reset", "earliest");
        config.put("group.id", "group-" + System.nanoTime());
        try (Admin admin = Admin.create(config)) {
            admin.describeCluster().nodes().get();
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            return cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "value")).get();
        } catch (Exception e) {
            return "produce " + e;
        }
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + 20_000_000_000L;
            while (System.nanoTime() < end)
                if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) return "right";
        }
        return "nothing consumed";
    }
}
