import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions of so many records, one after the other, with the defaults of the Java producer.
 * Arguments: bootstrap servers, topic, transactions, records in each, bytes of a record. The first fifth is not measured.
 * Prints records per second.
 */
public class TransactionalProduce {
    public static void main(String[] args) {
        int transactions = Integer.parseInt(args[2]), records = Integer.parseInt(args[3]);
        byte[] value = new byte[Integer.parseInt(args[4])];
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("transactional.id", args[1]);
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            int warmUp = transactions / 5;
            long start = 0;
            for (int i = 0; i < transactions; i++) {
                if (i == warmUp) start = System.nanoTime();
                producer.beginTransaction();
                for (int j = 0; j < records; j++) producer.send(new ProducerRecord<>(args[1], value));
                producer.commitTransaction();
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.println((long) (records * (long) (transactions - warmUp) / seconds));
        }
    }
}
