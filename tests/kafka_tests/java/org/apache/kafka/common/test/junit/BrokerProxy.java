package org.apache.kafka.common.test.junit;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;

/**
 * Stands in for the object of a broker. It answers what a client of the broker can find out; whatever
 * else a test asks it for is not applicable.
 */
final class BrokerProxy {
    private final BrokerProcess process;
    final KafkaBroker broker = proxy(KafkaBroker.class, this::broker);
    private final MetadataCache metadata = proxy(MetadataCache.class, this::metadata);

    private final GroupCoordinator coordinator = proxy(GroupCoordinator.class, this::coordinator);

    BrokerProxy(BrokerProcess process) {
        this.process = process;
    }

    private interface Calls {
        Object call(Method method, Object[] arguments) throws Exception;
    }

    private static <T> T proxy(Class<T> type, Calls calls) {
        InvocationHandler handler = (self, method, arguments) -> switch (method.getName()) {
            case "equals" -> self == arguments[0];
            case "hashCode" -> System.identityHashCode(self);
            case "toString" -> type.getSimpleName() + " of headrace";
            default -> calls.call(method, arguments);
        };
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private Object broker(Method method, Object[] arguments) {
        switch (method.getName()) {
            case "metadataCache":
                return metadata;
            case "groupCoordinator":
                return coordinator;
            case "config":
                return config();
            case "clusterId":
                return process.clusterId();
            case "boundPort":
                return process.port();
            case "startup":
                process.start();
                return null;
            case "shutdown":
                process.shutdownBroker(BrokerProcess.BROKER_ID);
                return null;
            case "awaitShutdown":
                return null;
            case "isShutdown":
                return !process.started();
            default:
                throw new NotApplicable(method.getName() + " of the broker's object");
        }
    }

    private Object coordinator(Method method, Object[] arguments) {
        if (method.getName().equals("groupMetadataTopicConfigs")) {
            Properties configs = new Properties();
            configs.put("cleanup.policy", "compact");
            return configs;
        }
        throw new NotApplicable(method.getName() + " of the coordinator's object");
    }

    /** The configs of the broker, as the test has set them. */
    private KafkaConfig config() {
        Properties properties = new Properties();
        properties.putAll(process.configs());
        properties.putAll(Map.of(
            "process.roles", "broker,controller",
            "node.id", Integer.toString(BrokerProcess.BROKER_ID),
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
                    ? Optional.of(new LeaderAndIsr(BrokerProcess.BROKER_ID, List.of(BrokerProcess.BROKER_ID)))
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
}
