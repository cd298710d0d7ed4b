"""The server-side assignors of consumer groups: ``uniform`` and ``range`` (KIP-848).

Each partition goes to exactly one of the members that are subscribed to its topic, if there is any.
The result depends on the arguments alone.

``uniform``
    No member has at least two partitions more than another member that could take one of them.
    Members keep as many of their partitions as this balance allows.
``range``
    Each topic is assigned separately, in ascending runs whose lengths differ by at most one. Topics
    with the same number of partitions and the same subscribers get the same assignment, so that
    they can be joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias
from uuid import UUID

from headrace.groups.records import Assignment

UNIFORM, RANGE = "uniform", "range"


class Subscriber(NamedTuple):
    """A member as input of an assignor.

    :param topic_ids: the existing topics to which the member is subscribed
    """

    group_instance_id: str | None
    topic_ids: AbstractSet[UUID]


Subscribers: TypeAlias = Mapping[str, Subscriber]
"""All members by id."""

Assignor: TypeAlias = Callable[
    [Subscribers, Mapping[UUID, int], Mapping[str, Assignment]], dict[str, Assignment]
]
"""A function of members, partition counts by topic id and current assignments; returns the target
assignments.
"""


def assign_range(
    members: Subscribers, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Assign each topic by ranges. Static members come first, by instance id, then the others by
    id.
    """
    order = sorted(members, key=lambda member_id: _name(members[member_id], member_id))
    target: dict[str, dict[UUID, tuple[int, ...]]] = {member_id: {} for member_id in members}
    for topic_id, count in partitions.items():
        takers = [member_id for member_id in order if topic_id in members[member_id].topic_ids]
        start = 0
        for place, member_id in enumerate(takers):
            end = start + count // len(takers) + (place < count % len(takers))
            if end > start:
                target[member_id][topic_id] = tuple(range(start, end))
            start = end
    return dict(target)


def _name(member: Subscriber, member_id: str) -> tuple[bool, str]:
    return member.group_instance_id is None, member.group_instance_id or member_id


def assign_uniform(
    members: Subscribers, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Assign all topics evenly, moving as few partitions as possible."""
    held, free = _keep(members, partitions, current)
    if len({frozenset(member.topic_ids) for member in members.values()}) == 1:
        _share_out(held, free)
    else:
        _place(members, held, free)
        _balance(members, held)
    order = {topic_id: place for place, topic_id in enumerate(partitions)}
    return {member_id: _by_topic(own, order) for member_id, own in held.items()}


_Partition: TypeAlias = tuple[UUID, int]
_Held: TypeAlias = dict[str, dict[_Partition, None]]  # the inner dict is an ordered set


def _by_topic(own: Mapping[_Partition, None], order: Mapping[UUID, int]) -> Assignment:
    assignment: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(own, key=lambda partition: (order[partition[0]], partition[1])):
        assignment.setdefault(topic_id, []).append(number)
    return {topic_id: tuple(numbers) for topic_id, numbers in assignment.items()}


def _keep(
    members: Subscribers, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> tuple[_Held, list[_Partition]]:
    """Return the partitions that members may keep, and those that are free."""
    held: _Held = {}
    taken: set[_Partition] = set()
    for member_id, member in members.items():
        own = held[member_id] = {}
        for topic_id, numbers in current.get(member_id, {}).items():
            if topic_id in member.topic_ids:
                for number in numbers:
                    if number < partitions.get(topic_id, 0) and (topic_id, number) not in taken:
                        own[topic_id, number] = None
                        taken.add((topic_id, number))
    subscribed = set().union(*(member.topic_ids for member in members.values()))
    everything = (
        (topic_id, n)
        for topic_id, count in partitions.items()
        if topic_id in subscribed
        for n in range(count)
    )
    return held, [partition for partition in everything if partition not in taken]


def _share_out(held: _Held, free: list[_Partition]) -> None:
    """Assign partitions evenly to members with the same subscription. Members with the most
    partitions keep the remainder.
    """
    total = len(free) + sum(map(len, held.values()))
    least, odd = divmod(total, len(held))
    quotas = {}
    for place, member_id in enumerate(sorted(held, key=lambda member_id: -len(held[member_id]))):
        quotas[member_id] = least + (place < odd)
    for member_id, own in held.items():
        while len(own) > quotas[member_id]:
            free.append(own.popitem()[0])
    free.sort(key=lambda partition: (str(partition[0]), partition[1]))
    row = iter(free)
    for member_id, own in held.items():
        while len(own) < quotas[member_id]:
            own[next(row)] = None


def _place(members: Subscribers, held: _Held, free: list[_Partition]) -> None:
    """Assign free partitions to the least loaded members, topics with few subscribers first."""
    takers: dict[UUID, list[str]] = {}
    for member_id, member in members.items():
        for topic_id in member.topic_ids:
            takers.setdefault(topic_id, []).append(member_id)
    free.sort(key=lambda partition: (len(takers[partition[0]]), str(partition[0]), partition[1]))
    at = 0
    while at < len(free):
        topic_id = free[at][0]
        row = [
            (len(held[member_id]), place, member_id)
            for place, member_id in enumerate(takers[topic_id])
        ]
        heapify(row)
        while at < len(free) and free[at][0] == topic_id:
            load, place, member_id = heappop(row)
            held[member_id][free[at]] = None
            heappush(row, (load + 1, place, member_id))
            at += 1


def _balance(members: Subscribers, held: _Held) -> None:
    """Move single partitions from members to subscribers that have at least two fewer, until none
    has.
    """
    by_topic: dict[UUID, list[str]] = {}
    for member_id, member in members.items():
        for topic_id in member.topic_ids:
            by_topic.setdefault(topic_id, []).append(member_id)
    moved = True
    while moved:  # terminates: each move reduces the sum of the squared loads
        moved = False
        for topic_id, takers in by_topic.items():
            moved |= _balance_topic(topic_id, takers, held)


def _balance_topic(topic_id: UUID, takers: list[str], held: _Held) -> bool:
    own = {
        member_id: [partition for partition in held[member_id] if partition[0] == topic_id]
        for member_id in takers
    }
    most = [
        (-len(held[member_id]), place, member_id)
        for place, member_id in enumerate(takers)
        if own[member_id]
    ]
    least = [(len(held[member_id]), place, member_id) for place, member_id in enumerate(takers)]
    heapify(most)
    heapify(least)
    moved = False
    while most:
        load, place, giver = heappop(most)
        if -load != len(held[giver]):  # its load has changed
            heappush(most, (-len(held[giver]), place, giver))
            continue
        taker = _lightest(least, held)
        if len(held[giver]) - len(held[taker]) < 2:
            return moved  # no member has more
        partition = own[giver].pop()
        del held[giver][partition]
        held[taker][partition] = None
        heappush(least, (len(held[giver]), place, giver))
        if own[giver]:
            heappush(most, (-len(held[giver]), place, giver))
        moved = True
    return moved


def _lightest(least: list[tuple[int, int, str]], held: _Held) -> str:
    """Return the least loaded member, after updating the head of the heap."""
    while True:
        load, place, member_id = least[0]
        if load == len(held[member_id]):
            return member_id
        heappop(least)
        heappush(least, (len(held[member_id]), place, member_id))


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
"""Assignors by the names that clients use."""
