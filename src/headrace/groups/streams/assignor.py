"""The sticky task assignor of streams groups (KIP-1071).

Each task is active on one member. A task of a stateful subtopology also has standby replicas, each
on another process. No member gets more than its share of tasks while others have room. Within this
limit a task stays where it is: the member that has it active keeps it, else a member gets it whose
process has its state on disk, as a standby or, as its offsets tell, from earlier. The remaining
tasks go to the least loaded processes; the load of a process is its number of tasks divided by its
number of members.

The result depends on the arguments alone. Members and processes are visited in the order of their
ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Generic, NamedTuple, TypeVar

from headrace.groups.records import ByRole, HeldTaskAssignment, TaskAssignment, by_key, each

from .topics import ConfiguredSubtopology

T = TypeVar("T")

_by_partition = itemgetter(1, 0)

TaskId = tuple[str, int]
"""A task: one partition of a subtopology, which comes first."""


class TaskMember(NamedTuple):
    """A member as input of the assignor.

    :param previous: the tasks that it has
    :param offsets: the changelog offsets of tasks whose state it has
    """

    process_id: str
    previous: HeldTaskAssignment
    offsets: Mapping[TaskId, int] = {}


class _Heap(Generic[T]):
    """A binary heap that resolves ties as Java's PriorityQueue does, so that assignments equal
    Kafka's.
    """

    def __init__(self, weight: Callable[[T], float], items: Iterable[T]) -> None:
        self._weight = weight
        self._items: list[T] = []
        for item in items:
            self.push(item)

    def __bool__(self) -> bool:
        return bool(self._items)

    def push(self, item: T) -> None:
        """Add an item."""
        items, weight = self._items, self._weight
        place = len(items)
        items.append(item)
        while place:
            parent = (place - 1) // 2
            if weight(item) >= weight(items[parent]):
                break
            items[place] = items[parent]
            place = parent
        items[place] = item

    def pop(self) -> T:
        """Remove and return an item with the least weight."""
        items, weight = self._items, self._weight
        least, last = items[0], items.pop()
        size, place = len(items), 0
        if not size:
            return least
        while place < size // 2:
            child = 2 * place + 1
            if child + 1 < size and weight(items[child]) > weight(items[child + 1]):
                child += 1
            if weight(last) <= weight(items[child]):
                break
            items[place] = items[child]
            place = child
        items[place] = last
        return least


class _Process:
    """The members of one process, and the tasks that they get: each on one of them.

    :ivar by_count: the members by their numbers of tasks; None after another one has changed
    """

    def __init__(self) -> None:
        self.tasks: set[TaskId] = set()
        self.members: list[_Member] = []
        self.by_count: _Heap[_Member] | None = None

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.members)

    def add_to_least_loaded(self, task: TaskId, *, active: bool) -> int:
        """Assign a task to the member with the fewest tasks; return how many it now has."""
        by_count = self.by_count or _Heap(attrgetter("count"), self.members)
        member = by_count.pop()
        count = member.take(task, active=active)
        by_count.push(member)
        self.by_count = by_count  # taking the task has dropped it
        return count


class _Member:
    """The tasks that a member gets.

    :ivar count: their number
    """

    def __init__(self, process: _Process) -> None:
        self.process = process
        self.active: list[TaskId] = []
        self.standby: list[TaskId] = []
        self.count = 0
        process.members.append(self)

    def take(self, task: TaskId, *, active: bool) -> int:
        """Add a task; return the number of tasks."""
        self.process.tasks.add(task)
        self.process.by_count = None
        (self.active if active else self.standby).append(task)
        self.count += 1
        return self.count


class _Quota:
    """The limit of tasks of a member while other members have room."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members

    @property
    def each(self) -> int:
        """The limit; it becomes smaller when full members have more than an equal share."""
        return -(-self._tasks // self._members) if self._members else 0

    def taken(self, count: int) -> None:
        """Adjust the limit for the other members if a member with ``count`` tasks is full."""
        if count == self.each:
            self._members -= 1
            self._tasks -= count


def assign_sticky(
    members: Mapping[str, TaskMember],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    standby_replicas: int = 0,
) -> dict[str, TaskAssignment]:
    """Return the target assignment of each member.

    :param members: all members by id; at least one
    :param subtopologies: the tasks of each subtopology
    :param standby_replicas: ``streams.num.standby.replicas``. Where there are not enough processes,
        there are fewer
    """
    assignor = _Assignor(members, subtopologies, standby_replicas)
    assignor.assign_active()
    if standby_replicas:
        assignor.assign_standby()
    return assignor.assignments()


class _Assignor:
    """One assignment of all tasks."""

    def __init__(
        self,
        members: Mapping[str, TaskMember],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        standby_replicas: int,
    ) -> None:
        self._standby_replicas = standby_replicas
        self._tasks = [
            (subtopology_id, partition)
            for subtopology_id, subtopology in subtopologies.items()
            for partition in range(subtopology.tasks)
        ]
        self._stateful_tasks = [task for task in self._tasks if subtopologies[task[0]].changelogs]
        replicas = len(self._stateful_tasks) * standby_replicas
        self._active_quota = _Quota(len(self._tasks), len(members))
        self._quota = _Quota(len(self._tasks) + replicas, len(members))
        self._processes: dict[str, _Process] = {
            process_id: _Process()
            for process_id in sorted({member.process_id for member in members.values()})
        }
        self._members: dict[str, _Member] = {}
        self._was_active: dict[TaskId, _Member] = {}
        has_state: dict[TaskId, list[tuple[bool, int, str]]] = {}
        for member_id in sorted(members):
            process_id, previous, offsets = members[member_id]
            member = self._members[member_id] = _Member(self._processes[process_id])
            for task in each(previous.active):
                self._was_active[task] = member
            standby = set(each(previous.standby))
            for task in standby.union(offsets):
                progress = offsets.get(task, 0)
                has_state.setdefault(task, []).append((task not in standby, -progress, member_id))
        # Standby tasks first, then those with the most progress.
        self._has_state = {
            task: [self._members[member_id] for _, _, member_id in sorted(candidates)]
            for task, candidates in has_state.items()
        }

    def _by_load(self) -> _Heap[_Process]:
        return _Heap(lambda process: process.load, self._processes.values())

    # Active tasks ---------------------------------------------------------------------------------

    def assign_active(self) -> None:
        """Assign each task to one member."""
        tasks = sorted(self._tasks, key=_by_partition)
        tasks = [task for task in tasks if not self._keep(task, self._was_active.get(task))]
        tasks = [task for task in tasks if not self._keep(task, self._with_state_of(task))]
        tasks.sort()
        by_load = self._by_load()
        for task in tasks:
            process = by_load.pop()
            self._took_active(process.add_to_least_loaded(task, active=True))
            by_load.push(process)

    def _keep(self, task: TaskId, member: _Member | None) -> bool:
        """Make a task active on a member that has its state, if it may take another task."""
        if member is None or member.count >= self._active_quota.each:
            return False
        self._took_active(member.take(task, active=True))
        return True

    def _took_active(self, count: int) -> None:
        self._active_quota.taken(count)
        self._quota.taken(count)

    def _with_state_of(self, task: TaskId, *, another: bool = False) -> _Member | None:
        """Return the least loaded of the members that have the state of a task.

        :param another: the process must not have the task yet
        """
        best = None
        for member in self._has_state.get(task, ()):
            if another and task in member.process.tasks:
                continue
            if best is None or (
                member.process.load < best.process.load and member.count < best.count
            ):
                best = member
        return best

    # Standby tasks --------------------------------------------------------------------------------

    def assign_standby(self) -> None:
        """Assign the replicas of each stateful task to other processes than its active task."""
        missing: list[tuple[TaskId, int]] = []
        for task in sorted(self._stateful_tasks, key=_by_partition, reverse=True):
            for replica in range(self._standby_replicas):
                if not self._replicate(task):
                    missing.append((task, self._standby_replicas - replica))
                    break
        missing.sort(reverse=True)
        by_load = self._by_load()
        for task, replicas in missing:
            for _ in range(replicas):
                if not self._replicate_anywhere(task, by_load):
                    break

    def _replicate(self, task: TaskId) -> bool:
        """Assign a replica to a member that has the state of the task, if it may take it."""
        for member in (self._was_active.get(task), self._with_state_of(task, another=True)):
            if member is None or member.count >= self._quota.each:
                continue
            if task not in member.process.tasks:
                self._quota.taken(member.take(task, active=False))
                return True
        return False

    def _replicate_anywhere(self, task: TaskId, by_load: _Heap[_Process]) -> bool:
        """Assign a replica to the least loaded process without the task; return False if there is
        none.
        """
        passed: list[_Process] = []
        is_placed = False
        while by_load and not is_placed:
            process = by_load.pop()
            passed.append(process)
            if task not in process.tasks:
                self._quota.taken(process.add_to_least_loaded(task, active=False))
                is_placed = True
        for process in reversed(passed):
            by_load.push(process)
        return is_placed

    # Result ---------------------------------------------------------------------------------------

    def assignments(self) -> dict[str, TaskAssignment]:
        """Return the tasks of each member."""
        return {
            member_id: ByRole(by_key(sorted(member.active)), by_key(sorted(member.standby)))
            for member_id, member in self._members.items()
        }
