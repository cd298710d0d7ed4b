"""The state of a group after its broker has restarted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from headrace.protocol.errors import ErrorCode
from tests.conformance.classic import ClassicGroup, ClassicMember, subscription
from tests.conformance.members import BRIEFLY_MS, Member
from tests.conformance.world import COORDINATOR_IS_COMING, OK, PATIENCE_S, Group, Topic, World
from tests.peer import KafkaPeer
from tests.support import HeadraceProcess, unique, wait_until


class Restarted:
    """The same broker before and after."""

    def __init__(self, server: HeadraceProcess | KafkaPeer, target: str) -> None:
        self.server, self.target = server, target
        self.world = World(server.bootstrap_servers, target)

    def again(self, *, cleanly: bool) -> World:
        """Stop the broker, cleanly or with SIGKILL, and start it again."""
        if cleanly:
            self.world.close()
            self.server.stop()
        else:
            self.server.kill()  # before connections close: what was held in them would be released
            self.world.close()
        self.server.start()
        self.world = World(self.server.bootstrap_servers, self.target)
        self.world.warm_up()
        return self.world


@pytest.fixture
def broker(small_server: HeadraceProcess | KafkaPeer, target: str) -> Iterator[Restarted]:
    restarted = Restarted(small_server, target)
    yield restarted
    restarted.world.close()


def half_done(world: World) -> tuple[Topic, Group]:
    """Return a group without members that has acknowledged some of twenty records, released some,
    and holds the others.
    """
    topic = world.topic(records=20)
    group = world.earliest_group()
    member = group.join(topic)
    assert member.fetch() == "0-19 c1"
    for step in ("3-5 accept", "7 reject", "12-14 release"):
        assert member.ack(step) == OK
    member.leave()  # which does not end the session
    assert group.lag(topic) == 16
    return topic, group


def deliveries(member: Member) -> dict[int, int]:
    """Return everything that can be acquired, as offset → delivery count."""
    counts: dict[int, int] = {}
    while runs := member.fetch(wait_ms=BRIEFLY_MS):
        for run in runs.split(", "):
            offsets, count = run.split(" c")
            first, last = offsets.split("-")
            counts |= dict.fromkeys(range(int(first), int(last) + 1), int(count))
    return counts


@pytest.mark.parametrize("cleanly", [True, False])
def test_what_is_not_acknowledged_comes_again(broker: Restarted, cleanly: bool) -> None:
    """A broker that stops releases acquired records. One that is killed forgets who held them, and
    does not count that delivery.
    """
    topic, group = half_done(broker.world)
    world = broker.again(cleanly=cleanly)
    group, topic = Group(world, group.id), Topic(world, topic.name, topic.id)
    assert group.listed == ("Empty", "share", "share")
    assert group.lag(topic) == 16
    member = group.join(topic)
    held = [0, 1, 2, 6, 8, 9, 10, 11, *range(15, 20)]
    released = [12, 13, 14]
    assert deliveries(member) == {
        **dict.fromkeys(held, 2 if cleanly else 1),
        **dict.fromkeys(released, 2),
    }
    assert member.ack("0-2 accept") == OK
    assert group.lag(topic) == 13
    member.close_session()
    member.leave()


@pytest.mark.parametrize("cleanly", [True, False])
def test_groups_are_found_again(broker: Restarted, cleanly: bool) -> None:
    world = broker.world
    topic = world.topic(partitions=3)
    classic, share, altered, emptied = ClassicGroup(world), *(world.group() for _ in range(3))
    member = classic.join(subscription(topic.name))
    assert member.commit(topic, {0: 5}) == {0: OK}
    sharing = share.join(topic)
    assert altered.alter(topic.name, {0: 3, 2: 4}) == {0: OK, 2: OK}
    assert emptied.alter(topic.name, {0: 3}) == {0: OK}
    assert emptied.delete_offsets(topic.name) == {topic.name: OK}

    def picture() -> list[object]:
        return [
            [classic.listed, classic.described(), classic.committed],
            [share.listed, share.described],
            [altered.listed, altered.topics_with_offsets],
            [emptied.listed, emptied.topics_with_offsets],
        ]

    before = picture()
    world = broker.again(cleanly=cleanly)
    for group in (classic, share, altered, emptied):
        group.world = world
    assert picture() == before
    again(member, world)
    assert (member.heartbeat(), member.sync()) == (OK, OK)
    assert member.assignment == b"everything"
    sharing.world, sharing.connection = world, world.connect()
    beat = sharing.heartbeat()
    assert (beat.error, beat.epoch, beat.assignment) == (OK, sharing.epoch, None)
    sharing.leave()
    member.leave()


def again(member: ClassicMember, world: World) -> ClassicMember:
    """Return the same member on a connection to the restarted broker."""
    member.group.world, member.connection = world, world.connect()
    return member


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_rebalance_that_a_restart_interrupts(broker: Restarted, cleanly: bool) -> None:
    group = ClassicGroup(broker.world)
    old, new = group.member(), group.member()
    assert old.join() == OK
    assert old.sync({old.id: b"all"}) == OK
    new.introduce()
    wait_until(lambda: old.heartbeat() == "REBALANCE_IN_PROGRESS", PATIENCE_S, "the rebalance")
    world = broker.again(cleanly=cleanly)
    again(old, world), again(new, world)
    # The last generation goes on; who was about to join is a stranger, and begins anew.
    wait_until(lambda: old.heartbeat() == OK, PATIENCE_S, "the coordinator")
    assert old.sync() == OK
    assert old.assignment == b"all"
    assert new.join_at_once() == "UNKNOWN_MEMBER_ID"
    new.id = ""
    new.introduce()
    wait_until(lambda: old.heartbeat() == "REBALANCE_IN_PROGRESS", PATIENCE_S, "the rebalance")
    old.send_join()
    assert (old.joined(), new.joined()) == (OK, OK)
    assert (old.generation, new.generation) == (2, 2)


@pytest.mark.slow
def test_ten_thousand_groups_with_one_offset_each(broker: Restarted) -> None:
    """All groups are there before and after the restart, listed at once or asked one by one."""
    world, prefix = broker.world, unique("many")
    topic, count = world.topic(), 10_000
    offsets = {f"{prefix}-{number}": number for number in range(count)}

    def commit(wanted: Mapping[str, int]) -> set[str]:
        """Commit for groups; return those whose coordinator was not available yet."""
        sent = []
        for group_id, offset in wanted.items():
            partition = {"partition_index": 0, "committed_offset": offset}
            sent.append(
                world.connection.send_message(
                    8,
                    9,
                    group_id=group_id,
                    member_id="",
                    topics=[{"name": topic.name, "partitions": [partition]}],
                )
            )
        codes = [
            world.connection.receive_message(one).topics[0].partitions[0].error_code for one in sent
        ]
        assert {ErrorCode(code) for code in codes} <= {ErrorCode.NONE, *COORDINATOR_IS_COMING}
        return {group_id for group_id, code in zip(wanted, codes, strict=True) if code}

    def found() -> dict[str, int]:
        asked = [
            {"group_id": group_id, "topics": None, "member_id": None, "member_epoch": -1}
            for group_id in offsets
        ]
        groups = broker.world.ask(9, 9, groups=asked).groups
        return {
            one.group_id: one.topics[0].partitions[0].committed_offset
            for one in groups
            if one.topics
        }

    ids = sorted(offsets)
    for start in range(0, count, 500):  # as many as may wait in the sockets
        late = ids[start : start + 500]
        while late := sorted(commit({one: offsets[one] for one in late})):
            pass
    for cleanly in (None, False):
        if cleanly is not None:
            broker.again(cleanly=cleanly)
        wait_until(lambda: found() == offsets, PATIENCE_S, "the offsets of all groups")
        listed = broker.world.groups(states=["Empty"], types=["classic"])
        assert {one for one in listed if one.startswith(prefix)} == offsets.keys()
