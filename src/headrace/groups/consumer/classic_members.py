"""Members of the classic protocol in a consumer group (KIP-848): JoinGroup, SyncGroup, Heartbeat.

A classic member is never the leader. JoinGroup returns at once, with the member epoch as the
generation; SyncGroup returns the partitions that the member may read. Heartbeat returns
REBALANCE_IN_PROGRESS when the assignment changes: there is a new target assignment, the member has
to revoke partitions, or partitions that it waits for are free.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID

from headrace.errors import ErrorCode
from headrace.groups.classic.member import (
    JoinReply,
    JoinRequest,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from headrace.groups.deadlines import REJOIN, RESYNC, SESSION, TimerChanges
from headrace.groups.records import (
    ClassicMember,
    ConsumerAssignment,
    ConsumerMember,
    GroupRecord,
    MemberState,
)
from headrace.groups.settings import ConsumerSettings, TopicCatalog
from headrace.outcome import Outcome
from headrace.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    by_topic,
    read_subscription,
    subscription_version,
    write_assignment,
)
from headrace.protocol.stored import ConsumerProtocolSubscription

from .group import ConsumerGroup
from .migration import named
from .transition import MemberTransition


def join(
    group: ConsumerGroup,
    request: JoinRequest,
    catalog: TopicCatalog,
    settings: ConsumerSettings,
    now_ms: int,
    wall_ms: int,
    *,
    assigns: bool = True,
) -> Outcome[GroupRecord, JoinReply]:
    """Join a classic member to a consumer group that has members, or rejoin it.

    :param assigns: see :class:`~headrace.groups.consumer.transition.MemberTransition`
    """
    code = _check_join(group, request, settings)
    if code:
        return Outcome(JoinReply(code, ""))
    instance_id, is_new = request.group_instance_id, not request.member_id
    if is_new and instance_id is None and request.known_member_id_required:
        return Outcome(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
    try:
        subscription = read_subscription(request.protocols[0][1])
    except ValueError:
        return Outcome(JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
    member_id = request.member_id or request.new_member_id
    owner = None if instance_id is None else group.state.static_members.get(instance_id)
    if instance_id is not None and not is_new:
        refusal = group.check_instance(member_id, instance_id)
        if refusal is not None:
            return Outcome(JoinReply(refusal.code, ""))
    replacement = group.replacement(owner, member_id) if owner is not None and is_new else ()
    state = group.state.after(replacement) if replacement else group.state
    known = state.members.get(member_id) or ConsumerMember()
    transition = MemberTransition(
        state,
        member_id,
        _joined(known, request, subscription),
        _owned(subscription, catalog),
        catalog,
        settings,
        wall_ms,
        assigns=assigns,
    )
    refusal = transition.run()
    assert refusal is None, "a classic member has no regular expression"
    timers = group.timer_changes(transition, request.session_timeout_ms, now_ms)
    timers.cancel(REJOIN, member_id)
    timers.set(RESYNC, member_id, now_ms + request.rebalance_timeout_ms)
    reply = JoinReply(
        ErrorCode.NONE,
        member_id,
        transition.now.member_epoch,
        PROTOCOL_TYPE,
        request.protocols[0][0],
        leader="",
    )
    apply = partial(group.apply, transition, timers)
    return Outcome(reply, (*replacement, *transition.records), apply=apply)


def _check_join(
    group: ConsumerGroup, request: JoinRequest, settings: ConsumerSettings
) -> ErrorCode:
    """Return the error of a JoinGroup that does not depend on its subscription, or NONE."""
    refusal = group.check_room(request.member_id, settings.max_size)
    if refusal is not None:
        return refusal.code
    shared, classic = group.state.classic_protocols, len(group.state.classic_members)
    supports = any(shared[name] == classic for name, _ in request.protocols)
    if not settings.mixed or request.protocol_type != PROTOCOL_TYPE or not supports:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _joined(
    known: ConsumerMember, request: JoinRequest, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    return replace(
        known,
        group_instance_id=request.group_instance_id,
        rack_id=subscription.rack_id or known.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicMember(request.session_timeout_ms, request.protocols),
    )


def _owned(
    subscription: ConsumerProtocolSubscription, catalog: TopicCatalog
) -> dict[UUID, frozenset[int]]:
    topics = catalog.topics
    return {
        topics[name].topic_id: frozenset(own)
        for name, own in by_topic(subscription.owned_partitions).items()
        if name in topics
    }


def sync(
    group: ConsumerGroup, request: SyncRequest, catalog: TopicCatalog, now_ms: int
) -> Outcome[GroupRecord, SyncReply | None]:
    """Return the partitions that a joined classic member may read."""
    member_id = request.member_id
    member = _member(group, MemberIdentity(member_id, request.group_instance_id))
    if isinstance(member, ErrorCode):
        return Outcome(SyncReply(member))
    assert member.classic is not None
    current = group.state.current[member_id]
    if request.generation_id != current.member_epoch:
        return Outcome(SyncReply(ErrorCode.ILLEGAL_GENERATION))
    protocol, metadata = member.classic.protocols[0]
    agreed = (PROTOCOL_TYPE, protocol)
    if (request.protocol_type or PROTOCOL_TYPE, request.protocol or protocol) != agreed:
        return Outcome(SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    timers = TimerChanges(group.timers)
    if (
        group.state.target_epoch.epoch > current.member_epoch
        and current.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        _expect_rejoin(group, member_id, member, timers, now_ms)
        return Outcome(SyncReply(ErrorCode.REBALANCE_IN_PROGRESS), apply=timers.apply)
    timers.cancel(RESYNC, member_id)
    timers.set(SESSION, member_id, now_ms + member.classic.session_timeout_ms)
    assignment = write_assignment(subscription_version(metadata), named(current.assigned, catalog))
    reply = SyncReply(ErrorCode.NONE, request.protocol_type, request.protocol, assignment)
    return Outcome(reply, apply=timers.apply)


def heartbeat(
    group: ConsumerGroup, identity: MemberIdentity, generation_id: int, now_ms: int
) -> Outcome[GroupRecord, ErrorCode]:
    """Extend a classic member's session; return REBALANCE_IN_PROGRESS if it must rejoin."""
    member = _member(group, identity)
    if isinstance(member, ErrorCode):
        return Outcome(member)
    assert member.classic is not None
    member_id = identity.member_id
    current = group.state.current[member_id]
    if generation_id != current.member_epoch:
        return Outcome(ErrorCode.ILLEGAL_GENERATION)
    timers = TimerChanges(group.timers)
    timers.set(SESSION, member_id, now_ms + member.classic.session_timeout_ms)
    if current.member_epoch < group.state.target_epoch.epoch or _assignment_changed(
        group, member_id, current
    ):
        _expect_rejoin(group, member_id, member, timers, now_ms)
        return Outcome(ErrorCode.REBALANCE_IN_PROGRESS, apply=timers.apply)
    return Outcome(ErrorCode.NONE, apply=timers.apply)


