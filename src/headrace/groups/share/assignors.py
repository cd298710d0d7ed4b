"""Who gets which partitions of a share group: the ``simple`` assignor of KIP-932.

Every partition is shared by as many members as it takes to give each member one; the members' loads
differ by at most one; and of what a member has it keeps as much as balance allows. The result
depends on the arguments alone, not on the order of sets or on chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeVar

M = TypeVar("M", bound=Hashable)
T = TypeVar("T", bound=Hashable)
P = TypeVar("P", bound=Hashable)


def assign_simple(
    subscriptions: Mapping[M, AbstractSet[T]],
    partitions: Mapping[T, Iterable[int]],
    current: Mapping[M, Mapping[T, Iterable[int]]],
) -> dict[M, dict[T, tuple[int, ...]]]:
    """The target assignment of a share group.

    :param subscriptions: the topics of each member; topics that ``partitions`` does not have give
        nothing
    :param partitions: what can be assigned, by topic
    :param current: what members have, to be kept where possible; may be out of date
    :returns: each member's partitions by topic, ascending, in the order of ``partitions``; an empty
        mapping for none
    """
    if len({frozenset(topics) for topics in subscriptions.values()}) <= 1:
        rounds = [
            (list(subscriptions), [topic for topic in partitions if _wanted(topic, subscriptions)])
        ]
    else:  # with different subscriptions every topic is balanced for itself
        rounds = [
            ([m for m, topics in subscriptions.items() if topic in topics], [topic])
            for topic in partitions
        ]
    target: dict[M, dict[T, list[int]]] = {member: {} for member in subscriptions}
    for members, topics in rounds:
        wanted = [(topic, number) for topic in topics for number in sorted(partitions[topic])]
        held = {
            m: {(topic, n) for topic in topics for n in current.get(m, {}).get(topic, ())}
            for m in members
        }
        for member, given in share_out(members, wanted, held).items():
            for topic, number in given:
                target[member].setdefault(topic, []).append(number)
    return {
        member: {topic: tuple(numbers) for topic, numbers in topics.items()}
        for member, topics in target.items()
    }


def _wanted(topic: T, subscriptions: Mapping[M, AbstractSet[T]]) -> bool:
    return any(topic in topics for topics in subscriptions.values())


def share_out(
    members: Sequence[M], partitions: Sequence[P], held: Mapping[M, AbstractSet[P]]
) -> dict[M, list[P]]:
    """Share partitions out among members that all want them.

    With M members and P partitions each partition goes to ``ceil(M / P)`` members, and each member
    has ``ceil(M / P) * P / M`` partitions, rounded down or up.

    :param held: what each member has; anything that is not in ``partitions`` is ignored
    :returns: each member's partitions, in the order of ``partitions``
    """
    if not members or not partitions:
        return {member: [] for member in members}
    sharing = -(-len(members) // len(partitions))
    kept = {member: dict.fromkeys(p for p in partitions if p in held[member]) for member in members}
    counts = _desired_counts(kept, sharing * len(partitions))
    holders = Counter(p for own in kept.values() for p in own)
    for least in (
        sharing,
        0,
    ):  # those who have too much first give up what too many have, then the last of the rest
        for member, own in kept.items():
            _give_up(own, len(own) - counts[member], holders, least)
    for own in reversed(list(kept.values())):  # what still too many have
        _give_up(own, len(own), holders, sharing)
    _fill_up(kept, holders, counts, partitions, sharing)
    order = {p: i for i, p in enumerate(partitions)}
    return {member: sorted(own, key=order.__getitem__) for member, own in kept.items()}


Own: TypeAlias = dict[P, None]  # a set that keeps its order


def _desired_counts(kept: Mapping[M, Own[P]], total: int) -> dict[M, int]:
    """How many partitions each member shall have. Who has most keeps the odd ones, so that fewest
    move.
    """
    least, odd = divmod(total, len(kept))
    by_load = sorted(kept, key=lambda member: -len(kept[member]))
    return {member: least + (i < odd) for i, member in enumerate(by_load)}


def _give_up(own: Own[P], surplus: int, holders: Counter[P], least: int) -> None:
    """Take up to ``surplus`` partitions from a member, the last first, that more than ``least``
    members have.
    """
    for p in reversed(list(own)):
        if surplus <= 0:
            return
        if holders[p] > least:
            del own[p]
            holders[p] -= 1
            surplus -= 1


def _fill_up(
    kept: Mapping[M, Own[P]],
    holders: Counter[P],
    counts: Mapping[M, int],
    partitions: Sequence[P],
    sharing: int,
) -> None:
    """Give what is missing to those who lack most, scarcest partitions first."""
    missing = sorted(
        (p for p in partitions for _ in range(sharing - holders[p])),
        key=lambda p: holders[p] - sharing,
    )
    unfilled = sorted(
        (m for m in kept if len(kept[m]) < counts[m]), key=lambda m: len(kept[m]) - counts[m]
    )
    left: list[P] = []
    for p in missing:
        for i, member in enumerate(unfilled):
            if p not in kept[member]:
                kept[member][p] = None
                if len(kept[member]) == counts[member]:
                    del unfilled[i]
                else:  # to the end of the row
                    unfilled.append(unfilled.pop(i))
                break
        else:
            left.append(p)
    for p in left:
        _swap_in(p, kept, unfilled, counts)


def _swap_in(p: P, kept: Mapping[M, Own[P]], unfilled: list[M], counts: Mapping[M, int]) -> None:
    """All who lack a partition have ``p`` already: someone else takes it and gives one up for one
    of them.
    """
    if not unfilled:
        return
    taker = unfilled[0]
    for own in kept.values():
        if p in own:
            continue
        for q in own:
            if q not in kept[taker]:
                del own[q]
                own[p] = kept[taker][q] = None
                if len(kept[taker]) == counts[taker]:
                    unfilled.pop(0)
                return
