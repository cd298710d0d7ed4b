"""The results of :class:`headrace.admin.AdminClient`: confluent-kafka's classes, and those that it
lacks, made of the dataclasses of :mod:`headrace.client`; and the checks of the arguments of calls,
before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialsDescription,
)

from headrace.client.errors import (
    ApiMissing,
    AuthenticationFailed,
    ClientError,
    ConnectionFailed,
    RequestRefused,
    UnsupportedSetting,
)
from headrace.client.groups import GroupList, ListedGroup
from headrace.client.offsets import CommittedOffset, ShareOffset
from headrace.client.security import ScramCredential
from headrace.errors import ErrorCode
from headrace.protocol import partitions


@dataclass(frozen=True, slots=True)
class SharePartitionOffsetInfo:
    """The progress of a share group in one partition (KIP-932, KIP-1226).

    :param start_offset: share-partition start offset; None if the group has no state there
    :param leader_epoch: the partition's leader epoch, stored with the start offset; None without it
    :param lag: records not yet accepted, rejected or archived; None while unknown
    :param error: the broker's refusal for this partition; None if there is none
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ListGroupsResult:
    """The groups of a cluster.

    :param valid: the groups by id
    :param errors: an error for each broker that refused or did not answer
    :param advice: which permission to give, if groups may be missing for lack of it; or None
    """

    valid: Sequence[ListedGroup]
    errors: Sequence[KafkaException]
    advice: str | None = None


# Groups and offsets -------------------------------------------------------------------------------


def group_list(listed: GroupList) -> ListGroupsResult:
    """Convert a list of groups."""
    return ListGroupsResult(listed.groups, list(map(kafka_exception, listed.errors)), listed.advice)


def committed(
    group_id: str,
    offsets: Mapping[partitions.TopicPartition, CommittedOffset],
    requested: Iterable[partitions.TopicPartition] | None,
) -> ConsumerGroupTopicPartitions:
    """Convert the committed offsets of a group.

    :param requested: partitions that get the offset -1 if none is committed
    """
    converted = []
    for partition in sorted({*offsets, *(requested or ())}):
        offset = offsets.get(partition, CommittedOffset(-1))
        optional: dict[str, Any] = {"leader_epoch": offset.leader_epoch}
        if offset.leader_epoch is None:
            del optional["leader_epoch"]
        if offset.metadata:
            optional["metadata"] = offset.metadata
        converted.append(TopicPartition(*partition, offset.offset, **optional))
    return ConsumerGroupTopicPartitions(group_id, converted)


def share_offsets(
    offsets: Mapping[partitions.TopicPartition, ShareOffset | ClientError],
) -> dict[TopicPartition, SharePartitionOffsetInfo]:
    """Convert the progress of a share group."""
    return {
        TopicPartition(*partition): SharePartitionOffsetInfo(None, None, None, kafka_error(offset))
        if isinstance(offset, ClientError)
        else SharePartitionOffsetInfo(offset.start_offset, offset.leader_epoch, offset.lag)
        for partition, offset in offsets.items()
    }


# Security -----------------------------------------------------------------------------------------


def scram_user(
    user: str, credentials: Iterable[ScramCredential]
) -> UserScramCredentialsDescription:
    """Convert the credentials of a user."""
    infos = [
        ScramCredentialInfo(ScramMechanism(credential.mechanism), credential.iterations)
        for credential in credentials
    ]
    return UserScramCredentialsDescription(user, infos)


# Errors -------------------------------------------------------------------------------------------

_CODES: Sequence[tuple[type[ClientError], int]] = (
    (ConnectionFailed, KafkaError._TRANSPORT),
    (AuthenticationFailed, KafkaError._AUTHENTICATION),
    (UnsupportedSetting, KafkaError._INVALID_ARG),
    (ApiMissing, int(ErrorCode.UNSUPPORTED_VERSION)),
    (ClientError, KafkaError._FAIL),
)


