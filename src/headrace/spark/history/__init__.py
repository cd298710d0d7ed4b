"""The history of groups, from the records of the internal topics.

The source ``kafka-group-history`` (:mod:`~headrace.spark.history.source`) decodes the records as
events (:mod:`~headrace.spark.history.group_records`). ``headrace lag history`` derives the
progress of groups from them (:mod:`~headrace.spark.history.groups`), as series that are computed
in tasks.
"""
