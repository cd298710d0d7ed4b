"""Translation of client errors into confluent-kafka's."""

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
    """Translate an error.

    :returns: the broker's code and text for a refusal; else a code of librdkafka and our text
    """
    if isinstance(error, RequestRefused):
        text = error.message or KafkaError(error.code).str().removeprefix("Broker: ")
        if error.advice is not None:
            text = f"{text.rstrip('.')}: {error.advice}"
        return KafkaError(error.code, text)
    if isinstance(error, ConnectionFailed):
        return KafkaError(KafkaError._TRANSPORT, str(error))
    if isinstance(error, AuthenticationFailed):
        return KafkaError(KafkaError._AUTHENTICATION, str(error))
    if isinstance(error, ApiMissing):
        return KafkaError(int(ErrorCode.UNSUPPORTED_VERSION), str(error))
    return KafkaError(KafkaError._FAIL, str(error))


def kafka_exception(error: ClientError) -> KafkaException:
    """Translate an error into the exception that carries it."""
    return KafkaException(kafka_error(error))


def future_exception(error: BaseException) -> BaseException:
    """Return the exception for a future: ``KafkaException`` for an expected error, else ``error``
    itself.
    """
    if isinstance(error, ClientError):
        return kafka_exception(error)
    if isinstance(error, TimeoutError):
        text = str(error) or "the brokers did not answer in time"
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
    return error
