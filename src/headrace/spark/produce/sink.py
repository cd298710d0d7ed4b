"""``format("kafka-produce")``: the sink. See ``docs/spark.md``."""

from __future__ import annotations

import asyncio
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.pyspark_capabilities import batch_writer, stream_writer
from headrace.spark.worker_check import CheckedInExecutors

from .options import ProduceOptions
from .records import check_columns
from .writers import BatchProduceWriter, StreamProduceWriter

_CHECK_TIMEOUT_MS = 10_000


class ProduceDataSource(CheckedInExecutors, DataSource):
    """Topics as a sink of batches and of streams.

    ``docs/spark.md`` describes options and columns. Creating one opens no connection.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``kafka-produce``."""
        return "kafka-produce"

    def schema(self) -> str:
        """Refuse to be read.

        :raises SourceError: always
        """
        with one_line_errors():
            raise SourceError("kafka-produce is a sink: read with kafka-ordered or kafka-share")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        return batch_writer(BatchProduceWriter(self._checked(schema, overwrite)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query."""
        return stream_writer(StreamProduceWriter(self._checked(schema, overwrite)), schema)

    def _checked(self, schema: StructType, overwrite: bool) -> ProduceOptions:
        """Return the options, after checking the columns, the broker and the topic.

        :raises SourceError: an option or a column is invalid, the broker does not answer, or the
            topic does not exist
        """
        with one_line_errors():
            if overwrite:
                raise SourceError(
                    "records of a topic cannot be overwritten: use mode('append'), or "
                    "outputMode('append') or ('update')"
                )
            options = ProduceOptions.parse(self.options)
            check_columns(schema, options.topic)
            options.check()
            asyncio.run(_check_topic(options))
        return options


async def _check_topic(options: ProduceOptions) -> Any:
    async with options.kafka.cluster(timeout_ms=_CHECK_TIMEOUT_MS) as cluster:
        return await cluster.topics([options.topic] if options.topic else [])
