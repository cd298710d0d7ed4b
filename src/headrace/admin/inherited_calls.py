"""The calls that the admin client inherits from confluent-kafka, with errors that say what to
change.

librdkafka retries a refused login until a call times out, and reports the reason to a callback
only. So each call also uses a connection of our own, which fails at once with the reason. A broker
that refuses a call does not name the missing permission: :data:`NEEDED` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource

from headrace.client import AuthenticationFailed
from headrace.client.errors import missing_permission
from headrace.errors import ErrorCode

from .translation import kafka_exception

NEEDED: Mapping[str, str] = {
    "alter_configs": "ALTER_CONFIGS",
    "alter_consumer_group_offsets": "READ",
    "alter_user_scram_credentials": "ALTER",
    "create_acls": "ALTER",
    "create_partitions": "ALTER",
    "create_topics": "CREATE",
    "delete_acls": "ALTER",
    "delete_consumer_groups": "DELETE",
    "delete_records": "DELETE",
    "delete_topics": "DELETE",
    "describe_cluster": "DESCRIBE",
    "describe_configs": "DESCRIBE_CONFIGS",
    "describe_topics": "DESCRIBE",
    "elect_leaders": "ALTER",
    "incremental_alter_configs": "ALTER_CONFIGS",
    "list_consumer_groups": "DESCRIBE",
    "list_offsets": "DESCRIBE",
}
"""Inherited call that returns futures → the operation that must be allowed."""

WAITING_CALLS = ("cluster_id", "list_groups", "list_topics")
"""The inherited calls that return the answer itself, not futures."""

Answer = Future[Any] | dict[Any, Future[Any]]
OnRefusedLogin = Callable[[Callable[[AuthenticationFailed], None]], None]
"""Takes the function to call if the brokers do not accept the security settings."""


def explained(operation: str, answer: Answer, on_refused_login: OnRefusedLogin) -> Answer:
    """Return futures that fail as soon as a login fails, and name missing permissions.

    :param operation: the operation that the call needs
    :param answer: the futures of librdkafka
    :param on_refused_login: see :data:`OnRefusedLogin`
    """
    inner = answer if isinstance(answer, dict) else {None: answer}
    outer = {key: _following(future, operation, key) for key, future in inner.items()}

    def fail(error: AuthenticationFailed) -> None:
        for future in outer.values():
            with suppress(InvalidStateError):
                future.set_exception(kafka_exception(error))

    on_refused_login(fail)
    return outer if isinstance(answer, dict) else outer[None]


def _following(inner: Future[Any], operation: str, key: Any) -> Future[Any]:
    outer: Future[Any] = Future()
    # As in confluent-kafka, a call under way cannot be cancelled.
    outer.set_running_or_notify_cancel()

    def settle(done: Future[Any]) -> None:
        error = done.exception()
        with suppress(InvalidStateError):  # the login has failed before
            if error is None:
                outer.set_result(done.result())
            else:
                outer.set_exception(_with_permission(error, operation, key))

    inner.add_done_callback(settle)
    return outer


def _with_permission(error: BaseException, operation: str, key: Any) -> BaseException:
    """Return the error, with the permission that is missing if that is the reason.

    :param key: the key of the future: the resource, or something that names it
    """
    if not isinstance(error, KafkaException) or not isinstance(error.args[0], KafkaError):
        return error
    kafka_error = error.args[0]
    advice = missing_permission(
        kafka_error.code(), f"{operation} on {_resource(kafka_error.code(), key)}"
    )
    if advice is None:
        return error
    text = kafka_error.str().removeprefix("Broker: ").rstrip(".")
    return KafkaException(KafkaError(kafka_error.code(), f"{text}: {advice}"))


def _resource(code: int, key: Any) -> str:
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return "the cluster"
    kind = "group" if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else "topic"
    if isinstance(key, TopicPartition):
        return f"{kind} '{key.topic}'"
    if isinstance(key, ConfigResource):
        return f"{kind} '{key.name}'"
    return f"{kind} '{key}'" if isinstance(key, str) else f"the {kind}"
