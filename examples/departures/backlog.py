"""The backlog of both queries, all the time: snapshots of ``kafka-lag``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

Backlog = Mapping[str, int]
"""Group -> records that it has not dealt with yet."""


class BacklogWatch:
    """Keeps what each snapshot said.

    :param initial: the backlog before the groups are there
    :ivar samples: seconds since the start, and the backlog then
    """

    def __init__(self, initial: Backlog) -> None:
        self.samples: list[tuple[float, Backlog]] = [(0.0, initial)]
        self._started_s = time.monotonic()

    def start(
        self,
        spark: SparkSession,
        bootstrap_servers: str,
        group_ids: list[str],
        checkpoint: Path,
        show: Callable[[Backlog], None],
    ) -> StreamingQuery:
        """Start the query that looks at the groups every second, and tells ``show``."""
        lags = (
            spark.readStream.format("kafka-lag")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("groups", ",".join(group_ids))
            .option("timeLag", "false")
            .load()
        )

        def look(snapshot: DataFrame, batch_id: int) -> None:
            rows = snapshot.groupBy("group_id").agg(F.sum("lag").alias("lag")).collect()
            backlog = {
                **self.samples[-1][1],
                **{row.group_id: row.lag for row in rows if row.lag is not None},
            }
            self.samples.append((time.monotonic() - self._started_s, backlog))
            show(backlog)

        return (
            lags.writeStream.queryName("backlog")
            .foreachBatch(look)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="1 second")
            .start()
        )

    def is_drained(self, *group_ids: str) -> bool:
        """Whether the last snapshot saw nothing left for these groups."""
        return not any(self.samples[-1][1][group_id] for group_id in group_ids)
