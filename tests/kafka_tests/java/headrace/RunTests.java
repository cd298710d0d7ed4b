package headrace;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.test.junit.NotApplicable;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs JUnit tests and prints a line of tab-separated fields for each: outcome, milliseconds, class,
 * method, display name, and the reason on one line.
 *
 * <p>Arguments: names of classes, or of methods as {@code class#method}.
 */
public final class RunTests implements TestExecutionListener {
    private static final String MARK = "@headrace";

    private final Map<String, Long> started = new HashMap<>();

    public static void main(String[] names) {
        OneBroker.install();
        LauncherDiscoveryRequestBuilder request = LauncherDiscoveryRequestBuilder.request()
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.timeout.default", System.getProperty("headrace.timeout", "180 s"));
        Arrays.stream(names).forEach(name -> request.selectors(
            name.contains("#") ? DiscoverySelectors.selectMethod(name) : DiscoverySelectors.selectClass(name)));
        LauncherDiscoveryRequest built = request.build();
        LauncherFactory.create().execute(built, new RunTests());
        System.out.flush();
        Runtime.getRuntime().halt(0); // threads that a failed test has left do not hold the end
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        started.put(test.getUniqueId(), System.nanoTime());
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        report(test, "skipped", reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        Throwable error = result.getThrowable().orElse(null);
        if (result.getStatus() == TestExecutionResult.Status.SUCCESSFUL) {
            if (test.isTest()) {
                report(test, "passed", "");
            }
        } else {
            report(test, isNotApplicable(error) ? "not-applicable" : "failed", trace(error));
        }
    }

    private static boolean isNotApplicable(Throwable error) {
        for (Throwable one = error; one != null; one = one.getCause()) {
            if (one instanceof NotApplicable) {
                return true;
            }
        }
        return false;
    }

    private static String trace(Throwable error) {
        StringWriter text = new StringWriter();
        if (error != null) {
            error.printStackTrace(new PrintWriter(text));
        }
        return text.toString();
    }

    private void report(TestIdentifier test, String outcome, String reason) {
        long beganNs = started.getOrDefault(test.getUniqueId(), System.nanoTime());
        String type = "";
        String method = "";
        if (test.getSource().orElse(null) instanceof MethodSource source) {
            type = source.getClassName();
            method = source.getMethodName();
        }
        System.out.println(String.join("\t", MARK, outcome, Long.toString((System.nanoTime() - beganNs) / 1_000_000),
            type, method, line(test.getDisplayName()), line(reason)));
    }

    private static String line(String text) {
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "");
    }
}
