import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic, exactly once: what it writes and how far it has read are one transaction. Ends with the first error.
 * Arguments: bootstrap servers, source, destination, group, transactional id. Prints "copied n" for each transaction.
 */
public class TransactionalCopy {
    public static void main(String[] args) {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", args[0]);
        reading.put("group.id", args[3]);
        reading.put("isolation.level", "read_committed");
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("max.poll.records", "20");
        reading.put("session.timeout.ms", "1500");
        reading.put("heartbeat.interval.ms", "300");
        Properties writing = new Properties();
        writing.put("bootstrap.servers", args[0]);
        writing.put("transactional.id", args[4]);
        writing.put("reconnect.backoff.max.ms", "200");
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
             var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[1]));
            while (true) {
                var records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                for (var record : records) {
                    producer.send(new ProducerRecord<>(args[2], record.partition(), record.key(), record.value()));
                }
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                producer.commitTransaction();
                System.out.println("copied " + records.count());
            }
        } catch (Exception error) {
            System.out.println("failed " + error);
            Runtime.getRuntime().halt(1);
        }
    }
}
