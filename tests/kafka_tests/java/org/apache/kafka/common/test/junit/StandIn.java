package org.apache.kafka.common.test.junit;

import java.lang.reflect.Method;
import org.mockito.MockMakers;
import org.mockito.Mockito;

/** Objects of Kafka's classes and interfaces whose methods are all answered by our own code. */
public final class StandIn {
    private StandIn() {
    }

    /** The answers. What it does not know it refuses with {@link NotApplicable}. */
    public interface Calls {
        Object call(Method method, Object[] arguments) throws Exception;
    }

    /** Return an object of a type that has run no constructor. Defaults of Scala's parameters are Kafka's own. */
    public static <T> T of(Class<T> type, Calls calls) {
        return Mockito.mock(type, Mockito.withSettings()
            .mockMaker(MockMakers.SUBCLASS)
            .stubOnly()
            .defaultAnswer(call -> {
                String name = call.getMethod().getName();
                if (name.equals("toString")) {
                    return type.getSimpleName() + " of headrace";
                }
                return name.contains("$default$")
                    ? call.callRealMethod()
                    : calls.call(call.getMethod(), call.getRawArguments());
            }));
    }
}
