"""Configuration and errors of librdkafka, for the commands that use it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from headrace.admin import AdminClient
from headrace.cli.client_options import client_config, client_options, must_answer
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.options import setting
from headrace.client.errors import missing_permission

_TIMEOUT_S = 30.0
_POLL_S = 0.02


def librdkafka_options(parser: ArgumentParser, former: str, former_file: str) -> None:
    """Declare ``--bootstrap-server``, ``--command-config`` and ``--command-property``.

    :param former: the older name of ``--command-property`` in Kafka's tool, also accepted
    :param former_file: likewise of ``--command-config``
    """
    client_options(parser)
    parser.add_argument(
        former_file, dest="command_config", metavar="FILE", help="an older name of --command-config"
    )
    parser.add_argument(
        "--command-property",
        former,
        dest="command_property",
        action="extend",
        nargs="+",
        default=[],
        type=setting,
        metavar="NAME=VALUE",
        help=("client configs of librdkafka, mostly under Kafka's names; they override the file"),
    )


def librdkafka_config(options: Namespace) -> dict[str, Any]:
    """Return the configuration of a client. It logs no errors: the command reports them."""
    return {"log_level": 2, **client_config(options)}


def producer_config(options: Namespace) -> dict[str, Any]:
    """Return :func:`librdkafka_config` for a producer without transactions.

    :raises BadUsage: it has a transactional id
    """
    config = librdkafka_config(options)
    if "transactional.id" in config:
        raise BadUsage(
            "transactional.id is set, but this command begins no transactions: remove it"
        )
    return config


def one_line(error: KafkaException | KafkaError) -> str:
    """Return the text of an error on one line."""
    kafka_error = error.args[0] if isinstance(error, KafkaException) else error
    text = kafka_error.str() if isinstance(kafka_error, KafkaError) else str(kafka_error)
    return " ".join(text.removeprefix("Broker: ").removeprefix("Local: ").split())


def reason(error: KafkaException | KafkaError, topic: str, operation: str, group_id: str) -> str:
    """Return the text of an error on one line, with the permission that is missing, if one is.

    :param operation: the operation on the topic
    """
    kafka_error = error.args[0] if isinstance(error, KafkaException) else error
    code = kafka_error.code()
    needs = f"{operation} on topic '{topic}'"
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        needs = f"READ on group '{group_id}'"
    advice = missing_permission(code, needs)
    text = one_line(error)
    return f"{text}: {advice}" if advice else text


def partitions(config: Mapping[str, Any], topic: str) -> int:
    """Return the number of partitions of a topic.

    :raises Failure: the topic does not exist, or no broker answers or accepts the login
    :raises BadUsage: the name is empty, or the configuration is wrong
    """
    if not topic:
        raise BadUsage("the name of the topic is empty")
    reasons: dict[int, str] = {}
    admin_config: dict[str, Any] = {
        **config,
        "error_cb": lambda error: reasons.__setitem__(error.code(), one_line(error)),
    }
    try:
        admin = AdminClient(admin_config)
    except KafkaException as error:
        raise BadUsage(one_line(error)) from error
    must_answer(config)
    future = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)[topic]
    while not future.done() and KafkaError._ALL_BROKERS_DOWN not in reasons:
        admin.poll(_POLL_S)  # calls error_cb
    problem = future.exception() if future.done() else None
    if future.done() and problem is None:
        return len(future.result().partitions)
    code = problem.args[0].code() if isinstance(problem, KafkaException) else None
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise Failure(f"topic '{topic}' does not exist: create it first, or correct its name")
    if code in (None, KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
        why = reasons.get(KafkaError._TRANSPORT) or reasons.get(KafkaError._RESOLVE) or "timed out"
        raise Failure(f"no broker answers at {config['bootstrap.servers']}: {why}")
    assert isinstance(problem, KafkaException)
    raise Failure(f"looking up topic '{topic}': {reason(problem, topic, 'DESCRIBE', '')}")
