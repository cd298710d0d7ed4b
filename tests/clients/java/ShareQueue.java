import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * KafkaShareConsumer with explicit and implicit acknowledgement, and what Admin says of the group.
 * Arguments: bootstrap servers, topic, group. Prints one "name value" line for each thing seen.
 */
public class ShareQueue {
    static String servers;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        String topic = args[1], group = args[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
            admin.incrementalAlterConfigs(Map.of(
                new ConfigResource(ConfigResource.Type.GROUP, group),
                List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET))
            )).all().get();
            produce(topic, 0, 30);
            explicit(topic, group, admin);
            produce(topic, 30, 40);
            implicit(topic, group);
            var described = admin.describeShareGroups(List.of(group)).all().get().get(group);
            System.out.println("state " + described.groupState() + " members " + described.members().size());
            var offsets = admin.listShareGroupOffsets(Map.of(group, new org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get();
            Map<Integer, Long> lags = new TreeMap<>();
            offsets.forEach((partition, info) -> lags.put(partition.partition(), info.lag().orElse(-1L)));
            System.out.println("lags " + lags);
        }
    }

    static void produce(String topic, int from, int to) {
        Properties config = new Properties();
        config.put("bootstrap.servers", servers);
        config.put("linger.ms", "5");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int i = from; i < to; i++) producer.send(new ProducerRecord<>(topic, i % 2, null, "" + i));
        }
    }

    static KafkaShareConsumer<String, String> consumer(String group, String mode) {
        Properties config = new Properties();
        config.put("bootstrap.servers", servers);
        config.put("group.id", group);
        config.put("share.acknowledgement.mode", mode);
        return new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    /** Of 30 records: those divisible by 5 are released once, those that leave 1 are rejected, the rest accepted. */
    static void explicit(String topic, String group, Admin admin) throws Exception {
        Map<Integer, List<Integer>> deliveries = new TreeMap<>();
        TreeSet<Long> acknowledged = new TreeSet<>();
        int[] failures = {0};
        int done = 0;
        try (var consumer = consumer(group, "explicit")) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) failures[0]++;
                offsets.forEach((partition, of) -> of.forEach(o -> acknowledged.add(o * 2 + partition.partition())));
            });
            consumer.subscribe(List.of(topic));
            while (done < 30) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    int n = Integer.parseInt(record.value());
                    int delivery = record.deliveryCount().get();
                    deliveries.computeIfAbsent(n, k -> new ArrayList<>()).add(delivery);
                    if (n % 5 == 0 && delivery == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        consumer.acknowledge(record, n % 5 == 1 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                        done++;
                    }
                }
                consumer.commitSync().values().forEach(error -> { if (error.isPresent()) failures[0]++; });
            }
            System.out.println("lock " + consumer.acquisitionLockTimeoutMs().get());
            var member = admin.describeShareGroups(List.of(group)).all().get().get(group).members().iterator().next();
            System.out.println("assigned " + member.assignment().topicPartitions().size());
        }
        boolean right = deliveries.size() == 30;
        for (var entry : deliveries.entrySet())
            right &= entry.getValue().equals(entry.getKey() % 5 == 0 ? List.of(1, 2) : List.of(1));
        System.out.println("explicit " + done + " right " + right + " acknowledged " + acknowledged.size()
            + " failures " + failures[0]);
    }

    /** Polls until all ten further records came; closing accepts what the last poll gave. */
    static void implicit(String topic, String group) {
        Collection<Integer> got = new TreeSet<>();
        int records = 0;
        try (var consumer = consumer(group, "implicit")) {
            consumer.subscribe(List.of(topic));
            while (got.size() < 10) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    got.add(Integer.parseInt(record.value()));
                    records++;
                }
            }
            consumer.commitSync();
        }
        System.out.println("implicit " + got + " records " + records);
    }
}
