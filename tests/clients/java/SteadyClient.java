import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer, a consumer and a share consumer that work through every fault.
 * Arguments: bootstrap servers, topic, group. Prints a line for each acknowledgement: "P partition offset value" for a record,
 * "C partition offset" for a committed offset, "A partition offset" for an accepted record, "D partition offset" for a delivery.
 */
public class SteadyClient {
    static final long PAUSE_MS = 50;

    static void say(String line) {
        synchronized (SteadyClient.class) {
            System.out.println(line);
            System.out.flush();
        }
    }

    interface Work { void run() throws Exception; }

    static void forever(Work work) {
        new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                say("failed " + error);
            }
            Runtime.getRuntime().halt(1);
        }).start();
    }

    static Properties configs(String servers, String group) {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", servers);
        configs.put("reconnect.backoff.max.ms", "500");
        if (group != null) configs.put("group.id", group);
        return configs;
    }

    public static void main(String[] args) {
        String servers = args[0], topic = args[1], group = args[2];
        forever(() -> produce(servers, topic));
        forever(() -> consume(servers, topic, group));
        forever(() -> share(servers, topic, group + "-share"));
    }

    static void produce(String servers, String topic) throws Exception {
        String tag = "java" + ProcessHandle.current().pid();
        Properties configs = configs(servers, null);
        configs.put("enable.idempotence", "true");
        configs.put("delivery.timeout.ms", "600000");
        try (var producer = new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer())) {
            for (long n = 0; ; n++) {
                String value = tag + "-" + n;
                producer.send(new ProducerRecord<>(topic, (int) (n % 2), null, value), (done, error) -> {
                    if (error == null) say("P " + done.partition() + " " + done.offset() + " " + value);
                });
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    static void consume(String servers, String topic, String group) {
        Properties configs = configs(servers, group);
        configs.put("group.protocol", "consumer");
        configs.put("auto.offset.reset", "earliest");
        configs.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(java.util.List.of(topic));
            while (true) {
                if (consumer.poll(Duration.ofMillis(300)).isEmpty()) continue;
                Map<org.apache.kafka.common.TopicPartition, org.apache.kafka.clients.consumer.OffsetAndMetadata> positions =
                    new java.util.HashMap<>();
                for (var partition : consumer.assignment())
                    positions.put(partition, new org.apache.kafka.clients.consumer.OffsetAndMetadata(consumer.position(partition)));
                try {
                    consumer.commitSync(positions);
                    positions.forEach((partition, position) -> say("C " + partition.partition() + " " + position.offset()));
                } catch (org.apache.kafka.common.KafkaException error) {
                    // the records come again
                }
            }
        }
    }

    static void share(String servers, String topic, String group) {
        Properties configs = configs(servers, group);
        configs.put("share.acknowledgement.mode", "explicit");
        try (var consumer = new KafkaShareConsumer<>(configs, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(java.util.List.of(topic));
            while (true) {
                var records = consumer.poll(Duration.ofMillis(300));
                for (var record : records) {
                    say("D " + record.partition() + " " + record.offset());
                    consumer.acknowledge(record);
                }
                if (records.isEmpty()) continue;
                consumer.commitSync().forEach((partition, error) -> {
                    if (error.isPresent()) return;
                    for (var record : records)
                        if (record.partition() == partition.partition()) say("A " + record.partition() + " " + record.offset());
                });
            }
        }
    }
}
