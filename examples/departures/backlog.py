"""The backlog of both queries over time, from snapshots of ``kafka-lag``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from .session import Job

Backlog = Mapping[str, int]
"""Group → number of records that it has not finished."""


class BacklogWatch:
    """A query that keeps the backlog of each snapshot.

    :param initial: the backlog before the groups exist
    :ivar samples: pairs of seconds since the start and the backlog then
    """

    def __init__(self, initial: Backlog) -> None:
        self.samples: list[tuple[float, Backlog]] = [(0.0, initial)]
        self._started_s = time.monotonic()

    def start(
        self, job: Job, group_ids: Sequence[str], show: Callable[[Backlog], None]
    ) -> StreamingQuery:
        """Start the query. Every two seconds it takes a snapshot, and passes it to ``show``."""
        lags = (
            job.spark.readStream.format("kafka-lag")
            .option("kafka.bootstrap.servers", job.bootstrap_servers)
            .option("groups", ",".join(group_ids))
            .option("timeLag", "false")
            .load()
        )

        def add_sample(snapshot: DataFrame, batch_id: int) -> None:
            known: Counter[str] = Counter()
            # A row per partition: adding them up here costs less than a shuffle.
            for row in snapshot.where("lag IS NOT NULL").select("groupId", "lag").collect():
                known[row.groupId] += row.lag
            _, previous = self.samples[-1]
            backlog = {**previous, **known}
            self.samples.append((time.monotonic() - self._started_s, backlog))
            show(backlog)

        return (
            lags.writeStream.queryName("backlog")
            .foreachBatch(add_sample)
            .option("checkpointLocation", job.checkpoint("backlog"))
            .trigger(processingTime="2 seconds")
            .start()
        )

    def is_drained(self, *group_ids: str) -> bool:
        """Return True if these groups had no backlog in the last snapshot."""
        _, backlog = self.samples[-1]
        return not any(backlog[group_id] for group_id in group_ids)