def kafka_error(error: ClientError) -> KafkaError:
    """Translate an error.

    :returns: the broker's code and text for a refusal; else a code of librdkafka and our text
    """
    if isinstance(error, RequestRefused):
        text = error.message or KafkaError(error.code).str().removeprefix("Broker: ")
        if error.advice is not None:
            text = f"{text.rstrip('.')}: {error.advice}"
        return KafkaError(error.code, text)
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    return KafkaError(code, str(error))


def kafka_exception(error: ClientError) -> KafkaException:
    """Translate an error into the exception that carries it."""
    return KafkaException(kafka_error(error))


# Arguments ----------------------------------------------------------------------------------------


V = TypeVar("V")

_MAX_REQUEST_TIMEOUT_S = 3600

Groups = Mapping[str, list[partitions.TopicPartition] | None]
"""Group id → partitions to ask about; None for all that have an offset."""


def checked_timeout(request_timeout: float | None) -> float | None:
    """Return ``request_timeout``.

    :raises ValueError: it is not a sensible number of seconds
    """
    if request_timeout is not None and not 0 <= request_timeout <= _MAX_REQUEST_TIMEOUT_S:
        raise ValueError(
            f"request_timeout must be in the range 0..{_MAX_REQUEST_TIMEOUT_S} seconds"
        )
    return request_timeout


def checked_list(name: str, values: Iterable[Any], kind: type[V]) -> list[V]:
    """Return distinct values of one type as a list.

    :param name: the name of the argument, for error texts
    :raises TypeError: it is a string, or an element has another type
    :raises ValueError: it has no elements, or duplicates
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"'{name}' must be a list, not a string")
    elements = list(values)
    if not elements:
        raise ValueError(f"'{name}' cannot be empty")
    if not all(isinstance(element, kind) for element in elements):
        raise TypeError(f"Element of '{name}' must be of type {kind.__name__}")
    if len(set(elements)) != len(elements):
        raise ValueError(f"'{name}' must not have duplicates")
    return elements


def checked_names(name: str, values: Iterable[str], *, may_be_empty: bool = False) -> list[str]:
    """Return a list of distinct strings.

    :param may_be_empty: allow ``""``, which is a valid group id in Kafka
    :raises TypeError: see :func:`checked_list`
    :raises ValueError: likewise, or one is empty
    """
    names = checked_list(name, values, str)
    if "" in names and not may_be_empty:
        raise ValueError(f"'{name}' cannot have an empty name")
    return names


def checked_partitions(
    values: Iterable[TopicPartition], *, have_offsets: bool = False
) -> dict[partitions.TopicPartition, int]:
    """Return the offset of each of distinct partitions, which have a topic and a number.

    :param have_offsets: their offsets must not be negative
    :raises TypeError: see :func:`checked_list`
    :raises ValueError: likewise, or an element lacks its topic or number
    """
    offsets: dict[partitions.TopicPartition, int] = {}
    for partition in checked_list("partitions", values, TopicPartition):
        if not partition.topic or partition.partition < 0:
            raise ValueError(
                "Element of 'partitions' must have a topic and a partition that is not negative"
            )
        offsets[str(partition.topic), int(partition.partition)] = int(partition.offset)
    if have_offsets and min(offsets.values()) < 0:
        raise ValueError("Element of 'partitions' must not have negative value for 'offset' field")
    return offsets


def checked_groups(
    request: Iterable[str | ConsumerGroupTopicPartitions], *, may_be_empty: bool = False
) -> Groups:
    """Return the groups, and the partitions of each, that a call for offsets asks about.

    :param request: group ids, or groups with partitions
    :param may_be_empty: allow the group id ``""``
    :raises TypeError: see :func:`checked_names` and :func:`checked_partitions`
    :raises ValueError: likewise
    """
    if isinstance(request, str | bytes):
        raise TypeError("'request' must be a list, not a string")
    groups = [
        group
        if isinstance(group, ConsumerGroupTopicPartitions)
        else ConsumerGroupTopicPartitions(group)
        for group in request
    ]
    checked_names("request", [group.group_id for group in groups], may_be_empty=may_be_empty)
    return {
        group.group_id: None
        if group.topic_partitions is None
        else list(checked_partitions(group.topic_partitions))
        for group in groups
    }
