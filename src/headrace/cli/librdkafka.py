"""Configuration and errors of librdkafka, for the commands that use it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from headrace.cli.client_options import call_options, client_config, must_answer
from headrace.cli.clients import Cluster, errors
from headrace.cli.cluster_run import on_cluster
from headrace.cli.errors import BadUsage
from headrace.cli.nouns import repeatable
from headrace.cli.options import setting

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


LIBRDKAFKA_OPTIONS = (
    call_options,
    repeatable(
        "-X",
        "NAME=VALUE",
        "a client config of librdkafka; overrides the file",
        dest="command_property",
        type=setting,
    ),
)
"""The options of the connection, and ``-X``."""


def reason(error: KafkaError, needs: str) -> str:
    """Return the text of an error on one line, with the permission that is missing, if one is.

    :param needs: the permission, such as ``"READ on group 'g1'"``
    """
    line, advice = errors.error_line(error), errors.missing_permission(error.code(), needs)
    return f"{line.rstrip('.')}: {advice}" if advice else line


def partition_count(options: Namespace) -> int | None:
    """Return the number of partitions of a topic; None if only librdkafka can connect.

    :raises ClientError: the topic does not exist, or no broker answers or accepts the login
    :raises BadUsage: the name is empty
    """
    topic = options.topic
    if not topic:
        raise BadUsage("the name of the topic is empty")

    async def count(cluster: Cluster) -> int:
        return len((await cluster.topics([topic]))[topic].leaders)

    try:
        return on_cluster(options, count)
    except errors.UnsupportedSetting:
        must_answer(client_config(options))
        return None


def check_partition(number: int | None, topic: str, count: int | None) -> None:
    """Check the number of a partition.

    :param count: of the topic's partitions; None if it is unknown
    :raises BadUsage: the topic has no such partition
    """
    if number is not None and count is not None and not 0 <= number < count:
        raise BadUsage(f"topic '{topic}' has no partition {number}: it has {count}")
