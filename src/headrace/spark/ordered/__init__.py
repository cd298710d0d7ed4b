"""The source ``kafka-ordered``: several topics in the order of their timestamps (KIP-695).

Task *i* owns partition *i* of every subscribed topic. The driver decides from the brokers' metadata
how far each task may read, and fixes that as the micro-batch's offsets:

* :mod:`~headrace.spark.ordered.positions`: the tasks, and the offsets at which reading begins
* :mod:`~headrace.spark.ordered.losses`: detection of deleted topics and lost records
* :mod:`~headrace.spark.ordered.plan`: the end of the next micro-batch, by the rule of
  ``max.task.idle.ms`` (:mod:`~headrace.spark.ordered.cuts`) and by ``maxOffsetsPerTrigger``
  (:mod:`~headrace.spark.ordered.limits`). These are pure; they ask a
  :class:`~headrace.spark.ordered.inputs.Log`, which is a
  :class:`~headrace.spark.ordered.broker_log.BrokerLog` outside of tests.

Tasks then read and merge (:mod:`~headrace.spark.ordered.executor`), and report their counts to the
driver (:mod:`~headrace.spark.ordered.task_reports`).
"""
