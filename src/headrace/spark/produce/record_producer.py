"""A producer of a task: librdkafka, with errors that name the topic and partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.log_lines import get_logger, printable
from headrace.spark.errors import SourceError

from .columns import Record

_log = get_logger(__name__)

_POLL_EVERY_RECORDS = 1_000
_FULL_POLL_S = 0.1
_ABORT_TIMEOUT_S = 10.0
_FLUSH_S = 1.0

_ADVICE: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic and the option "
    "kafka.message.max.bytes, or write smaller records",
    KafkaError._MSG_TIMED_OUT: "check that the executors reach the brokers, or raise "
    "kafka.delivery.timeout.ms",
    KafkaError._UNKNOWN_TOPIC: "create the topic first, or correct its name",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic first, or correct its name",
    KafkaError._UNKNOWN_PARTITION: "correct the column partition",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower kafka.transaction.timeout.ms to "
    "transaction.max.timeout.ms of the brokers",
    KafkaError._FENCED: "another query has the same transactional id: choose another "
    "kafka.transactional.id.prefix, unless this task was tried twice",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user needs the permission WRITE on the "
    "transactional ids that begin with kafka.transactional.id.prefix",
}


class RecordProducer:
    """An idempotent producer. Every method raises the first error of a delivery.

    Without :meth:`abort`, its transaction stays open when it is dropped.

    :param config: see :meth:`headrace.spark.produce.options.ProduceOptions.producer_config`
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._failure = _FirstFailure()
        # A callback for each record would take as long as the rest of writing it.
        config = {**config, "on_delivery": self._failure, "log_level": 2}
        self._producer = Producer(config, logger=_log)
        self.written = 0
        """The number of records so far."""

    def begin(self, timeout_s: float) -> None:
        """Fence earlier producers with the transactional id, and begin a transaction.

        :raises SourceError: the cluster refuses, or does not answer
        """
        try:
            self._producer.init_transactions(timeout_s)
            self._producer.begin_transaction()
        except KafkaException as error:
            raise SourceError(described("beginning a transaction", error.args[0])) from None

    def write(self, rows: Iterable[Record]) -> None:
        """Write records.

        :raises SourceError: a record cannot be written
        """
        produce, poll = self._producer.produce, self._producer.poll
        for row in rows:
            topic, key, value, partition, timestamp_ms, headers = row
            if topic is None:
                raise SourceError("the column topic is null: fill it, or set the option topic")
            while True:
                try:
                    produce(topic, value, key, partition, None, None, timestamp_ms, headers)
                    break
                except BufferError:
                    poll(_FULL_POLL_S)
                    self._check()
                except KafkaException as error:
                    self._check()
                    raise SourceError(failed_record(error.args[0], topic, partition)) from None
                except (TypeError, ValueError) as error:
                    raise SourceError(f"a record for topic '{topic}': {error}") from None
            self.written += 1
            if self.written % _POLL_EVERY_RECORDS == 0:
                poll(0)
                self._check()

    def flush(self) -> None:
        """Wait until all records are in the log.

        :raises SourceError: one of them is not
        """
        while self._producer.flush(_FLUSH_S):
            self._check()
        self._check()

    def abort(self) -> None:
        """Abort the transaction; log a warning if that fails."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(_ABORT_TIMEOUT_S)
        except KafkaException as error:
            _log.warning("%s", described("aborting a transaction", error.args[0]))

    def _check(self) -> None:
        if self._failure.text is not None:
            raise SourceError(self._failure.text)


class _FirstFailure:
    """The first error of a delivery. librdkafka calls this with errors only."""

    def __init__(self) -> None:
        self.text: str | None = None

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self.text is None:
            self.text = failed_record(error, message.topic(), message.partition())


def failed_record(error: KafkaError, topic: str, partition: int) -> str:
    """Return the text about a record that was not written, on one line."""
    where = topic if partition is None or partition < 0 else f"{topic}-{partition}"
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        advice = f"the user needs the permission WRITE on topic '{topic}'"
        return printable(f"writing to {where}: {error.str()}: {advice}", 1000)
    return described(f"writing to {where}", error)


def described(what: str, error: KafkaError) -> str:
    """Return the text about an error of librdkafka, with advice if there is any, on one line."""
    advice = _ADVICE.get(error.code())
    text = f"{what}: {error.str()}" + (f": {advice}" if advice else "")
    return printable(text, 1000)
