package org.apache.kafka.common.test.junit;

import java.lang.reflect.Method;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;

/** Stands in for the object of a controller, whose metadata log has nothing to wait for. */
public final class ControllerProxy {
    private final Supplier<Admin> admin;
    private final Supplier<KafkaBroker> broker;
    /** The object of the controller. */
    public final ControllerServer controller = StandIn.of(ControllerServer.class, this::server);

    /**
     * Stand in for the controller of a broker.
     *
     * @param admin makes clients of the broker
     * @param broker returns the object of the broker
     */
    public ControllerProxy(Supplier<Admin> admin, Supplier<KafkaBroker> broker) {
        this.admin = admin;
        this.broker = broker;
    }

    private Object server(Method method, Object[] arguments) {
        return switch (method.getName()) {
            case "raftManager" -> quorum();
            case "controller" -> StandIn.of(Controller.class, this::controller);
            case "config" -> broker.get().config(); // the only node is the controller, too
            case "socketServer" -> broker.get().socketServer();
            case "shutdown", "awaitShutdown" -> null;
            default -> throw new NotApplicable(method.getName() + " of the controller's object");
        };
    }

    private Object controller(Method method, Object[] arguments) throws Exception {
        Map<String, Uuid> ids = new HashMap<>();
        try (Admin client = admin.get()) {
            client.listTopics(new ListTopicsOptions().listInternal(true)).listings().get()
                .forEach(topic -> ids.put(topic.name(), topic.topicId()));
        }
        switch (method.getName()) {
            case "findAllTopicIds":
                return CompletableFuture.completedFuture(ids);
            case "findTopicIds":
                Map<String, ResultOrError<Uuid>> found = new HashMap<>();
                for (Object name : (Collection<?>) arguments[1]) {
                    found.put((String) name, ids.containsKey(name)
                        ? new ResultOrError<>(ids.get(name))
                        : new ResultOrError<>(Errors.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"));
                }
                return CompletableFuture.completedFuture(found);
            default:
                throw new NotApplicable(method.getName() + " of the controller's object");
        }
    }

    private static KafkaRaftManager<?> quorum() {
        RaftLog log = StandIn.of(RaftLog.class, (method, arguments) -> {
            if (method.getName().equals("endOffset")) {
                return new LogOffsetMetadata(0);
            }
            throw new NotApplicable(method.getName() + " of the metadata log");
        });
        return StandIn.of(KafkaRaftManager.class, (method, arguments) -> {
            if (method.getName().equals("raftLog")) {
                return log;
            }
            throw new NotApplicable(method.getName() + " of the metadata quorum");
        });
    }
}
