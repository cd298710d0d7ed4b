"""The simple assignor: balanced, shared as evenly as can be, and moving no more than it must."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.share.assignors import assign_simple, share_out


def loads(target):
    return sorted(sum(map(len, topics.values())) for topics in target.values())


def test_a_second_member_takes_half_and_the_first_keeps_half():
    target = assign_simple({"a": {"t"}, "b": {"t"}}, {"t": range(4)}, {"a": {"t": (0, 1, 2, 3)}})
    assert target == {"a": {"t": (0, 1)}, "b": {"t": (2, 3)}}


def test_no_partitions_and_no_members():
    assert assign_simple({"a": {"t"}}, {}, {"a": {"t": (0,)}}) == {"a": {}}
    assert assign_simple({}, {"t": range(3)}, {}) == {}


members = st.lists(st.text("abcdef", min_size=1, max_size=2), unique=True, max_size=12)


@st.composite
def situations(draw):
    now = draw(members)
    partitions = list(range(draw(st.integers(0, 12))))
    held = {m: draw(st.sets(st.integers(0, 14))) for m in now}
    return now, partitions, held


@given(situations())
def test_loads_differ_by_at_most_one_and_partitions_are_evenly_shared(situation):
    now, partitions, held = situation
    given_out = share_out(now, partitions, held)
    assert list(given_out) == now
    if not now or not partitions:
        assert not any(given_out.values())
        return
    sizes = [len(own) for own in given_out.values()]
    assert max(sizes) - min(sizes) <= 1
    sharing = -(-len(now) // len(partitions))
    counts = Counter(p for own in given_out.values() for p in own)
    assert all(counts[p] == sharing for p in partitions), counts
    assert all(
        own == sorted(set(own)) and set(own) <= set(partitions) for own in given_out.values()
    )


@given(situations())
def test_a_finished_assignment_stays_as_it_is(situation):
    now, partitions, held = situation
    first = share_out(now, partitions, held)
    assert share_out(now, partitions, {m: set(own) for m, own in first.items()}) == first


@given(members.filter(lambda m: len(m) > 1), st.integers(1, 40))
def test_a_newcomer_moves_only_its_own_share(now, count):
    partitions = list(range(max(count, len(now))))  # no partition is shared
    before = share_out(now[1:], partitions, {m: set() for m in now})
    after = share_out(now, partitions, {m: set(before.get(m, ())) for m in now})
    for m in now[1:]:
        assert set(after[m]) <= set(before[m])


@given(members.filter(lambda m: len(m) > 1), st.integers(1, 40))
def test_who_stays_keeps_all_when_one_leaves(now, count):
    partitions = list(range(max(count, len(now))))
    before = share_out(now, partitions, {m: set() for m in now})
    after = share_out(now[1:], partitions, {m: set(before[m]) for m in now})
    for m in now[1:]:
        assert set(before[m]) <= set(after[m])


@given(
    st.dictionaries(st.sampled_from("abcde"), st.sets(st.sampled_from("tuv"), min_size=1)),
    st.data(),
)
def test_every_subscribed_partition_is_assigned_to_a_subscriber(subscriptions, data):
    partitions = {topic: range(data.draw(st.integers(0, 5))) for topic in "tuv"}
    current = {
        m: {t: tuple(data.draw(st.sets(st.integers(0, 6)))) for t in "tuv"} for m in subscriptions
    }
    target = assign_simple(subscriptions, partitions, current)
    assert all(set(topics) <= subscriptions[m] for m, topics in target.items())
    subscribed = {topic for topics in subscriptions.values() for topic in topics}
    for topic, numbers in partitions.items():
        assigned = {p for topics in target.values() for p in topics.get(topic, ())}
        assert assigned == (set(numbers) if topic in subscribed else set())


@given(members.filter(bool), st.data())
def test_no_fewer_could_move(now, data):
    """Where no partition is shared, who has too much keeps its share, and everyone else all it
    has."""
    partitions = list(range(data.draw(st.integers(len(now), 20))))
    owners = data.draw(
        st.lists(
            st.none() | st.sampled_from(now), min_size=len(partitions), max_size=len(partitions)
        )
    )
    held = {m: {p for p, owner in zip(partitions, owners, strict=True) if owner == m} for m in now}
    after = share_out(now, partitions, held)
    kept = sum(len(held[m] & set(after[m])) for m in now)
    least, odd = divmod(len(partitions), len(now))
    most_loaded_first = sorted(map(len, held.values()), reverse=True)
    assert kept == sum(min(load, least + (i < odd)) for i, load in enumerate(most_loaded_first))


@given(
    st.dictionaries(
        st.sampled_from("abcde"), st.sets(st.sampled_from("tuv"), min_size=1), min_size=1
    ),
    st.data(),
)
def test_each_topic_is_shared_evenly_by_its_subscribers_and_then_left_alone(subscriptions, data):
    partitions = {topic: range(data.draw(st.integers(1, 6))) for topic in "tuv"}
    current = {
        m: {t: tuple(data.draw(st.sets(st.integers(0, 6)))) for t in "tuv"} for m in subscriptions
    }
    target = assign_simple(subscriptions, partitions, current)
    assert assign_simple(subscriptions, partitions, target) == target
    if len({frozenset(topics) for topics in subscriptions.values()}) == 1:
        assert max(loads(target)) - min(loads(target)) <= 1
        return
    for topic, numbers in partitions.items():
        having = [
            target[m].get(topic, ()) for m, topics in subscriptions.items() if topic in topics
        ]
        if having:
            sizes = [len(own) for own in having]
            assert max(sizes) - min(sizes) <= 1
            holders = Counter(p for own in having for p in own)
            assert set(holders.values()) == {-(-len(having) // len(numbers))}


@given(
    st.dictionaries(
        st.sampled_from("abcde"), st.sets(st.sampled_from("tuv"), min_size=1), min_size=2
    ),
    st.data(),
)
def test_a_change_of_one_topic_leaves_the_others_alone_when_subscriptions_differ(
    subscriptions, data
):
    partitions = {topic: range(data.draw(st.integers(1, 6))) for topic in "tuv"}
    before = assign_simple(subscriptions, partitions, {})
    if len({frozenset(topics) for topics in subscriptions.values()}) == 1:
        return
    after = assign_simple(subscriptions, {**partitions, "t": range(9)}, before)
    for m in subscriptions:
        assert {t: p for t, p in after[m].items() if t != "t"} == {
            t: p for t, p in before[m].items() if t != "t"
        }
