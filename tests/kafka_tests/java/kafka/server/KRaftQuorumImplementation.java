package kafka.server;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import kafka.utils.TestInfoUtils;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.common.test.junit.BrokerProcess;
import org.apache.kafka.common.test.junit.BrokerProxy;
import org.apache.kafka.common.test.junit.ControllerProxy;
import org.apache.kafka.common.test.junit.NotApplicable;
import org.apache.kafka.common.test.junit.StandIn;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.Feature;
import org.junit.jupiter.api.TestInfo;
import scala.Option;
import scala.collection.Iterator;

/**
 * Gives a test in Scala its broker: a headrace process.
 *
 * <p>Stands in for the class of this name in kafka_2.13's test jar, which starts a broker and a
 * controller in the JVM of the test: put it before that jar on the class path.
 */
public class KRaftQuorumImplementation implements QuorumImplementation {
    /** Configs of which other tests have other defaults. */
    private static final Set<String> PARTITION_COUNTS = Set.of(
        "share.coordinator.state.topic.num.partitions", "transaction.state.log.num.partitions");

    private final Map<String, String> configs = new HashMap<>();
    private final Map<Feature, Short> features = new HashMap<>();
    private final ControllerProxy controller = new ControllerProxy(() -> this.process.admin(), () -> this.broker);
    private BrokerProcess process;
    private KafkaBroker broker;

    /** Take what the test asks of the controller: configs, and the features of the cluster. */
    public KRaftQuorumImplementation(QuorumTestHarness test, TestInfo info, Properties overrides) {
        add(test.kraftControllerConfigs(info).head());
        add(overrides);
        if (!TestInfoUtils.isTransactionV2Enabled(info)) {
            features.put(Feature.TRANSACTION_VERSION, (short) 1);
        }
        test.addFormatterSettings(StandIn.of(Formatter.class, (method, arguments) -> {
            if (!method.getName().equals("setFeatureLevel")) {
                throw new NotApplicable(method.getName() + " of a new cluster");
            }
            features.put(Feature.featureFromName((String) arguments[0]), (Short) arguments[1]);
            return null;
        }));
    }

    private void add(Map<?, ?> properties) {
        properties.forEach((name, value) -> {
            if (value != null) {
                configs.put((String) name, value instanceof Password password ? password.value() : value.toString());
            }
        });
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        Iterator<Endpoint> listeners = config.effectiveAdvertisedBrokerListeners().iterator();
        while (listeners.hasNext()) {
            if (listeners.next().securityProtocol() != SecurityProtocol.PLAINTEXT) {
                throw new NotApplicable("a listener with security");
            }
        }
        add(config.originals());
        PARTITION_COUNTS.forEach(name -> configs.put(name, config.values().get(name).toString()));
        ClusterConfig cluster = ClusterConfig.defaultBuilder()
            .setTypes(Set.of(Type.KRAFT))
            .setServerProperties(configs)
            .setFeatures(features)
            .build();
        process = process == null ? new BrokerProcess(cluster, Type.KRAFT) : process.with(cluster);
        broker = new BrokerProxy(process, config).broker;
        if (startup) {
            broker.startup();
        }
        return broker;
    }

    @Override
    public void shutdown() {
        if (process != null) {
            process.stop();
        }
    }

    public ControllerServer controllerServer() {
        return controller.controller;
    }
}
