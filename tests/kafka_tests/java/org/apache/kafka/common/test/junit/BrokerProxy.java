package org.apache.kafka.common.test.junit;

import java.io.File;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;

/**
 * Stands in for the object of a broker. It answers what a client of the broker can find out; whatever
 * else a test asks it for is not applicable.
 */
public final class BrokerProxy {
    private final BrokerProcess process;
    private final KafkaConfig given;
    /** The object of the broker. */
    public final KafkaBroker broker = StandIn.of(BrokerServer.class, this::broker);
    private final KRaftMetadataCache metadata = StandIn.of(KRaftMetadataCache.class, this::metadata);
    private final GroupCoordinator coordinator = StandIn.of(GroupCoordinator.class, this::coordinator);
    private final SharedServer shared = StandIn.of(SharedServer.class, this::shared);
    private final SocketServer sockets = StandIn.of(SocketServer.class, this::sockets);
    private final KafkaApis apis = StandIn.of(KafkaApis.class, this::apis);
    private final BrokerLifecycleManager lifecycle = StandIn.of(BrokerLifecycleManager.class, this::lifecycle);
    private final LogManager logs = StandIn.of(LogManager.class, this::logs);
    private final ReplicaManager replicas = StandIn.of(ReplicaManager.class, this::replicas);

    BrokerProxy(BrokerProcess process) {
        this(process, null);
    }

    /**
     * Stand in for the broker of a process.
     *
     * @param given the config that the broker's object has; null to make it from those of the process
     */
    public BrokerProxy(BrokerProcess process, KafkaConfig given) {
        this.process = process;
        this.given = given;
    }

    private Object broker(Method method, Object[] arguments) {
        switch (method.getName()) {
            case "metadataCache":
                return metadata;
            case "groupCoordinator":
                return coordinator;
            case "sharedServer":
                return shared;
            case "socketServer":
                return sockets;
            case "dataPlaneRequestProcessor":
                return apis;
            case "logManager":
                return logs;
            case "replicaManager":
                return replicas;
            case "lifecycleManager":
                return lifecycle;
            case "config":
                return given == null ? config() : given;
            case "clusterId":
                return process.clusterId();
            case "boundPort":
                return process.port();
            case "brokerState":
                return process.started() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "startup":
                process.start();
                return null;
            case "shutdown":
                process.end(); // with Kafka, a client still learns of its topics from the other brokers
                return null;
            case "awaitShutdown":
                return null;
            case "isShutdown":
                return !process.started();
            default:
                throw new NotApplicable(method.getName() + " of the broker's object");
        }
    }

    private Object lifecycle(Method method, Object[] arguments) {
        if (method.getName().equals("initialUnfenceFuture")) {
            return CompletableFuture.completedFuture(null);
        }
        throw new NotApplicable(method.getName() + " of the object of a broker's life");
    }

    private Object coordinator(Method method, Object[] arguments) {
        if (method.getName().equals("groupMetadataTopicConfigs")) {
            Properties configs = new Properties();
            configs.put("cleanup.policy", "compact");
            return configs;
        }
        throw new NotApplicable(method.getName() + " of the coordinator's object");
    }

    private Object shared(Method method, Object[] arguments) {
        if (method.getName().equals("loader")) {
            return null; // there is no metadata log, so nobody waits until the broker has read it
        }
        throw new NotApplicable(method.getName() + " of the objects of a node");
    }

    private Object sockets(Method method, Object[] arguments) {
        if (method.getName().equals("boundPort")) {
            return process.port();
        }
        throw new NotApplicable(method.getName() + " of the socket server's object");
    }

    private Object apis(Method method, Object[] arguments) {
        return switch (method.getName()) {
            case "clusterId" -> process.clusterId();
            case "metadataCache" -> metadata;
            default -> throw new NotApplicable(method.getName() + " of the object that serves requests");
        };
    }

    /** The configs of the broker, as the test has set them. */
    private KafkaConfig config() {
        Properties properties = new Properties();
        properties.putAll(process.configs());
        properties.putAll(Map.of(
            "process.roles", "broker,controller",
            "node.id", Integer.toString(process.nodeId()),
            "listeners", "PLAINTEXT://127.0.0.1:" + process.port() + ",CONTROLLER://127.0.0.1:0",
            "advertised.listeners", "PLAINTEXT://127.0.0.1:" + process.port(),
            "controller.listener.names", "CONTROLLER",
            "controller.quorum.bootstrap.servers", "127.0.0.1:1",
            "offsets.topic.replication.factor", "1",
            "transaction.state.log.replication.factor", "1"));
        return KafkaConfig.fromProps(properties);
    }

