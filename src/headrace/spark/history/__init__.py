"""The history of groups, from the records of the internal topics.

The source ``kafka-group-history`` (:mod:`~headrace.spark.history.source`) decodes the records as
events (:mod:`~headrace.spark.history.group_records`). ``headrace lag history`` derives series,
stalls and advice from them: :mod:`~headrace.spark.history.tables` has the DataFrames,
:mod:`~headrace.spark.history.series` and :mod:`~headrace.spark.history.end_offsets` the parts of
them that run in tasks, and :mod:`~headrace.spark.history.advice` the arithmetic.
:mod:`~headrace.spark.history.run` computes it all, and :mod:`~headrace.spark.history.html_report`
draws it.
"""
