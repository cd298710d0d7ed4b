"""The assignors of consumer groups: everything is given out, evenly, and as little as possible
moves.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform

A, B, C = (UUID(int=i) for i in range(1, 4))

GROUPS = st.dictionaries(
    st.sampled_from("mnopqr"),
    st.builds(Subscriber, st.none(), st.frozensets(st.sampled_from([A, B, C]))),
    min_size=1,
)
SAME = st.builds(
    lambda ids, topic_ids: {member_id: Subscriber(None, topic_ids) for member_id in ids},
    st.sets(st.sampled_from("mnopqr"), min_size=1),
    st.frozensets(st.sampled_from([A, B, C]), min_size=1),
)
PARTITIONS = st.fixed_dictionaries(
    {A: st.integers(1, 7), B: st.integers(1, 7), C: st.integers(1, 7)}
)


def wanted(members, partitions):
    """The partitions of topics that exist and somebody wants."""
    ids = set().union(*(member.topic_ids for member in members.values()))
    return {topic_id: count for topic_id, count in partitions.items() if topic_id in ids}


def flat(target):
    return {
        (topic_id, n): member
        for member, own in target.items()
        for topic_id, ns in own.items()
        for n in ns
    }


def load(target, member_id):
    return sum(map(len, target[member_id].values()))


@pytest.mark.parametrize("assign", ASSIGNORS.values())
@given(members=GROUPS | SAME, partitions=PARTITIONS)
def test_each_partition_goes_to_one_subscriber(assign, members, partitions):
    partitions = wanted(members, partitions)
    target = assign(members, partitions, {})
    assert target.keys() == members.keys()
    assert sum(load(target, member_id) for member_id in target) == len(flat(target))
    assert flat(target).keys() == {
        (topic_id, n) for topic_id, count in partitions.items() for n in range(count)
    }
    for member_id, own in target.items():
        assert own.keys() <= members[member_id].topic_ids
        assert all(list(numbers) == sorted(numbers) for numbers in own.values())


@given(members=GROUPS | SAME, partitions=PARTITIONS, data=st.data())
def test_no_single_move_makes_uniform_more_even(members, partitions, data):
    partitions = wanted(members, partitions)
    before = data.draw(
        st.just({})
        | GROUPS.map(lambda others: assign_uniform(others, wanted(others, partitions), {}))
    )
    target = assign_uniform(members, partitions, before)
    for (topic_id, _), owner in flat(target).items():
        for other, member in members.items():
            if topic_id in member.topic_ids:
                assert load(target, owner) - load(target, other) <= 1
    assert assign_uniform(members, partitions, target) == target


@given(members=SAME, partitions=PARTITIONS)
def test_who_comes_or_goes_moves_only_what_it_must(members, partitions):
    partitions = wanted(members, partitions)
    before = assign_uniform(members, partitions, {})
    topic_ids = next(iter(members.values())).topic_ids
    more = assign_uniform({**members, "z": Subscriber(None, topic_ids)}, partitions, before)
    moved = {one: owner for one, owner in flat(more).items() if flat(before)[one] != owner}
    assert set(moved.values()) <= {"z"}
    assert len(moved) == sum(partitions.values()) // (len(members) + 1)
    left = assign_uniform(members, partitions, more)
    stay = {one for one, owner in flat(more).items() if owner != "z"}
    assert all(flat(left)[one] == flat(more)[one] for one in stay)


@given(members=SAME, partitions=PARTITIONS)
def test_ranges_are_alike_for_topics_of_one_size(members, partitions):
    partitions = dict.fromkeys(wanted(members, partitions), 6)
    for own in assign_range(members, partitions, {}).values():
        assert len(set(own.values())) <= 1
        for numbers in own.values():
            assert list(numbers) == list(range(numbers[0], numbers[-1] + 1))


def test_static_members_come_first_in_a_range():
    members = {"a": Subscriber(None, {A}), "z": Subscriber("one", {A}), "b": Subscriber("two", {A})}
    assert assign_range(members, {A: 4}, {}) == {"z": {A: (0, 1)}, "b": {A: (2,)}, "a": {A: (3,)}}


def test_a_thousand_members_are_given_ten_thousand_partitions_evenly():
    members = {f"m{i}": Subscriber(None, {A, B} if i % 2 else {A}) for i in range(1_000)}
    target = assign_uniform(members, {A: 5_000, B: 5_000}, {})
    assert {load(target, member_id) for member_id in members} == {10}
