"""The assignor of share groups: ``simple`` (KIP-932).

Each partition goes to as many members as needed to give every member one. The members' numbers of
partitions differ by at most one, and members keep as many of their partitions as this balance
allows. The result depends on the arguments alone, not on the order of sets or on chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeVar

from headrace.groups.records import by_key

M = TypeVar("M", bound=Hashable)
T = TypeVar("T", bound=Hashable)
P = TypeVar("P", bound=Hashable)


def assign_simple(
    subscriptions: Mapping[M, AbstractSet[T]],
    partitions: Mapping[T, Iterable[int]],
    current: Mapping[M, Mapping[T, Iterable[int]]],
) -> dict[M, dict[T, tuple[int, ...]]]:
    """Return the target assignment of a share group.

    :param subscriptions: the topics of each member; topics not in ``partitions`` are ignored
    :param partitions: the assignable partitions by topic
    :param current: the partitions that members have and should keep if possible; may be out of date
    :returns: each member's partitions by topic, ascending, in the order of ``partitions``; an empty
        mapping for none
    """
    distinct = {frozenset(topics) for topics in subscriptions.values()}
    if len(distinct) <= 1:
        subscribed = frozenset[T]().union(*distinct)
        rounds = [(list(subscriptions), [topic for topic in partitions if topic in subscribed])]
    else:  # different subscriptions: balance each topic separately
        rounds = [
            ([m for m, topics in subscriptions.items() if topic in topics], [topic])
            for topic in partitions
        ]
    target: dict[M, list[tuple[T, int]]] = {member: [] for member in subscriptions}
    for members, topics in rounds:
        assignable = [(topic, number) for topic in topics for number in sorted(partitions[topic])]
        held = {
            m: {(topic, n) for topic in topics for n in current.get(m, {}).get(topic, ())}
            for m in members
        }
        for member, share in share_out(members, assignable, held).items():
            target[member] += share
    return {member: by_key(share) for member, share in target.items()}


def share_out(
    members: Sequence[M], partitions: Sequence[P], held: Mapping[M, AbstractSet[P]]
) -> dict[M, list[P]]:
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
        member: dict.fromkeys(p for p in partitions if p in held[member]) for member in members
    }
    counts = desired_counts(owned, sharing * len(partitions))
    holders = Counter(p for own in owned.values() for p in own)
    # Members over their count first give up partitions that too many members have, then others.
    for least in (sharing, 0):
        for member, own in owned.items():
            _give_up(own, len(own) - counts[member], holders, least)
    for own in reversed(list(owned.values())):  # partitions that still have too many members
        _give_up(own, len(own), holders, sharing)
    _fill_up(owned, holders, counts, partitions, sharing)
    order = {p: i for i, p in enumerate(partitions)}
    return {member: sorted(own, key=order.__getitem__) for member, own in owned.items()}


Own: TypeAlias = dict[P, None]  # an ordered set


def desired_counts(owned: Mapping[M, Own[P]], total: int) -> dict[M, int]:
    """Return the number of partitions for each member. Members with the most partitions keep the
    remainder, so that the fewest move.
    """
    least, odd = divmod(total, len(owned))
    by_load = sorted(owned, key=lambda member: -len(owned[member]))
    return {member: least + (i < odd) for i, member in enumerate(by_load)}


def _give_up(own: Own[P], surplus: int, holders: Counter[P], least: int) -> None:
    """Take up to ``surplus`` partitions from a member, last first; only partitions of more than
    ``least`` members.
    """
    for p in reversed(list(own)):
        if surplus <= 0:
            return
        if holders[p] > least:
            del own[p]
            holders[p] -= 1
            surplus -= 1


def _fill_up(
    owned: Mapping[M, Own[P]],
    holders: Counter[P],
    counts: Mapping[M, int],
    partitions: Sequence[P],
    sharing: int,
) -> None:
    """Assign missing partitions, those with the fewest members first, to the members that lack
    most.
    """
    missing = sorted(
        (p for p in partitions for _ in range(sharing - holders[p])), key=holders.__getitem__
    )
    unfilled = sorted(
        (m for m in owned if len(owned[m]) < counts[m]), key=lambda m: len(owned[m]) - counts[m]
    )
    left: list[P] = []
    for p in missing:
        for i, member in enumerate(unfilled):
            if p not in owned[member]:
                owned[member][p] = None
                if len(owned[member]) == counts[member]:
                    del unfilled[i]
                else:  # to the end of the list
                    unfilled.append(unfilled.pop(i))
                break
        else:
            left.append(p)
    for p in left:
        _swap_in(p, owned, unfilled, counts)


def _swap_in(p: P, owned: Mapping[M, Own[P]], unfilled: list[M], counts: Mapping[M, int]) -> None:
    """Give ``p`` to a member without it, and one of that member's partitions to a member below its
    count that already has ``p``.
    """
    if not unfilled:
        return
    taker = unfilled[0]
    for own in owned.values():
        if p in own:
            continue
        for q in own:
            if q not in owned[taker]:
                del own[q]
                own[p] = owned[taker][q] = None
                if len(owned[taker]) == counts[taker]:
                    unfilled.pop(0)
                return
