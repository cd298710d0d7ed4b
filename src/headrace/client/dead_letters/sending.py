"""The transactions of a redrive, with librdkafka: records and progress together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from headrace.client.config import librdkafka_config
from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused, error_line

from .letters import DeadLetter, QueuePosition
from .reading import TIMEOUT_S

_TRANSACTION_TIMEOUT_MS = 60_000
_RETRY_PAUSE_S = 0.1
_MAX_RECORD_BYTES = 256 << 20
"""The broker decides which records are too large."""
_OF_ONE_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Error codes that concern one record: the broker may accept the others."""
OF_ONE_SOURCE = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""Error codes that concern all records of a topic: the broker may accept those of other topics."""
_CONSEQUENCES = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class Sender:
    """The transactions of a redrive.

    :param config: librdkafka's configuration properties
    :param group_id: the group that keeps the progress, also the transactional id
    :raises ClientError: no broker answers, or it refuses
    """

    def __init__(self, config: Mapping[str, Any], group_id: str, queue: str) -> None:
        self._queue = queue
        self._group_id = group_id
        self._config = {"log_level": 2, **librdkafka_config(config)}
        self.restart()
        # Only a consumer knows how to name its group in a transaction.
        consumer = Consumer({**self._config, "group.id": group_id})
        self._group = consumer.consumer_group_metadata()
        consumer.close()

    def restart(self) -> None:
        """Abort the open transaction, and fence other redrives of the group.

        Create a new producer: after some refusals the old one would repeat sequence numbers.

        :raises ClientError: no broker answers, or it refuses
        """
        try:
            self._producer = Producer(
                {
                    **self._config,
                    "transactional.id": self._group_id,
                    "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                    "message.max.bytes": _MAX_RECORD_BYTES,
                }
            )
            _retried(lambda: self._producer.init_transactions(TIMEOUT_S))
        except KafkaException as error:
            raise self._client_error(
                f"beginning transactions of '{self._group_id}'", error
            ) from error

    def send(
        self, letters: Sequence[DeadLetter], positions: Mapping[int, QueuePosition]
    ) -> KafkaError | None:
        """Commit records and positions in one transaction.

        :returns: the refusal of a record or a source, after which :meth:`restart` must follow; else
            None
        :raises ClientError: the transaction failed, and is aborted
        """
        offsets = [
            TopicPartition(self._queue, number, position.start, metadata=position.metadata())
            for number, position in positions.items()
        ]
        try:
            self._producer.begin_transaction()
            if (refusal := self._produce(letters)) is not None:
                return refusal
            if offsets:
                _retried(
                    lambda: self._producer.send_offsets_to_transaction(
                        offsets, self._group, TIMEOUT_S
                    )
                )
            _retried(lambda: self._producer.commit_transaction(TIMEOUT_S))
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                raise fenced(self._group_id) from error
            if problem.fatal():
                raise self._client_error("redriving", error) from error
            if letters and problem.code() in OF_ONE_SOURCE:
                return problem  # of several sources the error does not name the one
            self._abort()
            raise self._client_error("redriving", error) from error
        except ClientError:
            self._abort()
            raise
        return None

    def _produce(self, letters: Sequence[DeadLetter]) -> KafkaError | None:
        """Produce records, and wait until all are acknowledged or one is refused.

        :returns: a refusal that concerns one record or source, or None
        :raises ClientError: another refusal
        """
        errors: list[tuple[str | None, KafkaError]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.code() not in _CONSEQUENCES:
                errors.append((message.topic(), error))

        for letter in letters:
            topic, partition = letter.source
            headers: Any = letter.redriven_headers()
            while not errors:
                try:
                    self._producer.produce(
                        topic,
                        letter.value,
                        letter.key,
                        partition,
                        headers=headers,
                        on_delivery=delivered,
                    )
                    break
                except BufferError:  # the queue is full: wait for deliveries
                    self._producer.poll(_RETRY_PAUSE_S)
                except KafkaException as error:
                    errors.append((topic, error.args[0]))
        unsent = len(letters)
        while not errors and (waiting := self._producer.flush(TIMEOUT_S)) and not errors:
            if waiting >= unsent:
                raise ConnectionFailed("producing: the broker does not answer")
            unsent = waiting
        for source, refusal in errors:
            if refusal.code() not in _OF_ONE_RECORD | OF_ONE_SOURCE:
                raise self._client_error(f"producing to topic '{source}'", refusal)
        return errors[0][1] if errors else None

    def _client_error(self, what: str, error: KafkaException | KafkaError) -> ClientError:
        problem = error.args[0] if isinstance(error, KafkaException) else error
        if problem.code() <= 0:
            return ConnectionFailed(f"{what}: {error_line(problem)}")
        needs = f"WRITE on transactional id '{self._group_id}'"
        if problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            needs = f"READ on group '{self._group_id}'"
        return RequestRefused(what, problem.code(), needs=needs)

    def _abort(self) -> None:
        try:
            _retried(lambda: self._producer.abort_transaction(TIMEOUT_S))
        except KafkaException:
            pass  # the broker aborts it after its timeout, or when the next redrive begins


def fenced(group_id: str) -> ClientError:
    """Return the error of a redrive during which another one has begun."""
    return ClientError(f"another redrive with the group '{group_id}' has begun: this one ends")


def _retried(call: Callable[[], object]) -> None:
    """Call until it succeeds; retry after retriable errors.

    :raises KafkaException: another error, or no success in time
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_PAUSE_S)
