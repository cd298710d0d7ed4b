package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * One run of a cluster test, against a fresh broker process.
 *
 * <p>Stands in for the class of this name in kafka-test-common-runtime, which starts brokers in the
 * JVM of the test: put it before that jar on the class path.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int invocation) {
        return name + " [" + invocation + "]" + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        BrokerProcess broker = new BrokerProcess(config, isCombined ? Type.CO_KRAFT : Type.KRAFT);
        return List.of(
            new OnceCondition(),
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) {
                    broker.start();
                }
            },
            (AfterTestExecutionCallback) context -> broker.stop(),
            new ClusterInstanceParameterResolver(broker));
    }

    /** Skips the run with a combined controller: where the controller is says nothing about a broker process. */
    private final class OnceCondition implements ExecutionCondition {
        @Override
        public ConditionEvaluationResult evaluateExecutionCondition(
                org.junit.jupiter.api.extension.ExtensionContext context) {
            return isCombined && config.clusterTypes().contains(Type.KRAFT)
                ? ConditionEvaluationResult.disabled("runs with the other type of cluster")
                : ConditionEvaluationResult.enabled("");
        }
    }
}
