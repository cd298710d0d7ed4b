"""The assignor of share groups: ``simple`` (KIP-932).

Each partition goes to as many members as needed to give every member one. The members' numbers of
partitions differ by at most one, and members keep as many of their partitions as this balance
allows. The result depends on the arguments alone, not on the order of sets or on chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from uuid import UUID

from headrace.groups.records import by_key

Partition = tuple[UUID, int]
"""A topic id, and the number of a partition."""

Own = dict[Partition, None]
"""The partitions of a member: an ordered set."""


def assign_simple(
    subscriptions: Mapping[str, AbstractSet[UUID]],
    partitions: Mapping[UUID, Iterable[int]],
    current: Mapping[str, Mapping[UUID, Iterable[int]]],
) -> dict[str, dict[UUID, tuple[int, ...]]]:
    """Return the target assignment of a share group.

    :param subscriptions: the topics of each member; topics not in ``partitions`` are ignored
    :param partitions: the assignable partitions by topic
    :param current: the partitions that members have and should keep if possible; may be out of date
    :returns: each member's partitions by topic, ascending, in the order of ``partitions``; an empty
        mapping for none
    """
    distinct = {frozenset(topics) for topics in subscriptions.values()}
    if len(distinct) <= 1:
        subscribed = frozenset[UUID]().union(*distinct)
        rounds = [(list(subscriptions), [topic for topic in partitions if topic in subscribed])]
    else:  # different subscriptions: balance each topic separately
        rounds = [
            ([member for member, topics in subscriptions.items() if topic in topics], [topic])
            for topic in partitions
        ]
    target: dict[str, list[Partition]] = {member: [] for member in subscriptions}
    for members, topics in rounds:
        assignable = [(topic, number) for topic in topics for number in sorted(partitions[topic])]
        held = {
            member: {
                (topic, number)
                for topic in topics
                for number in current.get(member, {}).get(topic, ())
            }
            for member in members
        }
        for member, share in share_out(members, assignable, held).items():
            target[member] += share
    return {member: by_key(share) for member, share in target.items()}


def share_out(
    members: Sequence[str],
    partitions: Sequence[Partition],
    held: Mapping[str, AbstractSet[Partition]],
) -> dict[str, list[Partition]]:
    """Assign partitions to members that are all subscribed to them.

    With M members and P partitions each partition goes to ``ceil(M / P)`` members, and each member
    has ``ceil(M / P) * P / M`` partitions, rounded down or up.

    :param held: the partitions that each member has; those that are not in ``partitions`` are
        ignored
    :returns: each member's partitions, in the order of ``partitions``
    """
    if not members or not partitions:
        return {member: [] for member in members}
    sharing = -(-len(members) // len(partitions))
    owned = {
        member: dict.fromkeys(partition for partition in partitions if partition in held[member])
        for member in members
    }
    counts = desired_counts(owned, sharing * len(partitions))
    holders = Counter(partition for own in owned.values() for partition in own)
    # Members over their count first give up partitions that too many members have, then others.
    for least in (sharing, 0):
        for member, own in owned.items():
            _give_up(own, len(own) - counts[member], holders, least)
    for own in reversed(list(owned.values())):  # partitions that still have too many members
        _give_up(own, len(own), holders, sharing)
    _fill_up(owned, holders, counts, partitions, sharing)
    order = {partition: place for place, partition in enumerate(partitions)}
    return {member: sorted(own, key=order.__getitem__) for member, own in owned.items()}


def desired_counts(owned: Mapping[str, Own], total: int) -> dict[str, int]:
    """Return the number of partitions for each member. Members with the most partitions keep the
    remainder, so that the fewest move.
    """
    least, odd = divmod(total, len(owned))
    by_load = sorted(owned, key=lambda member: -len(owned[member]))
    return {member: least + (place < odd) for place, member in enumerate(by_load)}


def _give_up(own: Own, surplus: int, holders: Counter[Partition], least: int) -> None:
    """Take up to ``surplus`` partitions from a member, last first; only partitions of more than
    ``least`` members.
    """
    for partition in reversed(list(own)):
        if surplus <= 0:
            return
        if holders[partition] > least:
            del own[partition]
            holders[partition] -= 1
            surplus -= 1


def _fill_up(
    owned: Mapping[str, Own],
    holders: Counter[Partition],
    counts: Mapping[str, int],
    partitions: Sequence[Partition],
    sharing: int,
) -> None:
    """Assign missing partitions, those with the fewest members first, to the members that lack
    most.
    """
    missing = sorted(
        (partition for partition in partitions for _ in range(sharing - holders[partition])),
        key=holders.__getitem__,
    )
    unfilled = sorted(
        (member for member in owned if len(owned[member]) < counts[member]),
        key=lambda member: len(owned[member]) - counts[member],
    )
    left: list[Partition] = []
    for partition in missing:
        for place, member in enumerate(unfilled):
            if partition not in owned[member]:
                owned[member][partition] = None
                if len(owned[member]) == counts[member]:
                    del unfilled[place]
                else:  # to the end of the list
                    unfilled.append(unfilled.pop(place))
                break
        else:
            left.append(partition)
    for partition in left:
        _swap_in(partition, owned, unfilled, counts)


def _swap_in(
    partition: Partition, owned: Mapping[str, Own], unfilled: list[str], counts: Mapping[str, int]
) -> None:
    """Give ``partition`` to a member without it, and one of that member's partitions to a member
    below its count that already has ``partition``.
    """
    taker = unfilled[0]  # there is one, as the counts add up to all places of all partitions
    for own in owned.values():
        if partition in own:
            continue
        for other in own:
            if other not in owned[taker]:
                del own[other]
                own[partition] = owned[taker][other] = None
                if len(owned[taker]) == counts[taker]:
                    unfilled.pop(0)
                return
