package org.apache.kafka.common.test.junit;

/** A test wants something that no broker in a process of its own can give. */
public class NotApplicable extends UnsupportedOperationException {
    public NotApplicable(String reason) {
        super(reason);
    }
}
