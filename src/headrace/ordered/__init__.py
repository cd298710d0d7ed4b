"""Tasks that read several inputs in timestamp order: the rule for waiting, and the merge (KIP-695).

Pure: no clock, no network. :class:`headrace.client.OrderedConsumer` uses it on topics,
``kafka-ordered`` on Spark.
"""
