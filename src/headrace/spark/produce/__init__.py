"""The sink ``kafka-produce``: rows as records of topics.

Tasks write with librdkafka (:mod:`~headrace.spark.produce.records`), each in a transaction
of its own if ``transactionalIdPrefix`` is set. The driver then decides about all of them at
once, with one record in a log of commits, and ends them (:mod:`~headrace.spark.produce.commits`).
"""
