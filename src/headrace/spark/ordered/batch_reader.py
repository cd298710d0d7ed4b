"""The reader of a batch of ``kafka-ordered``: everything between two bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader

from headrace.spark.errors import one_line_errors

from .broker_log import BrokerLog
from .executor import OrderedPartition, TaskWork, offset_ranges, read
from .inputs import Inputs
from .limits import slices
from .options import OrderedOptions
from .positions import all_partitions, check_equal_counts, require_known, resolve, tasks_of


class OrderedReader(DataSourceReader):
    """The reader of one batch.

    There is one Spark task per partition number. With ``minPartitions`` there are several, each
    later in time than the one before.
    """

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[OrderedPartition]:
        """Return the Spark tasks, with their ends fixed."""
        with one_line_errors():
            return self._plan()

    def _plan(self) -> list[OrderedPartition]:
        options = self._options
        log = BrokerLog(options)
        topics = log.complete_topics()
        check_equal_counts(topics)
        wanted = all_partitions(topics)
        fail = options.fail_on_data_loss
        starts = resolve(log, options.start, wanted, options.group_id, fail_on_data_loss=fail)
        ends = resolve(log, options.end, wanted, None, fail_on_data_loss=fail)
        if options.max_task_idle_ms >= 0:
            require_known(wanted, starts, ends)
        tasks = tasks_of(topics)
        pieces_per_task = max(1, round((options.min_partitions or 0) / len(tasks)))
        planned = []
        for task, partitions in tasks.items():
            known = tuple(p for p in partitions if p in starts and p in ends)
            inputs = Inputs(known, {p: starts[p] for p in known}, {p: ends[p] for p in known})
            if pieces_per_task > 1 and len(inputs):
                pieces = slices(log, inputs, pieces_per_task)
            else:
                pieces = [inputs]
            planned += [
                OrderedPartition(TaskWork(task, number, offset_ranges(piece)))
                for number, piece in enumerate(pieces)
            ]
        return planned

    def read(self, partition: OrderedPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task. Runs in an executor."""
        return read(partition.value, self._options.kafka, self._options.reading)
