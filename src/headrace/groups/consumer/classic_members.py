"""Members of the classic protocol in a consumer group (KIP-848): JoinGroup, SyncGroup, Heartbeat.

To such a member the group looks as if somebody else led it: its JoinGroup is answered at once, with
the member epoch as the generation, and its SyncGroup has the partitions that it may read. A
heartbeat tells it to join again when there is something new for it: a target assignment, partitions
to give up, or partitions that have come free.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from headrace.errors import ErrorCode
from headrace.groups.classic.member import (
    JoinReply,
    JoinRequest,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from headrace.groups.deadlines import REJOIN, RESYNC, SESSION
from headrace.groups.records import (
    ClassicSide,
    ConsumerAssignment,
    ConsumerMember,
    GroupRecord,
    MemberState,
)
from headrace.groups.settings import ConsumerSettings, TopicCatalog
from headrace.outcome import Outcome
from headrace.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    read_subscription,
    write_assignment,
)

from .group import ConsumerGroup
from .migration import named
from .transition import MemberStep


def join(
    group: ConsumerGroup,
    request: JoinRequest,
    catalog: TopicCatalog,
    settings: ConsumerSettings,
    now_ms: int,
    *,
    assigns: bool = True,
) -> Outcome[GroupRecord, JoinReply]:
    """A classic member joins a consumer group that has members, or joins again.

    :param assigns: as of :class:`~headrace.groups.consumer.transition.MemberStep`
    """
    code, subscription = _check_join(group, request, settings)
    if subscription is None:
        return Outcome(JoinReply(code, ""))
    instance_id, is_new = request.group_instance_id, not request.member_id
    if is_new and instance_id is None and request.known_member_id_required:
        return Outcome(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
    member_id = request.member_id or request.new_member_id
    owner = None if instance_id is None else group.state.static_members.get(instance_id)
    if instance_id is not None and not is_new:
        refusal = group.check_instance(member_id, instance_id)
        if refusal is not None:
            return Outcome(JoinReply(refusal.code, ""))
    replacement = group.replacement(owner, member_id) if owner is not None and is_new else ()
    state = group.state.after(replacement) if replacement else group.state
    known = state.members.get(member_id) or ConsumerMember()
    step = MemberStep(
        state,
        member_id,
        _joined(known, request, subscription),
        _owned(subscription, catalog),
        catalog,
        settings,
        now_ms,
        assigns=assigns,
    )
    refusal = step.run()
    assert refusal is None, "a classic member has no regular expression"
    group.note_step(step, request.session_timeout_ms)
    group.timers.cancel(REJOIN, member_id)
    group.timers.set(RESYNC, member_id, now_ms + request.rebalance_timeout_ms)
    reply = JoinReply(
        ErrorCode.NONE,
        member_id,
        step.now.member_epoch,
        PROTOCOL_TYPE,
        request.protocols[0][0],
        leader="",
    )
    return Outcome(reply, (*replacement, *step.records))


def _check_join(
    group: ConsumerGroup, request: JoinRequest, settings: ConsumerSettings
) -> tuple[ErrorCode, Subscription | None]:
    refusal = group.check_room(request.member_id, settings.max_size)
    if refusal is not None:
        return refusal.code, None
    shared, classic = group.state.classic_protocols, len(group.state.classic_members)
    speaks = any(shared[name] == classic for name, _ in request.protocols)
    if not settings.mixed or request.protocol_type != PROTOCOL_TYPE or not speaks:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None
    try:
        return ErrorCode.NONE, read_subscription(request.protocols[0][1])
    except ValueError:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None


def _joined(
    known: ConsumerMember, request: JoinRequest, subscription: Subscription
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
        classic=ClassicSide(request.session_timeout_ms, request.protocols),
    )


def _owned(subscription: Subscription, catalog: TopicCatalog) -> dict[UUID, frozenset[int]]:
    topics = catalog.topics
    return {
        topics[name].topic_id: frozenset(own)
        for name, own in subscription.owned.items()
        if name in topics
    }


def sync(
    group: ConsumerGroup, request: SyncRequest, catalog: TopicCatalog, now_ms: int
) -> SyncReply:
    """The partitions of a classic member that has joined."""
    member = _member(group, MemberIdentity(request.member_id, request.group_instance_id))
    if isinstance(member, ErrorCode):
        return SyncReply(member)
    assert member.classic is not None
    current = group.state.current[request.member_id]
    if request.generation_id != current.member_epoch:
        return SyncReply(ErrorCode.ILLEGAL_GENERATION)
    protocol, metadata = member.classic.protocols[0]
    agreed = (PROTOCOL_TYPE, protocol)
    if (request.protocol_type or PROTOCOL_TYPE, request.protocol or protocol) != agreed:
        return SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if (
        group.state.target_epoch.epoch > current.member_epoch
        and current.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        _expect_back(group, request.member_id, member, now_ms)
        return SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
    group.timers.cancel(RESYNC, request.member_id)
    group.timers.set(SESSION, request.member_id, now_ms + member.classic.session_timeout_ms)
    assignment = write_assignment(
        read_subscription(metadata).version, named(current.assigned, catalog)
    )
    return SyncReply(ErrorCode.NONE, request.protocol_type, request.protocol, assignment)


def heartbeat(
    group: ConsumerGroup, identity: MemberIdentity, generation_id: int, now_ms: int
) -> ErrorCode:
    """A classic member is alive; REBALANCE_IN_PROGRESS asks it to join again."""
    member = _member(group, identity)
    if isinstance(member, ErrorCode):
        return member
    assert member.classic is not None
    member_id = identity.member_id
    current = group.state.current[member_id]
    if generation_id != current.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    group.timers.set(SESSION, member_id, now_ms + member.classic.session_timeout_ms)
    if current.member_epoch < group.state.target_epoch.epoch or _has_news(
        group, member_id, current
    ):
        _expect_back(group, member_id, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _has_news(group: ConsumerGroup, member_id: str, current: ConsumerAssignment) -> bool:
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return current.state is MemberState.UNREVOKED_PARTITIONS
    return not any(
        number not in current.assigned.get(topic_id, {})
        and not group.state.is_free(topic_id, number)
        for topic_id, numbers in group.state.target.get(member_id, {}).items()
        for number in numbers
    )


def _expect_back(group: ConsumerGroup, member_id: str, member: ConsumerMember, now_ms: int) -> None:
    """A classic member that was told to join again has its rebalance timeout for it."""
    if not group.timers.has(REJOIN, member_id):
        group.timers.set(REJOIN, member_id, now_ms + member.rebalance_timeout_ms)


def _member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember | ErrorCode:
    member_id, instance_id = identity
    if instance_id is not None:
        refusal = group.check_instance(member_id, instance_id)
        if refusal is not None:
            return refusal.code
    member = group.state.members.get(member_id)
    return ErrorCode.UNKNOWN_MEMBER_ID if member is None or member.classic is None else member


def leaver(group: ConsumerGroup, identity: MemberIdentity) -> str | ErrorCode:
    """The id of the member that a LeaveGroup means, of whichever protocol, or why there is none."""
    member_id, instance_id = identity
    if instance_id is None:
        return member_id if member_id in group.state.members else ErrorCode.UNKNOWN_MEMBER_ID
    owner = group.state.static_members.get(instance_id)
    if owner is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return owner if member_id in ("", owner) else ErrorCode.FENCED_INSTANCE_ID
