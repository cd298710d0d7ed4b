"""The source and sink ``kafka-share``: a share group as a queue (KIP-932).

The driver holds the locks, the executors read the bytes. One member of the group, in the
driver-side reader (:mod:`~headrace.spark.share.source`), acquires records and renews their locks
while a micro-batch runs (:mod:`~headrace.spark.share.acquisitions`). Tasks read these offsets
(:mod:`~headrace.spark.share.executor`). Outcomes are rows of a DataFrame, whose receipts tell the
way to the reader (:mod:`~headrace.spark.share.outcomes`).
"""
