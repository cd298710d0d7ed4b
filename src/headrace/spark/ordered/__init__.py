"""The source ``kafka-ordered``: several topics in the order of their timestamps (KIP-695).

Task *i* owns partition *i* of every subscribed topic. The driver decides from the brokers' metadata
how far each task may read, and fixes that as the micro-batch's offsets:

* :mod:`~headrace.spark.ordered.positions`: the tasks, the offsets at which reading begins, and what
  has been lost: deleted topics and records
* :mod:`~headrace.spark.ordered.plan`: the end of the next micro-batch, by the rule of
  ``max.task.idle.ms`` and by ``maxOffsetsPerTrigger``, as cuts at moments in time. It is pure; it
  asks a :class:`~headrace.spark.ordered.broker_log.BrokerLog`, or a list of records in tests.

Tasks then read and merge (:mod:`~headrace.spark.ordered.executor`), and report their counts to the
driver (:mod:`~headrace.spark.ordered.progress`).
"""
