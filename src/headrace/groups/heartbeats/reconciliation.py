"""The comparison of what a member holds with its target: partitions by topic, tasks by subtopology,
each with the epoch of its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, TypeVar

from headrace.groups.records import each

K = TypeVar("K")


def overlaps(owned: Mapping[K, Iterable[int]] | None, held: Mapping[K, Collection[int]]) -> bool:
    """Return whether a member may hold some of these; True if it reports nothing."""
    return owned is None or any(number in held.get(key, ()) for key, number in each(owned))


class Difference(Generic[K]):
    """The difference between what a member has and its target: what it keeps, has to give up and
    gets. Numbers ascend in each, but for :attr:`gained`.

    :param epoch: the epoch of what the member gets
    :ivar waits: some of the target is not free yet
    """

    def __init__(
        self,
        held: Mapping[K, Mapping[int, int]],
        target: Mapping[K, Collection[int]],
        is_free: Callable[[K, int], bool],
        epoch: int,
    ) -> None:
        self.kept: dict[K, dict[int, int]] = {}
        self.revoked: dict[K, dict[int, int]] = {}
        self.gained: dict[K, dict[int, int]] = {}
        self.waits = False
        for key in dict.fromkeys((*target, *held)):
            numbers, epochs = frozenset(target.get(key, ())), held.get(key, {})
            for number in sorted(epochs):
                side = self.kept if number in numbers else self.revoked
                side.setdefault(key, {})[number] = epochs[number]
            for number in numbers.difference(epochs):
                if is_free(key, number):
                    self.gained.setdefault(key, {})[number] = epoch
                else:
                    self.waits = True

    def assigned(self) -> dict[K, dict[int, int]]:
        """Return what the member keeps and gets."""
        return {
            key: dict(sorted({**self.kept.get(key, {}), **self.gained.get(key, {})}.items()))
            for key in dict.fromkeys((*self.kept, *self.gained))
        }
