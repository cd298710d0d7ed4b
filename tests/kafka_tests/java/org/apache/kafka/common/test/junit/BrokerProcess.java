package org.apache.kafka.common.test.junit;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;

/**
 * A cluster of one headrace broker in a process of its own.
 *
 * <p>The system property {@code headrace.command} has the words of the command, separated by
 * newlines. The broker keeps its port and its directory when a test restarts it.
 */
public final class BrokerProcess implements ClusterInstance {
    private static final String NODE_ID = "node.id";
    private static final int FIRST_ID = 0;
    private static final String HOST = "localhost";
    private static final long STARTS_WITHIN_S = 30;
    private static final long STOPS_WITHIN_S = 20;
    /** Tests rely on clients that have noticed a stop, which takes Kafka's broker more than a second. */
    private static final long STOP_TAKES_MS = 1500;
    private static final String READY = "headrace is listening on ";
    /** Configs whose values speak of more brokers than there are. */
    private static final Set<String> REPLICATION = Set.of(
        "default.replication.factor",
        "min.insync.replicas",
        "offsets.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor");

    /** Beginnings of the names of configs that say where the brokers of a test are, and how they are reached. */
    private static final Set<String> OF_THE_HARNESS = Set.of(
        "advertised.listeners",
        "controller.",
        "early.start.listeners",
        "inter.broker.listener.name",
        "listener",
        "log.dir",
        "metadata.log.dir",
        "process.roles",
        "security.inter.broker.protocol",
        "ssl.truststore.password");

    /** Configs of the authorizer, which Kafka's brokers hand on to it. */
    private static final Set<String> OF_THE_AUTHORIZER = Set.of("super.users", "allow.everyone.if.no.acl.found");

    /** The logins that Kafka's test clusters with SASL have; they also have an authorizer. */
    private static final String LOGINS = String.format(
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=\"%s\" user_%s=\"%s\";",
        JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
        JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD);

    private final ClusterConfig config;
    private final Type type;
    private final BrokerProxy proxy = new BrokerProxy(this);
    private final ControllerProxy controller = new ControllerProxy(this::admin, () -> proxy.broker);
    private Path directory;
    private Process process;
    private Thread reader;
    private int port;
    private long endedNs;
    private boolean wasStopped;

    /** Describe a cluster, which {@link #start} starts in a fresh directory. */
    public BrokerProcess(ClusterConfig config, Type type) {
        this.config = config;
        this.type = type;
    }

    /** Return the same cluster, which is not running, with other configs. */
    public BrokerProcess with(ClusterConfig other) {
        BrokerProcess changed = new BrokerProcess(other, type);
        changed.directory = directory;
        changed.port = port;
        changed.endedNs = endedNs;
        return changed;
    }

    // The life of the process

