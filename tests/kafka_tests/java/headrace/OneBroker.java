package headrace;

import static net.bytebuddy.matcher.ElementMatchers.hasSuperType;
import static net.bytebuddy.matcher.ElementMatchers.isAbstract;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.not;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;

import java.util.HashMap;
import java.util.List;
import java.util.Properties;
import kafka.server.KRaftQuorumImplementation;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.implementation.FixedValue;
import net.bytebuddy.implementation.MethodDelegation;
import net.bytebuddy.implementation.bind.annotation.Argument;
import net.bytebuddy.implementation.bind.annotation.This;
import org.junit.jupiter.api.TestInfo;
import scala.collection.Map;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Changes what the tests in Scala have in common, as the JVM loads it: no controller is started, and
 * there is one broker with one replica where a test asks for several.
 */
public final class OneBroker {
    private OneBroker() {
    }

    static void install() {
        new AgentBuilder.Default()
            .type(named("kafka.server.QuorumTestHarness"))
            .transform((type, description, loader, module, domain) -> type
                .method(named("newKRaftQuorum").and(takesArgument(1, Properties.class)))
                .intercept(MethodDelegation.to(Quorum.class)))
            .type(named("kafka.integration.KafkaServerTestHarness"))
            .transform((type, description, loader, module, domain) -> type
                .visit(Advice.to(FirstConfig.class).on(named("configs"))))
            .type(named("kafka.utils.TestUtils$"))
            .transform((type, description, loader, module, domain) -> type
                .visit(Advice.to(OneReplica.class).on(named("createTopicWithAdminRaw"))))
            .type(hasSuperType(named("kafka.api.IntegrationTestHarness")))
            .transform((type, description, loader, module, domain) -> type
                .method(named("brokerCount").and(not(isAbstract())))
                .intercept(FixedValue.value(1)))
            .installOn(ByteBuddyAgent.getInstrumentation());
    }

    /** Replaces the start of a controller. */
    public static final class Quorum {
        private Quorum() {
        }

        public static KRaftQuorumImplementation create(
                @This Object test, @Argument(0) TestInfo info, @Argument(1) Properties overrides) {
            return new KRaftQuorumImplementation((QuorumTestHarness) test, info, overrides);
        }
    }

    /** Leaves the config of the first broker. */
    public static final class FirstConfig {
        private FirstConfig() {
        }

        @Advice.OnMethodExit
        @SuppressWarnings("unchecked")
        public static void take(@Advice.Return(readOnly = false) Seq<KafkaConfig> configs) {
            configs = (Seq<KafkaConfig>) configs.take(1);
        }
    }

    /** Creates topics with one replica, on the first broker. */
    public static final class OneReplica {
        private OneReplica() {
        }

        @Advice.OnMethodEnter
        public static void change(
                @Advice.Argument(value = 3, readOnly = false) int replicationFactor,
                @Advice.Argument(value = 4, readOnly = false) Map<Object, Seq<Object>> assignment) {
            replicationFactor = 1;
            assignment = OneBroker.onFirst(assignment);
        }
    }

    /** Return an assignment of the same partitions to the first broker. */
    public static Map<Object, Seq<Object>> onFirst(Map<Object, Seq<Object>> assignment) {
        java.util.Map<Object, Seq<Object>> only = new HashMap<>();
        Seq<Object> first = CollectionConverters.asScala(List.<Object>of(0)).toSeq();
        CollectionConverters.asJava(assignment).keySet().forEach(partition -> only.put(partition, first));
        return CollectionConverters.asScala(only);
    }
}
