import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Share consumers in one group drain a topic; how fast, once they run steadily.
 *
 * Arguments: bootstrap servers, topic, group, records in the topic, consumers, "implicit" or "explicit".
 * implicit: every record is accepted by the next poll. explicit: every second record is released at its first delivery and
 * accepted at its second, the others are accepted at once, each with a call of its own.
 * The clock runs from when a fifth of the records has been accepted (everybody has joined, the JVM is warm) until all have.
 * Prints "records N bytes N deliveries N nanoseconds N", all of the time in which the clock ran.
 */
public class ShareConsume {
    static final AtomicLong accepted = new AtomicLong(), acceptedBytes = new AtomicLong(), deliveries = new AtomicLong();
    static final AtomicReference<Throwable> failure = new AtomicReference<>();
    static long begun, begunRecords, begunBytes, begunDeliveries, ended;
    static volatile boolean over;

    public static void main(String[] args) throws Exception {
        long records = Long.parseLong(args[3]);
        boolean explicit = args[5].equals("explicit");
        Thread[] threads = new Thread[Integer.parseInt(args[4])];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                try {
                    drain(args[0], args[1], args[2], records, explicit);
                } catch (Throwable problem) {
                    failure.compareAndSet(null, problem);
                    over = true;
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        if (failure.get() != null) throw new RuntimeException(failure.get());
        System.out.println("records " + (accepted.get() - begunRecords) + " bytes " + (acceptedBytes.get() - begunBytes)
            + " deliveries " + (deliveries.get() - begunDeliveries) + " nanoseconds " + (ended - begun));
    }

    static void drain(String servers, String topic, String group, long records, boolean explicit) {
        Properties config = new Properties();
        config.put("bootstrap.servers", servers);
        config.put("group.id", group);
        config.put("share.acknowledgement.mode", explicit ? "explicit" : "implicit");
        var deserializer = new ByteArrayDeserializer();
        long lastCame = System.nanoTime();
        try (var consumer = new KafkaShareConsumer<>(config, deserializer, deserializer)) {
            consumer.subscribe(List.of(topic));
            while (!over) {
                long count = 0, bytes = 0, delivered = 0;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    delivered++;
                    if (explicit) {
                        boolean release = record.offset() % 2 == 1 && record.deliveryCount().get() == 1;
                        consumer.acknowledge(record, release ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                        if (release) continue;
                    }
                    count++;
                    bytes += record.value().length;
                }
                if (delivered > 0) {
                    lastCame = System.nanoTime();
                    count(count, bytes, delivered, records);
                } else if (System.nanoTime() - lastCame > 60_000_000_000L) {
                    throw new IllegalStateException("no record came for a minute; accepted " + accepted.get());
                }
            }
        }
    }

    static synchronized void count(long count, long bytes, long delivered, long records) {
        long before = accepted.get();
        accepted.addAndGet(count);
        acceptedBytes.addAndGet(bytes);
        deliveries.addAndGet(delivered);
        if (before < records / 5 && accepted.get() >= records / 5) {
            begun = System.nanoTime();
            begunRecords = accepted.get();
            begunBytes = acceptedBytes.get();
            begunDeliveries = deliveries.get();
        }
        if (accepted.get() >= records && !over) {
            ended = System.nanoTime();
            over = true;
        }
    }
}