def _assignment_changed(group: ConsumerGroup, member_id: str, current: ConsumerAssignment) -> bool:
    """Return whether a member must rejoin: it has partitions to revoke, or all partitions that it
    waits for are free.
    """
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return current.state is MemberState.UNREVOKED_PARTITIONS
    return not any(
        number not in current.assigned.get(topic_id, {})
        and not group.state.is_free(topic_id, number)
        for topic_id, numbers in group.state.target.get(member_id, {}).items()
        for number in numbers
    )


def _expect_rejoin(
    group: ConsumerGroup, member_id: str, member: ConsumerMember, timers: TimerChanges, now_ms: int
) -> None:
    """Start the rebalance timeout of a classic member that must rejoin."""
    if not group.timers.has(REJOIN, member_id):
        timers.set(REJOIN, member_id, now_ms + member.rebalance_timeout_ms)


def _member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember | ErrorCode:
    member_id, instance_id = identity
    if instance_id is not None:
        refusal = group.check_instance(member_id, instance_id)
        if refusal is not None:
            return refusal.code
    member = group.state.members.get(member_id)
    return ErrorCode.UNKNOWN_MEMBER_ID if member is None or member.classic is None else member


def leaver(group: ConsumerGroup, identity: MemberIdentity) -> str | ErrorCode:
    """Return the id of the member, of either protocol, in a LeaveGroup request, or its error."""
    member_id, instance_id = identity
    if instance_id is None:
        return member_id if member_id in group.state.members else ErrorCode.UNKNOWN_MEMBER_ID
    owner = group.state.static_members.get(instance_id)
    if owner is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return owner if member_id in ("", owner) else ErrorCode.FENCED_INSTANCE_ID
