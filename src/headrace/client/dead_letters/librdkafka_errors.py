"""Conversion of librdkafka's errors into :class:`~headrace.client.errors.ClientError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused


def client_error(what: str, error: KafkaException | KafkaError, needs: str) -> ClientError:
    """Convert an error of librdkafka.

    :param what: the step that failed
    :param needs: the permission that it needs
    """
    kafka_error = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(kafka_error, KafkaError):
        return ClientError(f"{what}: {kafka_error}")
    code = int(kafka_error.code())
    if code > 0:
        return RequestRefused(what, code, needs=needs)
    text = " ".join(kafka_error.str().removeprefix("Local: ").split())
    return ConnectionFailed(f"{what}: {text}")


@contextmanager
def client_errors(what: str, needs: str) -> Iterator[None]:
    """Convert errors of librdkafka that are raised inside.

    :raises ClientError: librdkafka raised an error
    """
    try:
        yield
    except KafkaException as error:
        raise client_error(what, error, needs) from error
