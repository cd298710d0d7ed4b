"""Apache Kafka's own integration tests, as published, against headrace.

Kafka's test classes come compiled from Maven. Two classes are replaced (``java/``), one for tests
in Java and one for tests in Scala, so that each test gets a fresh ``headrace serve`` process
instead of a cluster in its own JVM. ``python -m tests.kafka_tests`` runs them; ``classes.toml``
names them, and the tests that say nothing about a broker in a process of its own, with the reason.
"""