    private Object metadata(Method method, Object[] arguments) throws InterruptedException {
        switch (method.getName()) {
            case "getAliveBrokerNodes":
                try (Admin admin = process.admin()) {
                    return new ArrayList<>(admin.describeCluster().nodes().get());
                } catch (ExecutionException error) {
                    return List.of();
                }
            case "getLeaderAndIsr":
                return (int) arguments[1] < partitions((String) arguments[0])
                    ? Optional.of(new LeaderAndIsr(process.nodeId(), List.of(process.nodeId())))
                    : Optional.empty();
            case "hasAliveBroker":
                return process.started();
            case "getAllTopics":
                try (Admin admin = process.admin()) {
                    return admin.listTopics().names().get();
                } catch (ExecutionException error) {
                    return Set.of();
                }
            case "numPartitions":
                int count = partitions((String) arguments[0]);
                return count == 0 ? Optional.empty() : Optional.of(count);
            case "getTopicId":
                try (Admin admin = process.admin()) {
                    return admin.describeTopics(List.of((String) arguments[0])).allTopicNames().get()
                        .get(arguments[0]).topicId();
                } catch (ExecutionException error) {
                    return Uuid.ZERO_UUID;
                }
            case "topicConfig":
                return topicConfig((String) arguments[0]);
            case "contains":
                if (arguments[0] instanceof TopicPartition asked) {
                    return asked.partition() < partitions(asked.topic());
                }
                if (arguments[0] instanceof String topic) {
                    return partitions(topic) > 0;
                }
                // fall through
            default:
                throw new NotApplicable(method.getName() + " of the metadata cache");
        }
    }

    private int partitions(String topic) throws InterruptedException {
        try (Admin admin = process.admin()) {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw new IllegalStateException(error.getCause());
        }
    }

    // Logs, as ListOffsets and DescribeConfigs tell of them

    private Object logs(Method method, Object[] arguments) throws InterruptedException {
        if (method.getName().equals("getLog") && !(boolean) arguments[1]) {
            return log((TopicPartition) arguments[0]);
        }
        throw new NotApplicable(method.getName() + " of the objects of logs");
    }

    private Object replicas(Method method, Object[] arguments) throws InterruptedException {
        switch (method.getName()) {
            case "localLog":
                return log((TopicPartition) arguments[0]);
            case "onlinePartition":
                Option<UnifiedLog> log = log((TopicPartition) arguments[0]);
                return log.isEmpty() ? log : Option.apply(partition(log));
            case "logManager":
                return logs;
            default:
                throw new NotApplicable(method.getName() + " of the objects of replicas");
        }
    }

    private static Partition partition(Option<UnifiedLog> log) {
        return StandIn.of(Partition.class, (method, arguments) -> {
            if (method.getName().equals("leaderLogIfLocal")) {
                return log;
            }
            throw new NotApplicable(method.getName() + " of the object of a partition");
        });
    }

    private Option<UnifiedLog> log(TopicPartition partition) throws InterruptedException {
        if (partition.partition() >= partitions(partition.topic())) {
            return Option.empty();
        }
        return Option.apply(StandIn.of(UnifiedLog.class, (method, arguments) -> switch (method.getName()) {
            case "topicPartition" -> partition;
            case "logStartOffset", "localLogStartOffset" ->
                offset(partition, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED);
            case "logEndOffset", "highWatermark" ->
                offset(partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
            case "lastStableOffset" -> offset(partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED);
            case "config" -> logConfig(partition.topic());
            case "dir" -> new File(process.dataDirectory(), partition.toString()).getAbsoluteFile();
            case "producerStateManager" -> producers(partition);
            default -> throw new NotApplicable(method.getName() + " of the object of a log");
        }));
    }

    private long offset(TopicPartition partition, OffsetSpec spec, IsolationLevel isolation) throws Exception {
        try (Admin admin = process.admin()) {
            return admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(isolation))
                .partitionResult(partition).get().offset();
        }
    }

    private LogConfig logConfig(String topic) throws InterruptedException {
        Map<String, String> configs = new HashMap<>();
        topicConfigs(topic).forEach(entry -> configs.put(entry.name(), entry.value()));
        return new LogConfig(configs);
    }

    /** The configs that the topic has itself. */
    private Properties topicConfig(String topic) throws InterruptedException {
        Properties configs = new Properties();
        topicConfigs(topic).stream()
            .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
            .forEach(entry -> configs.put(entry.name(), entry.value()));
        return configs;
    }

    private Collection<ConfigEntry> topicConfigs(String topic) throws InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = process.admin()) {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).entries();
        } catch (ExecutionException error) {
            throw new IllegalStateException(error.getCause());
        }
    }

    private ProducerStateManager producers(TopicPartition partition) throws Exception {
        Map<Long, ProducerStateEntry> found = new HashMap<>();
        try (Admin admin = process.admin()) {
            admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()
                .forEach(one -> found.put(one.producerId(), new ProducerStateEntry(
                    one.producerId(), (short) one.producerEpoch(), one.coordinatorEpoch().orElse(-1),
                    one.lastTimestamp(), one.currentTransactionStartOffset())));
        }
        return StandIn.of(ProducerStateManager.class, (method, arguments) -> {
            if (method.getName().equals("activeProducers")) {
                return found;
            }
            throw new NotApplicable(method.getName() + " of the object of a log's producers");
        });
    }
}
