"""The source ``kafka-lag``: the progress of all groups of a cluster as a table.

The driver lists the groups (:mod:`~headrace.spark.lag.source`). Each task asks the brokers for the
progress of some of them, over connections of its own, and yields Arrow batches.
"""
