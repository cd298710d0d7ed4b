"""Descriptions of topics page by page (DescribeTopicPartitions), and of the directory with their
logs (DescribeLogDirs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.conformance.world import OK, World, outcome
from tests.support import unique

Cursor = tuple[str, int]

# --- DescribeTopicPartitions ---


def page(
    world: World, names: Sequence[str], limit: int, cursor: Cursor | None = None
) -> tuple[list[str], Cursor | None]:
    """Return a page as `topic 0 1 2`, or the topic's error, and the cursor of the next page."""
    response = world.ask(
        75,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    )
    topics = []
    for one in response.topics:
        partitions = [str(part.partition_index) for part in one.partitions]
        told = " ".join(partitions) if not one.error_code else outcome(one.error_code)
        topics.append(f"{one.name} {told}".strip())
    following = response.next_cursor
    return topics, following and (following.topic_name, following.partition_index)


@pytest.fixture
def names(world: World) -> tuple[str, str, str]:
    """Three topics of three partitions, in order."""
    base = unique("paged")
    found = f"{base}-a", f"{base}-b", f"{base}-c"
    for name in found:
        world.topic(partitions=3, name=name)
    return found


def test_topics_are_described_page_by_page(world: World, names: tuple[str, str, str]) -> None:
    a, b, c = names
    backwards = (c, b, a, a)
    assert page(world, backwards, 100) == ([f"{a} 0 1 2", f"{b} 0 1 2", f"{c} 0 1 2"], None)
    assert page(world, backwards, 9)[1] is None
    assert page(world, backwards, 8) == ([f"{a} 0 1 2", f"{b} 0 1 2", f"{c} 0 1"], (c, 2))
    assert page(world, backwards, 8, (c, 2)) == ([f"{c} 2"], None)
    assert page(world, backwards, 3) == ([f"{a} 0 1 2"], (b, 0))
    assert page(world, backwards, 2, (b, 1)) == ([f"{b} 1 2"], (c, 0))
    for limit in (1, 0, -1):
        assert page(world, names, limit) == ([f"{a} 0"], (a, 1))


def test_a_cursor_after_the_last_partition(world: World, names: tuple[str, str, str]) -> None:
    _, b, c = names
    for partition in (3, 9):
        assert page(world, names, 2, (b, partition)) == ([b, f"{c} 0 1"], (c, 2))


@pytest.mark.parametrize("named", ["other", "negative"])
def test_a_cursor_that_fits_no_page(world: World, names: tuple[str, str, str], named: str) -> None:
    _, b, _ = names
    cursor = (f"{b}-not-named", 0) if named == "other" else (b, -1)
    assert page(world, names, 2, cursor) == ([f"{name} INVALID_REQUEST" for name in names], None)


def test_topics_that_do_not_exist_take_no_room(world: World, names: tuple[str, str, str]) -> None:
    a, b, _ = names
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    before, after = f"{a}-0", f"{b}-0"
    assert page(world, [a, before, b, after], 4) == (
        [f"{a} 0 1 2", f"{before} {unknown}", f"{b} 0"],
        (b, 1),
    )
    assert page(world, [a, before], 3) == ([f"{a} 0 1 2"], (before, 0))
    assert page(world, [a, before], 3, (before, 0)) == ([f"{before} {unknown}"], None)


def test_all_topics_from_a_cursor_on(world: World, names: tuple[str, str, str]) -> None:
    a, b, c = names
    assert page(world, [], 6, (b, 0))[0] == [f"{b} 0 1 2", f"{c} 0 1 2"]
    assert page(world, [], 3, (f"{a}-0", 7)) == ([f"{b} 0 1 2"], (c, 0))


# --- DescribeLogDirs ---


def log_dirs(
    world: World, topics: Mapping[str, Sequence[int]] | None, version: int = 5
) -> tuple[Any, dict[str, list[int]]]:
    """Return the only directory, and the partitions described in it."""
    asked = None
    if topics is not None:
        asked = [{"topic": name, "partitions": some} for name, some in topics.items()]
    response = world.ask(35, version, topics=asked)
    (found,) = response.results
    assert outcome(found.error_code) == OK
    return found, {
        topic.name: sorted(part.partition_index for part in topic.partitions)
        for topic in found.topics
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_a_directory_has_the_logs_of_topics(world: World, version: int) -> None:
    topic = world.topic(partitions=2, records=5)
    directory, partitions = log_dirs(world, {topic.name: [0, 1, 7], "nope": [0]}, version)
    assert directory.log_dir.startswith("/")
    assert partitions == {topic.name: [0, 1]}
    ((first, second),) = (
        sorted(one.partitions, key=lambda part: part.partition_index) for one in directory.topics
    )
    assert first.partition_size > 60
    assert second.partition_size == 0
    assert not any(one.offset_lag or one.is_future_key for one in (first, second))
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes
    if version >= 5:
        assert not directory.is_cordoned


def test_what_is_described_of_a_directory(world: World) -> None:
    topic = world.topic(partitions=2)
    assert log_dirs(world, {})[1] == {}
    assert log_dirs(world, {topic.name: []})[1] == {}
    assert log_dirs(world, {topic.name: [9]})[1] == {}
    assert log_dirs(world, {topic.name: [1, 1, 1]})[1] == {topic.name: [1]}
    assert log_dirs(world, None)[1][topic.name] == [0, 1]
