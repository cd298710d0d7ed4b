import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member that polls until its input ends. Arguments: bootstrap servers, topic, group, group protocol.
 * Prints its partitions in one line whenever they have changed.
 */
public class GroupMember {
    public static void main(String[] args) throws Exception {
        Map<String, Object> configs = new HashMap<>(Map.of(
            "bootstrap.servers", args[0], "group.id", args[2], "group.protocol", args[3]));
        if (args[3].equals("classic")) configs.put("heartbeat.interval.ms", "300");
        try (var consumer = new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            String before = "";
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(100));
                String owned = consumer.assignment().stream()
                    .map(one -> String.valueOf(one.partition())).sorted().collect(Collectors.joining(" "));
                if (!owned.equals(before)) System.out.println(owned);
                before = owned;
            }
        }
    }
}
