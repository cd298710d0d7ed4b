"""``format("kafka-produce")``: the sink. See ``docs/spark.md``."""

from __future__ import annotations

from confluent_kafka import Producer
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.worker_check import CheckedInExecutors

from .options import ProduceOptions
from .records import check_columns
from .writers import BatchProduceWriter, StreamProduceWriter


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
        return BatchProduceWriter(self._checked(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query."""
        return StreamProduceWriter(self._checked(schema, overwrite), schema)

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
            topics = [options.topic] if options.topic else []
            options.kafka.check(
                lambda cluster: cluster.topics(topics), Producer, options.producer_config()
            )
        return options
