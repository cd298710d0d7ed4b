"""Descriptions of groups.

The responses of their Describe requests have the same structure but different classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.authorized_operations import NOT_ASKED, Operation
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import ResourceType

from .context import RequestContext
from .slicing import lazily, sliced

G = TypeVar("G")


def group_operations(request: Any, context: RequestContext, group_id: str) -> int:
    """Return the authorized operations on a group, if the request asks for them."""
    if not request.include_authorized_operations:
        return NOT_ASKED
    return context.access.operations(ResourceType.GROUP, group_id)


class HiddenTopics(NamedTuple):
    """The condition on which a group is not described: it uses topics that the client may not
    describe.

    :ivar topics: returns the names of the topics that a group uses
    :ivar message: Kafka's message
    """

    context: RequestContext
    topics: Callable[[Any], Iterable[str]]
    message: str = "The group has described topic(s) that the client is not authorized to describe."

    def refusal(self, group: Any) -> Refusal | None:
        """Return the error of a group, None if it may be described."""
        access = self.context.access
        if not access.is_limited or access.allows_all(
            Operation.DESCRIBE, ResourceType.TOPIC, dict.fromkeys(self.topics(group))
        ):
            return None
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, self.message)


def topic_names(broker: Broker, assignments: Iterable[Mapping[UUID, Any]]) -> Iterable[str]:
    """Yield the names of the existing topics in assignments."""
    topics = broker.catalog.topics_by_id
    for assigned in assignments:
        for topic_id in assigned:
            if topic_id in topics:
                yield topics[topic_id].name


def describe_each(
    described_type: Any,
    response: Callable[..., Any],
    group_ids: Sequence[str],
    find: Callable[[str], G | Refusal],
    describe: Callable[[str, G], Any],
    hidden: HiddenTopics,
) -> Any:
    """Return the response with a ``DescribedGroup`` for each id; one with an error for a group that
    is not found. Many groups or members are described when the response is written.

    :param described_type: the class of a group in the response
    :param response: the class of the response
    """

    def described(group_id: str) -> Any:
        group = find(group_id) if group_id else Refusal(ErrorCode.INVALID_GROUP_ID)
        if isinstance(group, Refusal):
            return _refused(described_type, group_id, group)
        refusal = hidden.refusal(group)
        if refusal is not None:
            return _refused(described_type, group_id, refusal)
        return describe(group_id, group)

    groups = lazily(described, group_ids)
    whole = response(throttle_time=NO_THROTTLE, groups=groups)
    if isinstance(groups, tuple):
        return sliced(whole, sum(len(group.members) for group in groups))
    return Sliced(whole)


def refuse_each(
    described_type: Any, response: Callable[..., Any], group_ids: Sequence[str], code: ErrorCode
) -> Any:
    """Return the response with the same error for each id."""
    groups = lazily(lambda group_id: _refused(described_type, group_id, Refusal(code)), group_ids)
    whole = response(throttle_time=NO_THROTTLE, groups=groups)
    return whole if isinstance(groups, tuple) else Sliced(whole)


def _refused(described_type: Any, group_id: str, refusal: Refusal) -> Any:
    assignor = described_type.__dataclass_fields__.get("assignor_name")
    # In errors the name is null for a streams group, and empty for groups of other kinds.
    is_required = assignor is not None and assignor.default is MISSING
    no_assignor = {"assignor_name": ""} if is_required else {}
    return described_type(
        error_code=refusal.code,
        error_message=refusal.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=(),
        **no_assignor,
    )


def assignment(schema: Any, broker: Broker, partitions: Mapping[UUID, Collection[int]]) -> Any:
    """Return the ``Assignment`` of a member, without the topics that no longer exist."""
    topics = broker.catalog.topics_by_id
    return schema.Assignment(
        topic_partitions=tuple(
            schema.TopicPartitions(
                topic_id=topic_id, topic_name=topics[topic_id].name, partitions=tuple(numbers)
            )
            for topic_id, numbers in partitions.items()
            if topic_id in topics
        )
    )
