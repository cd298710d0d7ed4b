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
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from headrace.groups.records import Assignment, by_key, each
from headrace.groups.share.assignors import Own, Partition, desired_counts
from headrace.protocol.configuration import Configuration

UNIFORM, RANGE = "uniform", "range"


class Subscriber(NamedTuple):
    """A member as input of an assignor.

    :param topic_ids: the existing topics to which the member is subscribed
    """

    group_instance_id: str | None
    topic_ids: AbstractSet[UUID]


Subscribers = Mapping[str, Subscriber]
"""All members by id."""

Assignor = Callable[
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

    def place_of(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, instance_id or member_id

    order = sorted(members, key=place_of)
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


def assign_uniform(
    members: Subscribers, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Assign all topics evenly, moving as few partitions as possible."""
    takers: _Takers = {}
    for member_id, member in members.items():
        for topic_id in member.topic_ids:
            takers.setdefault(topic_id, []).append(member_id)
    held = _keep(members, partitions, current)
    taken = set().union(*held.values())
    free = [
        (topic_id, number)
        for topic_id, count in partitions.items()
        if topic_id in takers
        for number in range(count)
        if (topic_id, number) not in taken
    ]
    if len({frozenset(member.topic_ids) for member in members.values()}) == 1:
        _share_out(held, free)
    else:
        _place(takers, held, free)
        while _balance(takers, held):  # ends: each move reduces the sum of the squared loads
            pass
    order = {topic_id: place for place, topic_id in enumerate(partitions)}
    return {
        member_id: by_key(sorted(own, key=lambda partition: (order[partition[0]], partition[1])))
        for member_id, own in held.items()
    }


_Held = dict[str, Own]
_Takers = dict[UUID, list[str]]  # the subscribers of each topic
_Loads = list[tuple[int, int, str]]  # number of partitions, place in the list, member


def _keep(
    members: Subscribers, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> _Held:
    """Return the partitions that members may keep."""
    held: _Held = {}
    taken: set[Partition] = set()
    for member_id, member in members.items():
        held[member_id] = {
            (topic_id, number): None
            for topic_id, number in each(current.get(member_id, {}))
            if topic_id in member.topic_ids
            and number < partitions.get(topic_id, 0)
            and (topic_id, number) not in taken
        }
        taken.update(held[member_id])
    return held


def _share_out(held: _Held, free: list[Partition]) -> None:
    """Assign partitions evenly to members with the same subscription."""
    quotas = desired_counts(held, len(free) + sum(map(len, held.values())))
    for member_id, own in held.items():
        while len(own) > quotas[member_id]:
            free.append(own.popitem()[0])
    free.sort(key=lambda partition: (str(partition[0]), partition[1]))
    row = iter(free)
    for member_id, own in held.items():
        while len(own) < quotas[member_id]:
            own[next(row)] = None


def _loads(member_ids: list[str], held: _Held) -> _Loads:
    return [(len(held[member_id]), place, member_id) for place, member_id in enumerate(member_ids)]


def _place(takers: _Takers, held: _Held, free: list[Partition]) -> None:
    """Assign free partitions to the least loaded members, topics with few subscribers first."""
    free.sort(key=lambda partition: (len(takers[partition[0]]), str(partition[0]), partition[1]))
    for topic_id, partitions in groupby(free, key=itemgetter(0)):
        loads = _loads(takers[topic_id], held)
        heapify(loads)
        for partition in partitions:
            load, place, member_id = loads[0]
            held[member_id][partition] = None
            heapreplace(loads, (load + 1, place, member_id))


def _balance(takers: _Takers, held: _Held) -> bool:
    """Move single partitions from members to subscribers that have at least two fewer; return
    whether any was moved.
    """
    moved = [_balance_topic(topic_id, member_ids, held) for topic_id, member_ids in takers.items()]
    return any(moved)


def _balance_topic(topic_id: UUID, takers: list[str], held: _Held) -> bool:
    own = {
        member_id: [partition for partition in held[member_id] if partition[0] == topic_id]
        for member_id in takers
    }
    least = _loads(takers, held)
    most = [(-load, place, member_id) for load, place, member_id in least if own[member_id]]
    heapify(most)
    heapify(least)
    moved = False
    while most:
        _update_head(most, held, -1)
        _update_head(least, held, 1)
        (_, place, giver), (_, _, taker) = most[0], least[0]
        if len(held[giver]) - len(held[taker]) < 2:
            break  # no member has more
        partition = own[giver].pop()
        del held[giver][partition]
        held[taker][partition] = None
        heappush(least, (len(held[giver]), place, giver))
        if not own[giver]:
            heappop(most)
        moved = True
    return moved


def _update_head(heap: _Loads, held: _Held, sign: int) -> None:
    """Let the head of a heap be a member with its present load, times ``sign``."""
    while True:
        load, place, member_id = heap[0]
        present = sign * len(held[member_id])
        if load == present:
            return
        heapreplace(heap, (present, place, member_id))


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
"""Assignors by the names that clients use."""


def configured_assignors(config: Configuration) -> tuple[str, ...]:
    """Return the names of the assignors that members may ask for; the first is the default. All
    assignors if none of those that are configured, by name or Kafka's class name, exists.
    """
    configured = config.get_list("group.consumer.assignors")
    names = (name.rpartition(".")[2].removesuffix("Assignor").lower() for name in configured)
    return tuple(name for name in names if name in ASSIGNORS) or tuple(ASSIGNORS)
