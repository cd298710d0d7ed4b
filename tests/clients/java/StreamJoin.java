import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * Kafka Streams joining two topics by key, exactly once, as a streams group (KIP-1071), until its input is closed.
 * Arguments: bootstrap servers, left topic, right topic, output topic, application id, state directory.
 * Prints its state whenever that changes.
 */
public class StreamJoin {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[4]);
        config.put("state.dir", args[5]);
        config.put("group.protocol", "streams");
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("num.stream.threads", "2");
        config.put("commit.interval.ms", "100");
        config.put("max.task.idle.ms", "200");
        config.put("auto.offset.reset", "earliest");
        config.put("replication.factor", "1");
        config.put("transaction.timeout.ms", "10000");

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> left = builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()));
        KStream<String, String> right = builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()));
        left.join(
                right,
                (one, other) -> one + "+" + other,
                JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofDays(1)),
                StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()))
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));

        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.setStateListener((now, before) -> System.out.println("state " + now));
            streams.start();
            while (System.in.read() >= 0) {}
            streams.close(Duration.ofSeconds(20));
        }
    }
}
