"""Random lives of consumer groups (KIP-848), with Kafka and headrace at once.

Members of both protocols join, report, leave, commit and are described, and topics are created,
grown and deleted. Assignors may choose different partitions: compared is the number of each topic's
partitions, and the conversation ends where even that differs although both assignments are even.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.protocol.errors import ErrorCode
from tests.conformance.mixed_groups import Partitions, Seat, Side
from tests.conformance.two_brokers import Conversation, Differs, TopicId, codes_in
from tests.conformance.world import OK, Group, World
from tests.support import RUN_SEED, unique

pytestmark = pytest.mark.kafka

STEPS = 60
ROUNDS = 6
ANSWERED_S = 0.1
"""A request without an answer after this time waits for other members."""
LATE_S = 5.0
LISTED_S = 1.0
"""Kafka answers some requests before their effect can be seen; it is seen after this time."""


MOMENT_S = 0.6
"""A time in which nobody's timeouts end."""
SETTLED_S = 25.0
"""Kafka matches regular expressions at most every 10 s."""


class MixedGroup(Conversation[Side]):
    """The same group on both brokers."""

    def __init__(self, worlds: list[World], seed: int) -> None:
        self.group_id = unique("group")
        super().__init__([Side(world, self.group_id) for world in worlds], seed)
        rng = self.rng
        self.chosen_otherwise = False
        self.subscriptions: set[tuple[str, ...]] = set()
        for world in worlds:
            group = Group(world, self.group_id)
            assert group.configure("consumer.assignment.interval.ms", "0") == OK
        self.patience_ms, self.silence_ms = 60_000, 20_000
        self.paused_at = time.monotonic()
        run = unique("")
        self.names = [f"{letter}{run}" for letter in "ABC"]
        self.instances: dict[str, str | None] = {}
        self.members: list[str] = []
        self.classics: list[str] = []
        self.gone: list[str] = []
        self.assignor = rng.choice([None, None, "uniform"])
        self.most_topics = rng.choice([1, 1, 3])
        for name in self.names[: self.most_topics]:
            self.add_topic(name)

    def seats(self, who: str) -> list[Seat]:
        return [side.seat(who) for side in self.sides]

    def settle(self, who: str) -> None:
        """Compare the answers to a request that may have to wait for others, if they have come."""
        seats = self.seats(who)
        have = [seat.connection.has_response(ANSWERED_S) for seat in seats]
        if not any(have):
            return
        if not all(seat.connection.has_response(LATE_S) for seat in seats):
            raise self.differs(f"{who} is answered by only one: {have}")
        found = {side: side.received(who) for side in self.sides}
        leaders = {seat.leader for seat in seats}
        self.chosen_otherwise |= len(leaders) > 1  # of a classic group that has just become one
        self.both(f"{who} is answered", found.__getitem__)

    def describe(self) -> None:
        """Describe the group."""
        found = {side: side.described() for side in self.sides}
        self.subscriptions |= {
            tuple(one["subscribed_topic_names"]) for of in found.values() for one in of["members"]
        }
        self.compare_targets()
        self.both("is", found.__getitem__)

    def compare_targets(self) -> None:
        """Note whether the members are to have as many, but not the same partitions on both
        brokers.
        """
        targets = [side.targets for side in self.sides]
        loads = [
            sorted(sum(map(len, one.values())) for one in target.values()) for target in targets
        ]
        if len(self.subscriptions) > 1:  # where not all want the same there may be no even loads
            loads = [[sum(one)] for one in loads]
        self.chosen_otherwise |= targets[0] != targets[1] and loads[0] == loads[1]

    def has_parted(self) -> bool:
        """Return whether assignors have chosen differently, which excuses all later differences."""
        for side in self.sides:
            side.described()
        self.compare_targets()
        return self.chosen_otherwise

    # --- topics ---

    def some_partitions(self) -> int:
        return self.rng.choice([4, 12, 12])

    def add_topic(self, name: str) -> None:
        partitions = self.some_partitions()
        for side in self.sides:
            side.add_topic(name, partitions)
        self.said.append(f"topic {name} with {partitions}")

    def change_topics(self) -> None:
        there = self.sides[0].sizes
        missing = [name for name in self.names if name not in there]
        dice = self.rng.random()
        if missing and (dice < 0.4 or not there) and len(there) < self.most_topics:
            self.add_topic(self.rng.choice(missing))
            return
        if not there:
            return
        name = self.rng.choice(sorted(there))
        if dice < 0.75 and there[name] < 12:
            for side in self.sides:
                side.grow_topic(name, 12)
            self.said.append(f"{name} grows")
        else:
            for side in self.sides:
                side.delete_topic(name)
            self.said.append(f"{name} is deleted")

    def subscription(self, *more: list[str]) -> list[str]:
        """Return some of the topics. Nobody joins without any: Kafka may treat such a member as
        subscribed to all.
        """
        return self.rng.choice(
            [self.names, self.names, self.names[:2], self.names[:1], ["unknown"], *more]
        )

    # --- members of the consumer protocol ---

    def join(self) -> None:
        who = f"m{len(self.instances)}"
        self.instances[who] = self.rng.choice([None, None, f"i{self.rng.randrange(2)}"])
        self.members.append(who)
        self.rejoin(who)

    def rejoin(self, who: str) -> None:
        version = self.rng.choice([0, 1, 1])
        if version == 0 and who not in self.sides[0].seats and self.rng.random() < 0.3:
            for seat in self.seats(who):
                seat.id = ""  # for the coordinator to make one
        fields = {
            "instance_id": self.instances[who],
            "subscribed_topic_names": self.names,
            "rebalance_timeout": self.patience_ms,
            "server_assignor": self.assignor,
            "rack_id": self.rng.choice([None, None, "r"]),
        }
        if self.rng.random() < 0.2:
            fields["subscribed_topic_names"] = self.subscription()
        self.both(
            f"{who} joins v{version} {fields}",
            lambda side: side.beat(who, 0, {}, version, **fields),
        )

    def follow(self, who: str) -> None:
        """Send a heartbeat as clients do."""
        full = self.rng.random() < 0.1
        fields: dict[str, Any] = {"instance_id": self.instances[who]}
        if full:
            fields |= {"rebalance_timeout": self.patience_ms, "subscribed_topic_names": self.names}
        self.both(
            f"{who} follows {'in full' if full else ''}",
            lambda side: side.beat(who, side.seat(who).epoch, side.seat(who).held, **fields),
        )

    def beat(self, who: str) -> None:
        """Send any heartbeat, right or wrong."""
        rng = self.rng
        choose_epoch = rng.choice(EPOCHS)
        choose_owned = rng.choice(OWNED)
        fields: dict[str, Any] = {"instance_id": self.instances[who]}
        if rng.random() < 0.1:
            fields["instance_id"] = rng.choice([None, "i0", "i1", "unknown"])
        if rng.random() < 0.2:
            fields["subscribed_topic_names"] = self.subscription([])
        if rng.random() < 0.1:
            fields["rebalance_timeout"] = self.patience_ms
        if rng.random() < 0.05:
            fields["server_assignor"] = rng.choice(["uniform", "bogus"])
        if rng.random() < 0.1:
            fields["rack_id"] = rng.choice(["r", "s"])
        version = rng.choice([0, 1, 1])
        said = (
            f"{who} says v{version} epoch {choose_epoch.__doc__}, owned {choose_owned.__doc__}, "
            f"{fields}"
        )
        self.both(
            said,
            lambda side: side.beat(
                who,
                choose_epoch(side.seat(who)),
                choose_owned(side, side.seat(who)),
                version,
                **fields,
            ),
        )

    def leave(self, who: str) -> None:
        instance_id = self.instances[who]
        epoch = self.rng.choice([-1, -2]) if instance_id or self.rng.random() < 0.1 else -1
        if epoch == -1:
            self.members.remove(who)
            self.gone.append(who)
        self.both(
            f"{who} leaves {epoch}",
            lambda side: side.beat(who, epoch, None, instance_id=instance_id),
        )

    # --- members of the classic protocol ---

    def classic_join(self, who: str | None = None) -> None:
        rng = self.rng
        if who is None:
            who = f"c{len(self.instances)}"
            self.instances[who] = rng.choice([None, None, f"i{rng.randrange(2)}"])
            self.classics.append(who)
        version, metadata = rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9]), rng.choice([0, 1, 1])
        if self.instances[who]:
            version = max(version, 5)
        protocols = ["range"] if rng.random() < 0.95 else ["roundrobin"]
        topics = self.names if rng.random() < 0.9 else self.subscription()
        fields: dict[str, Any] = {"protocol_type": "connect"} if rng.random() < 0.03 else {}
        fields |= {"session_timeout": self.silence_ms, "rebalance_timeout": self.patience_ms}
        self.forget_old_id(who)
        self.said.append(
            f"{who} joins v{version} {self.instances[who]} {protocols} {topics} {fields} {metadata}"
        )
        self.send(
            who,
            11,
            version,
            protocols=lambda side: side.protocols(protocols, topics, metadata, side.seat(who)),
            **{"protocol_type": "consumer", "group_instance_id": self.instances[who], **fields},
        )

    def send(self, who: str, api_key: int, version: int, **fields: Any) -> None:
        """Send a request of a classic member to both sides."""
        for side in self.sides:
            side.send(who, api_key, version, **fields)
        self.settle(who)

    def forget_old_id(self, who: str) -> None:
        """Forget the member id before a join in an empty consumer group.

        When a classic member with an id joins, Kafka forgets that group without a record of it, and
        then answers sometimes from that group and sometimes as if there were none.
        """
        for side in self.sides:
            if side.listed() == ("Empty", "consumer", "consumer"):
                side.seat(who).id = ""

    def classic_sync(self, who: str) -> None:
        version, off = self.rng.choice([0, 1, 2, 3, 4, 5, 5, 5]), self.rng.choice([0] * 8 + [-1, 1])
        if self.instances[who]:
            version = max(version, 3)
        fields = {"protocol_name": "roundrobin"} if self.rng.random() < 0.05 else {}
        self.said.append(f"{who} syncs v{version} {off:+} {fields}")
        asked: dict[str, Any] = {
            "generation_id": lambda side: side.seat(who).epoch + off,
            "assignments": lambda side: side.divided(side.seat(who)),
            "group_instance_id": self.instances[who],
            "protocol_type": "consumer",
            "protocol_name": lambda side: side.seat(who).protocol,
        }
        self.send(who, 14, version, **asked | fields)

    def classic_step(self, who: str) -> None:
        rng = self.rng
        dice = rng.random()
        if dice < 0.35:
            version, off = rng.choice([0, 1, 2, 3, 4]), rng.choice([0] * 8 + [-1, 1])
            if self.instances[who]:
                version = max(version, 3)
            answer = self.both(
                f"{who} beats v{version} {off:+}",
                lambda side: side.classic_beat(
                    who, side.seat(who).epoch + off, self.instances[who], version
                ),
            )
            if answer["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS and rng.random() < 0.8:
                self.classic_join(who)
        elif dice < 0.55:
            self.classic_join(who)
        elif dice < 0.9:
            self.classic_sync(who)
        else:
            version = rng.choice([0, 1, 2, 3, 4, 5])
            leavers: list[tuple[str, str | None]] = [(who, self.instances[who])]
            if version >= 3 and rng.random() < 0.4:
                other = rng.choice([*self.instances, "unknown"])
                leavers.append((other, self.instances.get(other)))
            if version >= 3 and rng.random() < 0.2:
                leavers.append(("", rng.choice(["i0", "i1", "unknown"])))
            if any(
                seat.sent for one, _ in leavers if one in self.instances for seat in self.seats(one)
            ):
                return
            members = [
                {"member_id": self.id_of(one), "group_instance_id": instance_id}
                for one, instance_id in leavers
            ]
            self.ask(
                f"{leavers} leave",
                13,
                version,
                group_id=self.group_id,
                member_id=self.id_of(who),
                members=members,
            )
            self.classics.remove(who)
            self.gone.append(who)

    def id_of(self, who: str) -> Callable[[Side], str]:
        """Return the id of a member; an unknown name is taken as a member id."""
        return lambda side: side.seats[who].id if who in side.seats else who

    # --- offsets ---

    def commit(self, who: str) -> None:
        rng, version = self.rng, self.rng.choice([2, 5, 7, 8, 9, 9, 9, 10, 10])
        choose_epoch, off = rng.choice(EPOCHS), rng.randrange(3)
        anonymous = rng.random() < 0.1
        instance_id = self.instances[who] if rng.random() < 0.9 else "unknown"
        offset = rng.randrange(100)

        def ask(side: Side) -> Any:
            seat = side.seat(who)
            offsets: dict[str, dict[int, int]] = {}
            for held in (seat.held, seat.before):
                for name in self.names:
                    for number in held.get(name, ())[: off + 1]:
                        offsets.setdefault(name, {})[number] = offset
            offsets = {name: of for name, of in offsets.items() if name in side.topics} or {
                "unknown": {0: offset}
            }
            member_id, epoch = ("", -1) if anonymous else (seat.id or "nobody", choose_epoch(seat))
            topics = [
                {
                    "name": name,
                    "topic_id": TopicId(name),
                    "partitions": [
                        {"partition_index": n, "committed_offset": at, "committed_metadata": "x"}
                        for n, at in of.items()
                    ],
                }
                for name, of in offsets.items()
            ]
            answer = side.ask(
                8,
                version,
                group_id=self.group_id,
                member_id=member_id,
                generation_id_or_member_epoch=epoch,
                group_instance_id=instance_id,
                topics=topics,
            )
            return sorted(sorted(codes_in(topic)) for topic in answer["topics"])

        self.both(
            f"{who} commits v{version} epoch {choose_epoch.__doc__} anonymous {anonymous}", ask
        )

    def fetch(self, who: str) -> None:
        version, choose_epoch = self.rng.choice([8, 9, 9, 10, 10]), self.rng.choice(EPOCHS)
        named = self.rng.random() < 0.8
        asked = [self.rng.choice(self.names)] if self.rng.random() < 0.3 else []
        group = {
            "group_id": self.group_id,
            "topics": [
                {"name": name, "topic_id": TopicId(name), "partition_indexes": [0, 1, 99]}
                for name in asked
            ],
            "member_id": (lambda side: side.seat(who).id) if named else None,
            "member_epoch": (lambda side: choose_epoch(side.seat(who))) if named else -1,
        }
        if not asked or all(not seat.held for seat in self.seats(who)):
            what = f"{who} fetches epoch {choose_epoch.__doc__} {asked} {named}"
            self.ask(what, 9, version, groups=[group])

    # --- all ---

    def administer(self) -> None:
        dice, rng = self.rng.random(), self.rng
        if dice < 0.3:
            self.ask("described as classic", 15, rng.randrange(7), groups=[self.group_id])
        elif dice < 0.5:
            self.ask("is deleted", 42, 2, groups_names=[self.group_id])
        elif dice < 0.7:
            partitions = [{"partition_index": number} for number in (0, 1, 50)]
            topics = [
                {"name": name, "partitions": partitions}
                for name in rng.choice([self.names, ["unknown"], []])
            ]
            self.ask("offsets are deleted", 47, 0, group_id=self.group_id, topics=topics)
        else:
            version = rng.randrange(2)
            self.both(f"described v{version}", lambda side: side.described(version))

    def pause(self) -> None:
        """Wait until every member that is silent, or gives up too late, has run out of time, while
        some go on.
        """
        everyone = [
            *self.members,
            *(who for who in self.classics if not any(seat.sent for seat in self.seats(who))),
        ]
        keepers = self.rng.sample(everyone, self.rng.randint(0, len(everyone)))
        self.said.append(f"time goes by, with {keepers}")
        until = time.monotonic() + (max(self.patience_ms, self.silence_ms) + 1_500) / 1000
        while time.monotonic() < until:
            for side, who in itertools.product(self.sides, keepers):
                seat = side.seat(who)
                if who in self.members:
                    side.beat(who, seat.epoch, None, instance_id=self.instances[who])
                else:
                    side.classic_beat(who, seat.epoch, self.instances[who], 4)
            time.sleep(0.6)
        self.paused_at = time.monotonic()

    def go_on(self) -> None:
        """Take one step, and compare the group after it."""
        rng, dice = self.rng, self.rng.random()
        idle = [who for who in self.classics if not any(seat.sent for seat in self.seats(who))]
        everyone = [*self.members, *idle, *self.gone]
        if dice < 0.05:
            self.administer()
        elif dice < 0.08:
            self.change_topics()
        elif (dice < 0.13 and len(self.members) + len(self.classics) < 4) or not everyone:
            self.join()
        elif dice < 0.18 and len(self.members) + len(self.classics) < 4:
            self.classic_join()
        elif dice < 0.28 and everyone:
            self.commit(rng.choice(everyone))
        elif dice < 0.33 and everyone:
            self.fetch(rng.choice(everyone))
        elif dice < 0.38 and self.members:
            self.leave(rng.choice(self.members))
        elif dice < 0.43 and self.members:
            self.rejoin(rng.choice(self.members))
        elif dice < 0.60 and idle:
            self.classic_step(rng.choice(idle))
        elif dice < 0.85 and self.members:
            self.follow(rng.choice(self.members))
        else:
            consumers = [who for who in everyone if who.startswith("m")]
            if consumers:
                self.beat(rng.choice(consumers))
        for who in self.classics:
            if self.sides[0].seat(who).sent or self.sides[1].seat(who).sent:
                self.settle(who)
        self.both("listed", Side.listed, LISTED_S)
        self.describe()


class Impatient(MixedGroup):
    """A conversation with timeouts: steps for a moment, then a pause in which all timeouts end."""

    def __init__(self, worlds: list[World], seed: int, silence_ms: int = 6_000) -> None:
        super().__init__(worlds, seed)
        self.patience_ms, self.silence_ms = 3_000, max(3_000, silence_ms)

    def go_on(self) -> None:
        if time.monotonic() - self.paused_at > MOMENT_S:
            self.pause()
            for who in self.classics:
                if any(seat.sent for seat in self.seats(who)):
                    self.settle(who)
            self.both("listed", Side.listed, LISTED_S)
            self.describe()
        super().go_on()


class Settling(MixedGroup):
    """A conversation with regular expressions, any assignors and subscriptions, and any number of
    partitions. It compares the state that the members reach.
    """

    def __init__(self, worlds: list[World], seed: int) -> None:
        self.wanted: set[tuple[tuple[str, ...], str]] = set()
        super().__init__(worlds, seed)
        self.regexes = self.rng.random() < 0.5
        self.most_topics, self.assignor = 3, self.rng.choice([None, "uniform", "range"])

    def some_partitions(self) -> int:
        return self.rng.randint(1, 9)

    def subscribe(self, who: str) -> None:
        """Join, or change the subscription.

        Nobody changes to a regular expression: in Kafka such a member may keep a target that it is
        not subscribed to.
        """
        rng = self.rng
        joins = who not in self.sides[0].seats
        fields: dict[str, Any] = {
            "instance_id": self.instances[who],
            "server_assignor": self.assignor,
            "subscribed_topic_names": rng.choice([self.names, self.names, self.subscription()]),
            "subscribed_topic_regex": "",
        }
        if joins:
            fields["rebalance_timeout"] = self.patience_ms
            if self.regexes and rng.random() < 0.6:
                regex = rng.choice(["[AB]", "A", ".", "[BC]"]) + self.names[0][1:]
                fields |= {"subscribed_topic_names": [], "subscribed_topic_regex": regex}
        self.both(
            f"{who} subscribes {fields}",
            lambda side: side.beat(
                who, 0 if joins else side.seat(who).epoch, {} if joins else None, **fields
            )["error_code"],
        )

    def join(self) -> None:
        who = f"m{len(self.instances)}"
        self.instances[who] = self.rng.choice([None, None, who])
        self.members.append(who)
        self.subscribe(who)

    def has_parted(self) -> bool:
        return False

    def picture(self, side: Side) -> Any:
        """Return the state that the group has reached."""
        found = side.described()
        members = found["members"]
        held = [held_topics(one["assignment"]) for one in members]
        topics = {name for one in held for name in one}
        each = {name: sorted(one.get(name, 0) for one in held) for name in topics}
        wanted = {
            one["member_id"]: (tuple(one["subscribed_topic_names"]), one["subscribed_topic_regex"])
            for one in members
        }
        self.wanted |= set(wanted.values())
        same = len(self.wanted) == 1  # and always was: Kafka may go on as if it were not
        return {
            "state": found["group_state"],
            "assignor": found["assignor_name"],
            "members": wanted,
            "partitions": sorted((name, sum(of)) for name, of in each.items()),
            "loads": sorted(sum(one.values()) for one in held) if same else None,
            "runs": sorted(each.items()) if same and found["assignor_name"] == "range" else None,
            "targets": all(one["assignment"] == one["target_assignment"] for one in members),
        }

    def go_on(self) -> None:
        dice = self.rng.random()
        if not self.members or (dice < 0.35 and len(self.members) < 5):
            self.join()
        elif dice < 0.55:
            who = self.rng.choice(self.members)
            self.members.remove(who)
            self.both(
                f"{who} leaves",
                lambda side: side.beat(who, -1, None, instance_id=self.instances[who]),
            )
        elif dice < 0.75:
            self.subscribe(self.rng.choice(self.members))
        else:
            self.change_topics()
        until = time.monotonic() + SETTLED_S
        while True:
            for side, who in itertools.product(self.sides, self.members):
                side.beat(
                    who, side.seat(who).epoch, side.seat(who).held, instance_id=self.instances[who]
                )
            pictures = [self.picture(side) for side in self.sides]
            settled = all(
                one["state"] in ("Stable", "Empty") and one["targets"] for one in pictures
            )
            if (settled and pictures[0] == pictures[1]) or time.monotonic() > until:
                break
            time.sleep(0.05)
        self.both("comes to", self.picture)
        assert settled, "it never settles"


def held_topics(assignment: Any) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    return {one["topic_id"]: one["partitions"] for one in assignment["topic_partitions"]}


def current(seat: Seat) -> int:
    """now"""
    return seat.epoch


def lower(seat: Seat) -> int:
    """lower"""
    return seat.epoch - 1


def higher(seat: Seat) -> int:
    """higher"""
    return seat.epoch + 1


def previous(seat: Seat) -> int:
    """before"""
    return seat.previous_epoch


def none(seat: Seat) -> int:
    """-1"""
    return -1


EPOCHS = [current] * 6 + [lower, higher, previous, previous]


def held(side: Side, seat: Seat) -> Partitions | None:
    """held"""
    return seat.held


def held_before(side: Side, seat: Seat) -> Partitions | None:
    """held before"""
    return seat.before


def unsaid(side: Side, seat: Seat) -> Partitions | None:
    """unsaid"""
    return None


def nothing(side: Side, seat: Seat) -> Partitions | None:
    """nothing"""
    return {}


def stranger(side: Side, seat: Seat) -> Partitions | None:
    """some more"""
    return {**seat.held, "no such topic": (0, 5)}


def one_less(side: Side, seat: Seat) -> Partitions | None:
    """one less"""
    return {name: numbers[1:] for name, numbers in seat.held.items()}


def twice(side: Side, seat: Seat) -> Partitions | None:
    """more than there are"""
    return {name: (*numbers, 98, 99) for name, numbers in seat.held.items()}


OWNED = [held, held, held_before, unsaid, unsaid, nothing, stranger, one_less, twice]


def hold(talk: MixedGroup, steps: int) -> None:
    """Hold the conversation, until the assignors choose differently."""
    for _ in range(steps):
        try:
            talk.go_on()
        except Differs:
            if talk.has_parted():
                return
            raise


@pytest.mark.parametrize("seed", [RUN_SEED + n for n in range(ROUNDS)])
def test_both_answer_the_same(world: World, beside: World, seed: int) -> None:
    hold(MixedGroup([world, beside], seed), STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Settling, Impatient])
def test_both_come_to_the_same(world: World, beside: World, kind: type[MixedGroup]) -> None:
    hold(kind([world, beside], RUN_SEED), STEPS // 3)
