"""Conversion of groups between the classic and the consumer protocol while members are active
(KIP-848).

A classic group becomes a consumer group when a member of the consumer protocol joins it, and
becomes classic again when the last such member leaves. Members keep their partitions, and the
generation continues as the epoch. One batch deletes the records of the old kind of group and writes
those of the new kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import starmap
from uuid import UUID

from headrace.groups.catalog import TopicCatalog
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.member import JoinRequest, Member
from headrace.groups.classic.membership import Membership
from headrace.groups.heartbeats.group import Context
from headrace.groups.records import (
    CONSUMER_RECORDS,
    Assignment,
    AssignmentEpoch,
    ClassicMember,
    ConsumerAssignment,
    ConsumerMember,
    GroupEpoch,
    GroupMetadata,
    GroupRecord,
    by_key,
    each,
)
from headrace.protocol.configuration import Configuration
from headrace.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_assignment_user_data,
    read_subscription,
    subscription_version,
    write_assignment,
)
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.stored import ConsumerProtocolSubscription

from .state import ConsumerState

_CUSTOM_ASSIGNOR = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
    "default assignor before re-attempting the upgrade"
)
"""The reason to refuse an upgrade that would lose the user data in an assignment."""


def migration_policy(config: Configuration) -> str:
    """Return which groups with members may be converted."""
    return (config.get_str("group.consumer.migration.policy") or "").lower()


def migrates(config: Configuration, direction: str) -> bool:
    """Return whether groups with members may be converted in a direction."""
    return migration_policy(config) in (direction, "bidirectional")


def _no_upgrade(group: ClassicGroup, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def upgraded(
    group: ClassicGroup, catalog: TopicCatalog, config: Configuration
) -> tuple[GroupRecord, ...] | Refusal:
    """Return the records of the consumer group that replaces a classic group with members; write
    its tombstone first.
    """
    if not migrates(config, "upgrade"):
        return _no_upgrade(group, "online upgrade is disabled")
    if group.protocol_type != PROTOCOL_TYPE:
        return _no_upgrade(group, "the group does not use the consumer embedded protocol")
    if len(group.members.by_id) > config.get_int("group.consumer.max.size"):
        return _no_upgrade(group, "the group size exceeds the consumer group maximum size")
    group_id, epoch = group.group_id, group.members.generation_id
    introduced: list[GroupRecord] = []
    held = {}
    try:
        for member in group.members.all():
            assigned = read_assignment(member.assignment)
            if read_assignment_user_data(member.assignment):
                return _no_upgrade(group, _CUSTOM_ASSIGNOR)
            upgraded_member = _upgraded_member(member, group.members.protocol)
            introduced.append(CONSUMER_RECORDS.member(group_id, member.member_id, upgraded_member))
            held[member.member_id] = {
                topic.topic_id: dict.fromkeys(sorted(numbers), epoch)
                for name, numbers in assigned.items()
                if (topic := catalog.topics.get(name)) is not None and numbers
            }
    except ValueError:
        return _no_upgrade(group, "the embedded consumer protocol is malformed")
    state = ConsumerState(group_id).after(introduced)
    targets = {member_id: by_key(each(own)) for member_id, own in held.items()}
    group_epoch = GroupEpoch(epoch, state.topics_hash(catalog, state.subscribed))
    return (
        *introduced,
        CONSUMER_RECORDS.group(group_id, group_epoch),
        *state.retarget(targets, AssignmentEpoch(epoch, 0)),
        *(
            CONSUMER_RECORDS.current(
                group_id, member_id, ConsumerAssignment(epoch, epoch, assigned=own)
            )
            for member_id, own in held.items()
        ),
    )


def _upgraded_member(member: Member, protocol: str | None) -> ConsumerMember:
    names = [name for name, _ in member.protocols]
    subscription = read_subscription(member.metadata(protocol if protocol in names else names[0]))
    return as_classic(ConsumerState.no_member, member, subscription)


def as_classic(
    former: ConsumerMember, joined: JoinRequest | Member, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    """Return a member of a consumer group that joins with the classic protocol."""
    protocols = starmap(ConsumerMember.ClassicProtocol, joined.protocols)
    return ConsumerMember(
        joined.group_instance_id,
        subscription.rack_id or former.rack_id,
        joined.client_id,
        joined.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        joined.rebalance_timeout_ms,
        former.server_assignor,
        ClassicMember(joined.session_timeout_ms, tuple(protocols)),
    )


def downgrades(
    state: ConsumerState, leaving: Collection[str], config: Configuration, *, joining: int = 0
) -> bool:
    """Return whether the group becomes classic when these members leave.

    :param joining: the number of classic members that take their place
    """
    staying = len(state.members) - len(leaving)
    fits = 0 < staying + joining <= config.get_int("group.max.size")
    are_classic = staying == len(state.classic_members.difference(leaving))
    return fits and are_classic and migrates(config, "downgrade")


def downgraded(
    state: ConsumerState,
    leaving: Collection[str],
    context: Context,
    generation_id: int,
    *,
    rebalances: bool,
) -> tuple[GroupRecord, ...]:
    """Return the records that make a consumer group classic, without the leaving members.

    :param rebalances: the group has to rebalance, also after a restart: it has no leader yet
    """
    members = Membership(
        _downgraded_member(member_id, member)
        for member_id, member in state.members.items()
        if member_id not in leaving
    )
    members.protocol_type, members.generation_id = PROTOCOL_TYPE, generation_id
    members.protocol, members.state_since_ms = members.select_protocol(), context.wall_ms
    members.leader = None if rebalances else next(iter(members.by_id))
    for member in members.all():
        partitions = named(state.target.get(member.member_id, {}), context.catalog)
        version = subscription_version(member.metadata(members.protocol))
        members.put(member._replace(assignment=write_assignment(version, partitions)))
    return (*state.tombstones(), GroupMetadata(state.group_id, members.generation()))


def _downgraded_member(member_id: str, member: ConsumerMember) -> Member:
    classic = member.classic_member_metadata
    assert classic is not None, member_id
    return Member(
        member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
    )


def named(
    partitions: Assignment | Mapping[UUID, Mapping[int, int]], catalog: TopicCatalog
) -> dict[str, list[int]]:
    """Return partitions by topic name; omit deleted topics."""
    topics = catalog.topics_by_id
    return {
        topics[topic_id].name: sorted(numbers)
        for topic_id, numbers in partitions.items()
        if topic_id in topics
    }
