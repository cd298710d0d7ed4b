"""The sticky assignor of streams groups: every task runs once, evenly, and where its state is."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.records import ByRole
from headrace.groups.streams.assignor import TaskMember, assign_sticky
from headrace.groups.streams.topics import ConfiguredSubtopology

NOTHING = ByRole()


def subtopology(count, is_stateful):
    return ConfiguredSubtopology(None, count, ("changelog",) if is_stateful else (), ())


SUBTOPOLOGIES = st.dictionaries(
    st.sampled_from("012"), st.builds(subtopology, st.integers(1, 7), st.booleans()), min_size=1
)
PROCESSES = st.dictionaries(st.sampled_from("mnopqr"), st.sampled_from("xyz"), min_size=1)


def tasks(assignment):
    return [(id_, n) for id_, numbers in assignment.items() for n in numbers]


def members_of(processes, target=None):
    target = target or {}
    return {
        member_id: TaskMember(process, target.get(member_id, NOTHING))
        for member_id, process in processes.items()
    }


@given(
    processes=PROCESSES,
    subtopologies=SUBTOPOLOGIES,
    replicas=st.integers(0, 2),
    before=st.none() | PROCESSES,
)
def test_each_task_is_active_once_and_on_a_process_once(processes, subtopologies, replicas, before):
    previous = before and assign_sticky(members_of(before), subtopologies, replicas)
    target = assign_sticky(members_of(processes, previous), subtopologies, replicas)
    assert target.keys() == processes.keys()
    every = {(id_, n) for id_, count in subtopologies.items() for n in range(count.tasks)}
    active = [task for one in target.values() for task in tasks(one.active)]
    assert sorted(active) == sorted(every)
    on_process = Counter(
        (processes[member_id], task)
        for member_id, one in target.items()
        for task in (*tasks(one.active), *tasks(one.standby))
    )
    assert set(on_process.values()) == {1}
    standby = Counter(task for one in target.values() for task in tasks(one.standby))
    wanted = min(replicas, len(set(processes.values())) - 1)
    for task in every:
        assert standby[task] == (wanted if subtopologies[task[0]].changelogs else 0)


@given(processes=PROCESSES, subtopologies=SUBTOPOLOGIES)
def test_members_of_processes_of_one_size_get_as_many_tasks(processes, subtopologies):
    processes = {member_id: member_id for member_id in processes}
    target = assign_sticky(members_of(processes), subtopologies)
    loads = [len(tasks(one.active)) for one in target.values()]
    assert max(loads) - min(loads) <= 1


@given(processes=PROCESSES, subtopologies=SUBTOPOLOGIES, replicas=st.integers(0, 1))
def test_nothing_moves_without_a_reason(processes, subtopologies, replicas):
    processes = {member_id: member_id for member_id in processes}
    first = assign_sticky(members_of(processes), subtopologies, replicas)
    again = assign_sticky(members_of(processes, first), subtopologies, replicas)
    assert {m: one.active for m, one in again.items()} == {
        m: one.active for m, one in first.items()
    }


def test_a_task_goes_to_its_standby_when_its_member_leaves():
    subtopologies = {"0": subtopology(3, is_stateful=True)}
    processes = {"m": "x", "n": "y", "o": "z"}
    target = assign_sticky(members_of(processes), subtopologies, 1)
    for gone in processes:
        (task,) = tasks(target[gone].active)
        (standby,) = (member for member, one in target.items() if task in tasks(one.standby))
        left = {member: process for member, process in processes.items() if member != gone}
        after = assign_sticky(members_of(left, target), subtopologies, 1)
        assert task in tasks(after[standby].active)


def test_a_process_with_two_members_gets_twice_as_many_tasks():
    target = assign_sticky(
        members_of({"m": "x", "n": "x", "o": "y"}), {"0": subtopology(6, is_stateful=False)}
    )
    assert [len(tasks(target[m].active)) for m in "mno"] == [2, 2, 2]
