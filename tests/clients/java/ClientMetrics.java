import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer and a consumer that push their metrics (KIP-714), as they do by default.
 * Arguments: bootstrap servers, topic, group. Prints the client instance ids.
 */
public class ClientMetrics {
    public static void main(String[] args) throws Exception {
        String servers = args[0], topic = args[1], group = args[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "java"), List.of(
                set("metrics", "*"), set("interval.ms", "200"), set("match", "client_software_name=apache-kafka-java"))))
                .all().get();
        }
        Map<String, Object> producing = Map.of("bootstrap.servers", servers, "client.id", "java-producer");
        Map<String, Object> consuming = Map.of("bootstrap.servers", servers, "client.id", "java-consumer",
            "group.id", group, "auto.offset.reset", "earliest");
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            int consumed = 0;
            long start = System.currentTimeMillis();
            while (System.currentTimeMillis() < start + (consumed > 0 ? 2000 : 60_000)) {
                producer.send(new ProducerRecord<>(topic, "value")).get();
                consumed += consumer.poll(Duration.ofMillis(50)).count();
            }
            System.out.println("consumed " + (consumed > 0));
            System.out.println("producer " + producer.clientInstanceId(Duration.ofSeconds(30)));
            System.out.println("consumer " + consumer.clientInstanceId(Duration.ofSeconds(30)));
        }
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }
}
