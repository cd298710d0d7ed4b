"""ConsumerGroupDescribe (69), versions 0-1: describe consumer groups and their members (KIP-848).

Refused if ``group.coordinator.rebalance.protocols`` does not have ``consumer``.

Version notes:

* Version 1 adds the member type: consumer or classic (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

from kio.schema.consumer_group_describe.v1 import response as schema
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest

from headrace.broker.broker import Broker
from headrace.broker.config.group_protocols import CONSUMER, REBALANCE_PROTOCOLS
from headrace.errors import ErrorCode
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.transition import preferred_assignor
from headrace.groups.records import ConsumerAssignment, ConsumerMember

from .context import RequestContext
from .group_descriptions import (
    HiddenTopics,
    assignment,
    describe_each,
    group_operations,
    refuse_each,
    topic_names,
)
from .slicing import lazily

_CLASSIC, _CONSUMER = 0, 1


def handle(broker: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext) -> Any:
    """Describe the consumer groups of a request."""
    described, response = schema.DescribedGroup, schema.ConsumerGroupDescribeResponse
    if CONSUMER not in broker.config.get_list(REBALANCE_PROTOCOLS):
        return refuse_each(described, response, request.group_ids, ErrorCode.UNSUPPORTED_VERSION)
    describe = partial(_describe, broker, partial(group_operations, request, context))
    find = broker.groups.consumer.group
    hidden = HiddenTopics(context, partial(_topics, broker))
    return describe_each(described, response, request.group_ids, find, describe, hidden)


def _topics(broker: Broker, group: ConsumerGroup) -> Iterable[str]:
    """Return the names of the topics in the assignments of a group's members."""
    state = group.state
    current = (state.current.get(member_id) for member_id in state.members)
    owned = (_owned(one) for one in current if one is not None)
    targets = (state.target.get(member_id, {}) for member_id in state.members)
    return topic_names(broker, chain(owned, targets))


def _describe(
    broker: Broker, operations: Callable[[str], int], group_id: str, group: ConsumerGroup
) -> schema.DescribedGroup:
    state, settings = group.state, broker.groups.consumer.settings(group_id)
    return schema.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=state.state_name,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch.epoch,
        assignor_name=preferred_assignor(state.members.values(), settings.assignors),
        authorized_operations=operations(group_id),
        members=lazily(partial(_member, broker, group), tuple(state.members.items())),
    )


def _member(
    broker: Broker, group: ConsumerGroup, known: tuple[str, ConsumerMember]
) -> schema.Member:
    member_id, member = known
    current = group.state.current.get(member_id, ConsumerAssignment())
    return schema.Member(
        member_id=member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=assignment(schema, broker, _owned(current)),
        target_assignment=assignment(schema, broker, group.state.target.get(member_id, {})),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _owned(current: ConsumerAssignment) -> dict[UUID, list[int]]:
    """Return the partitions that a member owns: assigned, or pending revocation."""
    owned = {topic_id: list(numbers) for topic_id, numbers in current.assigned.items()}
    for topic_id, numbers in current.pending_revocation.items():
        owned.setdefault(topic_id, []).extend(numbers)
    return owned
