"""From our errors to confluent-kafka's."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from headrace.client import (
    ApiMissing,
    AuthenticationFailed,
    ClientError,
    ConnectionFailed,
    RequestRefused,
)
from headrace.errors import ErrorCode


def kafka_error(error: ClientError) -> KafkaError:
    """The :class:`KafkaError` that says the same: the broker's code and text, or a local code and
    ours.
    """
    if isinstance(error, RequestRefused):
        text = error.message or KafkaError(error.code).str().removeprefix("Broker: ")
        return KafkaError(error.code, text)
    if isinstance(error, ConnectionFailed):
        return KafkaError(KafkaError._TRANSPORT, str(error))
    if isinstance(error, AuthenticationFailed):
        return KafkaError(KafkaError._AUTHENTICATION, str(error))
    if isinstance(error, ApiMissing):
        return KafkaError(int(ErrorCode.UNSUPPORTED_VERSION), str(error))
    return KafkaError(KafkaError._FAIL, str(error))


def kafka_exception(error: BaseException) -> BaseException:
    """What a future fails with: a :class:`KafkaException` for an expected error, the error itself
    for a bug.
    """
    if isinstance(error, ClientError):
        return KafkaException(kafka_error(error))
    if isinstance(error, TimeoutError):
        return KafkaException(
            KafkaError(KafkaError._TIMED_OUT, str(error) or "the brokers did not answer in time")
        )
    return error
