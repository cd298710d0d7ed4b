"""``format("kafka-ordered")``: the data source. See ``docs/spark.md``."""

from __future__ import annotations

import asyncio

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from headrace.client.errors import UnknownTopic
from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.pyspark_capabilities import stream_reader
from headrace.spark.reader.columns import SPARK_HEADERS, SPARK_SCHEMA
from headrace.spark.subscription import existing_topics, subscribed_topics
from headrace.spark.worker_check import CheckedInExecutors

from .batch_reader import OrderedReader
from .options import OrderedOptions
from .positions import check_equal_counts
from .progress import check_group
from .stream_reader import OrderedStreamReader

_CHECK_TIMEOUT_MS = 10_000


class OrderedDataSource(CheckedInExecutors, DataSource):
    """Several topics in the order of their timestamps, as a batch or a stream.

    ``docs/spark.md`` describes options and columns. Creating one opens no connection.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``kafka-ordered``."""
        return "kafka-ordered"

    def schema(self) -> str:
        """Return the columns, after checking the brokers, the topics and the group.

        :raises SourceError: an option is invalid, the brokers do not answer, a topic does not
            exist, or the topics or the group cannot be used
        """
        options = self._parse(None)
        with one_line_errors():
            options.kafka.check()
            asyncio.run(_check(options))
        return SPARK_SCHEMA + (f", {SPARK_HEADERS}" if options.include_headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        return OrderedReader(self._parse(False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        reader = OrderedStreamReader(self._parse(True))
        return stream_reader(reader, reader.getDefaultReadLimit())

    def _parse(self, streaming: bool | None) -> OrderedOptions:
        with one_line_errors():
            return OrderedOptions.parse(self.options, streaming=streaming)


async def _check(options: OrderedOptions) -> None:
    # With failOnDataLoss=false, a restarted query continues without a topic that no longer exists.
    # A new query checks its topics when it starts.
    find_topics = subscribed_topics if options.fail_on_data_loss else existing_topics
    cluster = options.kafka.cluster(timeout_ms=_CHECK_TIMEOUT_MS)
    try:
        topics = await find_topics(cluster, options.subscription)
        check_equal_counts({name: len(topic.leaders) for name, topic in topics.items()})
        if options.group_id is not None:
            await check_group(cluster, options.group_id)
    except UnknownTopic as error:
        raise SourceError(
            f"{error}; with failOnDataLoss=false a query that has read it continues without it"
        ) from None
    finally:
        await cluster.close()
