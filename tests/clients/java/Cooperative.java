import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Two consumers with the CooperativeStickyAssignor (KIP-429): whoever keeps a partition is not asked to give it up.
 * Arguments: bootstrap servers, topic, group. Prints one "name value" line for each thing seen.
 */
public class Cooperative {
    static class Member implements AutoCloseable, ConsumerRebalanceListener {
        final TreeSet<Integer> owned = new TreeSet<>();
        final TreeSet<Integer> revoked = new TreeSet<>();
        final KafkaConsumer<String, String> consumer;

        Member(String servers, String topic, String group) {
            Map<String, Object> configs = new HashMap<>(Map.of(
                "bootstrap.servers", servers, "group.id", group, "group.protocol", "classic",
                "partition.assignment.strategy", CooperativeStickyAssignor.class.getName(),
                "heartbeat.interval.ms", "200"));
            consumer = new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic), this);
        }

        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            added.forEach(one -> owned.add(one.partition()));
        }

        public void onPartitionsRevoked(Collection<TopicPartition> gone) {
            gone.forEach(one -> owned.remove(one.partition()));
            gone.forEach(one -> revoked.add(one.partition()));
        }

        public void close() {
            consumer.close();
        }
    }

    static void until(java.util.function.BooleanSupplier done, Member... members) {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("waited in vain");
            for (Member member : members) member.consumer.poll(Duration.ofMillis(50));
        }
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0], topic = args[1], group = args[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic(topic, 6, (short) 1))).all().get();
        }
        try (Member first = new Member(servers, topic, group)) {
            until(() -> first.owned.size() == 6, first);
            Member second = new Member(servers, topic, group);
            until(() -> first.owned.size() == 3 && second.owned.size() == 3, first, second);
            System.out.println("moved " + first.revoked.equals(second.owned));
            System.out.println("kept " + (first.revoked.size() == 3 && second.revoked.isEmpty()));
            second.close();
            until(() -> first.owned.size() == 6, first);
            System.out.println("back " + (first.revoked.size() == 3));
        }
    }
}