    @Override
    public void start() {
        if (started()) {
            return;
        }
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT && !isSaslPlaintext()) {
            throw new NotApplicable("a listener with TLS");
        }
        try {
            if (directory == null) {
                directory = Files.createTempDirectory("headrace-kafka-tests-");
            } else {
                awaitStop();
            }
            spawn();
            setFeatures();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private boolean isSaslPlaintext() {
        return config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT;
    }

    private void spawn() throws IOException {
        List<String> command = new ArrayList<>(List.of(System.getProperty("headrace.command").split("\n")));
        command.addAll(List.of("--listen", config.brokerSecurityProtocol() + "://" + HOST + ":" + port, "--data-dir", dataDirectory()));
        configs().forEach((name, value) -> command.addAll(List.of("-c", name + "=" + value)));
        File output = directory.resolve("output").toFile();
        process = new ProcessBuilder(command).redirectErrorStream(true).start();
        CountDownLatch ready = new CountDownLatch(1);
        Process reading = process;
        reader = new Thread(() -> read(reading, output, ready), "headrace-output");
        reader.setDaemon(true);
        reader.start();
        try {
            if (!ready.await(STARTS_WITHIN_S, TimeUnit.SECONDS) || port == 0) {
                process.destroyForcibly();
                throw new IllegalStateException("headrace did not start:\n" + Files.readString(output.toPath()));
            }
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    /** The log directory that the test has chosen, or one of our own. */
    String dataDirectory() {
        Map<String, String> given = config.serverProperties();
        String chosen = given.getOrDefault("log.dirs", given.get("log.dir"));
        return chosen == null ? directory.resolve("data").toString() : chosen.split(",")[0];
    }

    private void setFeatures() {
        Map<String, FeatureUpdate> updates = new HashMap<>();
        config.features().forEach((feature, level) -> updates.put(feature.featureName(),
            new FeatureUpdate(level, level < feature.defaultLevel(MetadataVersion.latestProduction())
                ? FeatureUpdate.UpgradeType.SAFE_DOWNGRADE : FeatureUpdate.UpgradeType.UPGRADE)));
        if (updates.isEmpty()) {
            return;
        }
        try (Admin admin = admin()) {
            admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
        } catch (InterruptedException | ExecutionException error) {
            throw new IllegalStateException(error);
        }
    }

    private void read(Process reading, File output, CountDownLatch ready) {
        try (BufferedReader lines = new BufferedReader(
                 new InputStreamReader(reading.getInputStream(), StandardCharsets.UTF_8));
             var copy = Files.newBufferedWriter(output.toPath())) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                copy.write(line);
                copy.newLine();
                copy.flush();
                if (line.startsWith(READY)) {
                    port = Integer.parseInt(line.substring(line.lastIndexOf(':') + 1));
                    ready.countDown();
                }
            }
        } catch (IOException ignored) {
            // the process has ended
        }
        ready.countDown();
    }

    Map<String, String> configs() {
        Map<String, String> configs = new HashMap<>(config.serverProperties());
        config.perServerOverrideProperties().values().forEach(configs::putAll);
        REPLICATION.forEach(name -> configs.computeIfPresent(name, (key, value) -> "1"));
        configs.keySet().removeIf(name -> OF_THE_HARNESS.stream().anyMatch(name::startsWith));
        configs.keySet().removeIf(name -> !OF_THE_AUTHORIZER.contains(name)
            && !AbstractKafkaConfig.CONFIG_DEF.names().contains(name)); // as Kafka does
        if (isSaslPlaintext()) {
            configs.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
            configs.putIfAbsent("authorizer.class.name", StandardAuthorizer.class.getName());
            configs.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
            configs.put("listener.name.sasl_plaintext.plain.sasl.jaas.config", LOGINS);
        }
        configs.putIfAbsent(NODE_ID, Integer.toString(FIRST_ID));
        configs.putIfAbsent("group.initial.rebalance.delay.ms", "0");
        configs.putIfAbsent("offsets.topic.num.partitions", "5");
        configs.putIfAbsent("share.coordinator.state.topic.num.partitions", "5");
        configs.putIfAbsent("transaction.state.log.num.partitions", "5");
        configs.putIfAbsent("unstable.api.versions.enable", "true"); // as Kafka's test clusters have it
        return configs;
    }

    int port() {
        return port;
    }

    int nodeId() {
        return Integer.parseInt(config.serverProperties().getOrDefault(NODE_ID, Integer.toString(FIRST_ID)));
    }

    @Override
    public boolean started() {
        return process != null && process.isAlive();
    }

    @Override
    public boolean stopped() {
        return wasStopped;
    }

    @Override
    public void stop() {
        wasStopped = true;
        end();
        if (directory != null) {
            try (Stream<Path> files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    /** End the process, as {@link #shutdownBroker} does, and return before its clients have noticed. */
    void end() {
        if (process == null) {
            return;
        }
        process.destroy();
        try {
            if (!process.waitFor(STOPS_WITHIN_S, TimeUnit.SECONDS)) {
                process.destroyForcibly();
                throw new IllegalStateException("headrace did not stop in " + STOPS_WITHIN_S + " s");
            }
            reader.join(); // tests look for threads that are left
            endedNs = System.nanoTime();
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void shutdownBroker(int brokerId) {
        end();
        awaitStop();
    }

    private void awaitStop() {
        try {
            Thread.sleep(Math.max(0, STOP_TAKES_MS - (System.nanoTime() - endedNs) / 1_000_000));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void startBroker(int brokerId) {
        start();
    }

    @Override
    public void waitForReadyBrokers() {
        if (!started()) {
            throw new IllegalStateException("the broker is not running");
        }
    }

    // What it is

    @Override
    public Type type() {
        return type;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return HOST + ":" + port;
    }

    @Override
    public String bootstrapControllers() {
        throw new NotApplicable("a listener of controllers");
    }

    @Override
    public String clusterId() {
        try (Admin admin = admin()) {
            return admin.describeCluster().clusterId().get();
        } catch (InterruptedException | ExecutionException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public Set<Integer> brokerIds() {
        return Set.of(nodeId());
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.of(nodeId());
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return List.of(port);
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // Topics, through an Admin client instead of the memory of brokers

    @Override
    public void createTopic(String name, int partitions, short replicas, Map<String, String> configs)
            throws InterruptedException {
        NewTopic topic = new NewTopic(name, partitions, (short) 1).configs(configs);
        try (Admin admin = admin()) {
            admin.createTopics(List.of(topic)).all().get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TopicExistsException)) { // some tests create a topic twice
                throw new IllegalStateException(error.getCause());
            }
        }
    }

    @Override
    public void waitTopicCreation(String name, int partitions) throws InterruptedException {
        awaitPartitions(name, partitions);
    }

    @Override
    public void waitTopicDeletion(String name) throws InterruptedException {
        awaitPartitions(name, 0);
    }

    private void awaitPartitions(String name, int count) throws InterruptedException {
        long endsMs = System.currentTimeMillis() + 15_000;
        try (Admin admin = admin()) {
            while (partitions(admin, name) != count) {
                if (System.currentTimeMillis() > endsMs) {
                    throw new AssertionError("topic " + name + " has not " + count + " partitions after 15 s");
                }
                Thread.sleep(20);
            }
        }
    }

    private static int partitions(Admin admin, String name) throws InterruptedException {
        try {
            return admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw new IllegalStateException(error.getCause());
        }
    }

    @Override
    public void ensureConsistentMetadata() {
        // one broker agrees with itself
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {
        // one broker agrees with itself
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return Map.of(0, proxy.broker); // tests ask for the first one by this number
    }

    // What only brokers in this JVM have

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return Map.of(nodeId(), controller.controller);
    }

    @Override
    public List<Authorizer> authorizers() {
        throw new NotApplicable("objects of the authorizer");
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> {
                Set<AccessControlEntry> found = new HashSet<>();
                admin.describeAcls(filter).values().get().forEach(binding -> found.add(binding.entry()));
                return found.equals(new HashSet<>(entries));
            }, "the ACLs of " + filter + " are not " + entries);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
