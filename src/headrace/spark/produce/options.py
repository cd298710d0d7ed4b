"""Options of ``format("kafka-produce")``, validated before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import KafkaOptions, UserOptions

DEFAULT_COMMIT_TOPIC = "headrace-spark-commits"

TRANSACTION_TIMEOUT_MS = 900_000
"""Default of ``kafka.transaction.timeout.ms``: the largest value that brokers allow by default."""

_OPTIONS = ("topic", "transactionalIdPrefix", "commitTopic", "lostTransactions")
_REFUSED = {
    "transactional.id": "set transactionalIdPrefix, because each task has its own id",
    "delivery.report.only.error": "the sink sets it",
}
_ALWAYS: Mapping[str, Any] = {"enable.idempotence": True, "delivery.report.only.error": True}
_QUEUE_KBYTES = 64 * 1024
"""librdkafka's own limit, 1 GiB, is more than the memory of a Python worker; and librdkafka ends
the process when it gets none."""


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
    topic: str | None
    prefix: str | None
    commit_topic: str
    resend_lost: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ProduceOptions:
        """Parse the user's options.

        :raises SourceError: an option is missing, unknown, or has an invalid value
        """
        user_options = UserOptions(options, _OPTIONS)
        kafka = user_options.kafka(_REFUSED)
        if str(kafka.librdkafka.get("enable.idempotence", "true")).lower() not in ("true", "1"):
            raise SourceError(
                "remove the option kafka.enable.idempotence: the sink always writes idempotently"
            )
        lost = user_options.choice("lostTransactions", ("fail", "resend"), "fail")
        return cls(
            kafka=kafka,
            topic=user_options.text("topic"),
            prefix=user_options.text("transactionalIdPrefix"),
            commit_topic=user_options.text("commitTopic") or DEFAULT_COMMIT_TOPIC,
            resend_lost=lost == "resend",
        )

    def producer_config(self, transactional_id: str | None = None) -> dict[str, Any]:
        """Return the configuration of a task's producer.

        Keys choose the same partitions as with Java's clients and Spark's own sink. The largest
        record fits into the queue.
        """
        largest_record = str(self.kafka.librdkafka.get("message.max.bytes", ""))
        largest_kbytes = int(largest_record) // 1024 + 1 if largest_record.isdigit() else 0
        config = {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "queue.buffering.max.kbytes": max(_QUEUE_KBYTES, largest_kbytes),
            "partitioner": "murmur2_random",
            **self.kafka.librdkafka,
            **_ALWAYS,
        }
        if transactional_id is not None:
            config.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
            config["transactional.id"] = transactional_id
        return config
