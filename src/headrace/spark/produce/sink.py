"""``format("kafka-produce")``: the sink and its options. See ``docs/spark.md``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaException, Producer
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from headrace.spark.errors import SourceError, one_line_errors
from headrace.spark.option_parsing import GivenOptions, KafkaOptions
from headrace.spark.produce.records import check_columns
from headrace.spark.produce.writers import BatchProduceWriter, StreamProduceWriter
from headrace.spark.pyspark_capabilities import batch_writer, stream_writer
from headrace.spark.worker_check import CheckedInExecutors

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


DEFAULT_COMMIT_TOPIC = "headrace-spark-commits"

TRANSACTION_TIMEOUT_MS = 900_000
"""Default of ``kafka.transaction.timeout.ms``: the largest value that brokers allow by default."""

_PREFIX = "transactional.id.prefix"
_OPTIONS = ("topic", "commitTopic", "lostTransactions")
_REFUSED = {
    "transactional.id": "set kafka.transactional.id.prefix, because each task has its own id",
    "delivery.report.only.error": "the sink sets it",
}
_ALWAYS: Mapping[str, Any] = {"enable.idempotence": True, "delivery.report.only.error": True}
_DEFAULTS: Mapping[str, Any] = {"partitioner": "murmur2_random"}


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """Validated options of a sink. Plain values: Spark sends them to the executors.

    :param topic: the topic of all rows; None if each row names its own
    :param prefix: the beginning of transactional ids; None without transactions
    :param commit_topic: the topic of the log of commits
    :param resend_lost: after transactions were aborted although they had been decided: True commits
        what the replay wrote in their place, False fails
    """

    kafka: KafkaOptions
    topic: str | None = None
    prefix: str | None = None
    commit_topic: str = DEFAULT_COMMIT_TOPIC
    resend_lost: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ProduceOptions:
        """Parse the user's options.

        :raises SourceError: an option is missing, unknown, or has an invalid value
        """
        given = GivenOptions(options, _OPTIONS)
        kafka = given.kafka(_REFUSED)
        if str(kafka.librdkafka.get("enable.idempotence", "true")).lower() not in ("true", "1"):
            raise SourceError(
                "remove the option kafka.enable.idempotence: the sink always writes idempotently"
            )
        settings = {name: value for name, value in kafka.librdkafka.items() if name != _PREFIX}
        lost = given.choice("lostTransactions", ("fail", "resend"), "fail")
        return cls(
            kafka=replace(kafka, librdkafka=settings),
            topic=given.text("topic"),
            prefix=given.text(f"kafka.{_PREFIX}"),
            commit_topic=given.text("commitTopic") or DEFAULT_COMMIT_TOPIC,
            resend_lost=lost == "resend",
        )

    def check(self) -> None:
        """Validate the ``kafka.*`` settings without connecting.

        :raises SourceError: librdkafka or headrace's own client does not accept a setting
        """
        _ = self.kafka.security  # first, because its errors about files are clearer
        try:
            Producer({**self.producer_config(), "log_level": "0"}, logger=None)
        except KafkaException as refusal:
            raise SourceError(
                f"librdkafka does not accept an option kafka.*: {refusal.args[0].str()}"
            ) from None

    def producer_config(self, transactional_id: str | None = None) -> dict[str, Any]:
        """Return the configuration of a task's producer.

        Keys choose the same partitions as with Java's clients and Spark's own sink.
        """
        config = {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            **_DEFAULTS,
            **self.kafka.librdkafka,
            **_ALWAYS,
        }
        if transactional_id is not None:
            config.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
            config["transactional.id"] = transactional_id
        return config
