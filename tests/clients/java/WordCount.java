import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams counting words, until its input is closed.
 * Arguments: bootstrap servers, input topic, output topic, application id, state directory, processing guarantee, and
 * perhaps the group protocol, classic or streams.
 * Prints its state whenever that changes.
 */
public class WordCount {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[3]);
        config.put("state.dir", args[4]);
        config.put("processing.guarantee", args[5]);
        config.put("num.stream.threads", "2");
        config.put("commit.interval.ms", "100");
        config.put("statestore.cache.max.bytes", "0");
        config.put("repartition.purge.interval.ms", "300");
        config.put("auto.offset.reset", "earliest");
        config.put("replication.factor", "1");
        config.put("group.protocol", args.length > 6 ? args[6] : "classic");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to(args[2], Produced.with(Serdes.String(), Serdes.String()));

        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.setStateListener((now, before) -> System.out.println("state " + now));
            streams.start();
            while (System.in.read() >= 0) {}
            streams.close(Duration.ofSeconds(20));
        }
    }
}
