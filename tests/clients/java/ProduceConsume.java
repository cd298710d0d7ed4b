import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * KafkaProducer, KafkaConsumer and Admin doing ordinary work.
 * Arguments: bootstrap servers, topic, group, group protocol (classic or consumer). Prints one "name value" line for each thing seen.
 */
public class ProduceConsume {
    static final long BASE_MS = 1_700_000_000_000L;
    static String servers, protocol;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        protocol = args[3];
        String topic = args[1], group = args[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
            produceWithEveryCodec(topic);
            consumeAll(topic, group);
            positions(topic, group);
            twoMembers(topic, group + "-two");
            System.out.println("committed " + new java.util.TreeMap<>(
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet().stream()
                    .collect(java.util.stream.Collectors.toMap(e -> e.getKey().partition(), e -> e.getValue().offset()))));
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    static void produceWithEveryCodec(String topic) throws Exception {
        int sent = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Properties config = new Properties();
            config.put("bootstrap.servers", servers);
            config.put("compression.type", codec);
            config.put("linger.ms", "10");
            config.put("enable.idempotence", "true");
            try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
                List<Future<RecordMetadata>> futures = new ArrayList<>();
                for (int i = 0; i < 100; i++, sent++) {
                    var record = new ProducerRecord<>(topic, sent % 2, BASE_MS + sent, "k" + sent, "value " + sent);
                    record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                    futures.add(producer.send(record));
                }
                producer.flush();
                for (Future<RecordMetadata> future : futures) future.get();
            }
        }
        System.out.println("produced " + sent);
    }

    static KafkaConsumer<String, String> consumer(String group) {
        Properties config = new Properties();
        config.put("bootstrap.servers", servers);
        config.put("group.id", group);
        config.put("group.protocol", protocol);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        if (protocol.equals("classic")) config.put("heartbeat.interval.ms", "300");
        config.put("check.crcs", "true");
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static void consumeAll(String topic, String group) {
        Map<Integer, Long> next = new HashMap<>();
        Map<String, Integer> codecs = new java.util.TreeMap<>();
        boolean right = true;
        int count = 0;
        try (var consumer = consumer(group)) {
            consumer.subscribe(List.of(topic));
            while (count < 500) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    long expected = next.getOrDefault(record.partition(), 0L);
                    long n = record.offset() * 2 + record.partition();
                    right &= record.offset() == expected && record.value().equals("value " + n)
                        && record.key().equals("k" + n) && record.timestamp() == BASE_MS + n;
                    next.put(record.partition(), record.offset() + 1);
                    codecs.merge(new String(record.headers().lastHeader("codec").value()), 1, Integer::sum);
                    count++;
                }
            }
            consumer.commitSync(Map.of(
                new TopicPartition(topic, 0), new OffsetAndMetadata(200, "note"),
                new TopicPartition(topic, 1), new OffsetAndMetadata(250)));
        }
        System.out.println("consumed " + count + " right " + right + " codecs " + codecs);
    }

    static void positions(String topic, String group) {
        TopicPartition zero = new TopicPartition(topic, 0);
        try (var consumer = consumer(group)) {
            consumer.assign(List.of(zero));
            System.out.println("note " + consumer.committed(java.util.Set.of(zero)).get(zero).metadata());
            System.out.println("resumed " + nextOffset(consumer));
            consumer.seek(zero, 42);
            System.out.println("sought " + nextOffset(consumer));
            System.out.println("range " + consumer.beginningOffsets(List.of(zero)).get(zero) + ".."
                + consumer.endOffsets(List.of(zero)).get(zero));
            System.out.println("at " + consumer.offsetsForTimes(Map.of(zero, BASE_MS + 301)).get(zero).offset());
            System.out.println("beyond " + consumer.offsetsForTimes(Map.of(zero, BASE_MS + 1000)).get(zero));
            consumer.seek(zero, 240);
            while (consumer.position(zero) < 250) consumer.poll(Duration.ofSeconds(1));
            System.out.println("lag " + consumer.currentLag(zero).getAsLong());
        }
    }

    /**
     * As applications do it: with one poll after the other, of which any may come back empty. Until KAFKA-20780 the new
     * consumer does not ask again within a poll when an answer had no records for it, whichever broker it talks to.
     */
    static long nextOffset(KafkaConsumer<String, String> consumer) {
        for (int i = 0; i < 30; i++) {
            var records = consumer.poll(Duration.ofSeconds(1));
            if (!records.isEmpty()) return records.iterator().next().offset();
        }
        throw new IllegalStateException("no record in 30 seconds");
    }

    static void twoMembers(String topic, String group) {
        int[] revoked = {0};
        try (var first = consumer(group)) {
            first.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) { revoked[0] += partitions.size(); }
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
            });
            while (first.assignment().size() < 2) first.poll(Duration.ofMillis(100));
            try (var second = consumer(group)) {
                second.subscribe(List.of(topic));
                Thread other = new Thread(() -> {
                    while (second.assignment().size() != 1) second.poll(Duration.ofMillis(100));
                });
                other.start();
                while (first.assignment().size() != 1 || other.isAlive()) first.poll(Duration.ofMillis(100));
                System.out.println("shared " + first.assignment().size() + "+" + second.assignment().size());
            }
            while (first.assignment().size() < 2) first.poll(Duration.ofMillis(100));
            System.out.println("revoked " + (revoked[0] > 0) + " taken over " + first.assignment().size());
        }
    }
}
