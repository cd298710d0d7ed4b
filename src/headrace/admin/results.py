"""The results of :class:`headrace.admin.AdminClient`: confluent-kafka's classes, and those that it
lacks, made of the dataclasses of :mod:`headrace.client`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from headrace.protocol import partitions
from headrace.protocol.errors import ErrorCode


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
        offset = offsets.get(partition, CommittedOffset(-1))._asdict()
        # confluent-kafka's class takes neither None nor an empty text.
        fields = {name: value for name, value in offset.items() if value not in (None, "")}
        converted.append(TopicPartition(*partition, **fields))
    return ConsumerGroupTopicPartitions(group_id, converted)


def share_offsets(
    _: str, offsets: Mapping[partitions.TopicPartition, ShareOffset | ClientError]
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
