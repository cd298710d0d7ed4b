"""Members of classic groups in a random conversation with two brokers, from joining to leaving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.protocol.errors import ErrorCode
from tests.conformance.classic import subscription
from tests.conformance.two_brokers import Asked, Conversation, Exchange, Side
from tests.conformance.world import OK, Group, World
from tests.support import unique

PROTOCOLS = ("range", "sticky", "zigzag")
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
MINUTE_MS = 60_000


@dataclass(slots=True, eq=False)
class Who:
    """A client that is, was or will be a member of a group."""

    group: str
    instance: str | None
    protocols: list[dict[str, Any]]
    id: str = ""
    generation: int = -1
    everybody: tuple[str, ...] = ()
    waits: bool = False


class Members:
    """Two groups with members, other groups to confuse them with, and topics.

    :param hasty: rebalance and session timeouts in ms to choose from, where they are to be short
    """

    def __init__(
        self, worlds: list[World], seed: int, hasty: tuple[list[int], list[int]] | None = None
    ) -> None:
        self.prefix = unique("talk")
        self.conversation = Conversation([Side(world, self.prefix) for world in worlds], seed)
        self.rng, self.said = self.conversation.rng, self.conversation.said
        self.both = Exchange(self.conversation, self._other_leader)
        self.worlds = worlds
        self.hasty = hasty is not None
        self.rebalances, self.sessions = hasty or ([MINUTE_MS], [MINUTE_MS])
        self.leaders: dict[str, str] = {}
        self.lost: set[str] = set()
        self.pending: set[str] = set()
        self.founded: set[str] = set()
        self.grown = 4
        self.numbers = iter(range(10**6))
        self.topics = [self._topic(self.rng.randint(1, 3)) for _ in range(3)]
        self.others = [
            f"{self.prefix}-{name}" for name in ("simple", "share", "consumer", "left", "nobody")
        ]
        self.groups: list[str] = []
        self.people: list[Who] = []
        self.kinds: dict[str, str] = {}
        self._make_others()
        for _ in range(2):
            self._begin_group()

    # --- what there is ---

    def _topic(self, partitions: int, name: str | None = None) -> str:
        name = name or f"{self.prefix}-t{next(self.numbers)}"
        for side in self.conversation.sides:
            side.make(name, partitions)
        return name

    def _make_others(self) -> None:
        _, share, consumer, left, _ = self.others
        for world in self.worlds:
            world.find_coordinator("any", 1)
        for world in self.worlds:
            assert Group(world, share).alter(self.topics[0], {0: 0}) == {0: OK}
        for group in (consumer, left):
            self._consumer(group, 0)
        self._consumer(left, -1)

    def _consumer(self, group: str, epoch: int) -> None:
        self.both.ask(
            68,
            1,
            group_id=group,
            member_id=f"of-{group}",
            member_epoch=epoch,
            rebalance_timeout=MINUTE_MS,
            subscribed_topic_names=[self.topics[0]],
        )
        self.both.settle(lambda _: False)

    def _begin_group(self) -> None:
        """Begin a group that nobody has joined, in place of one that is no longer followed."""
        group = f"{self.prefix}-g{next(self.numbers)}"
        self.groups = [*self.groups, group][-2:]
        self.kinds[group] = self.rng.choice(["consumer"] * 4 + ["connect"])
        self.people = [who for who in self.people if who.group in self.groups]
        for number in range(4):
            who = Who(group, f"i{number}" if self.rng.random() < 0.35 else None, [])
            self._choose_protocols(who)
            self.people.append(who)
        if self.hasty or self.rng.random() < 0.5:
            self._found(group)

    def _found(self, group: str) -> None:
        """Have a member join and leave: Kafka keeps more of a group that never had one than
        headrace.
        """
        asked = {
            "session_timeout": MINUTE_MS,
            "rebalance_timeout": MINUTE_MS,
            "protocol_type": "consumer",
        }
        protocols = [{"name": "range", "metadata": subscription()}]

        def go(answer: Any) -> None:
            self.both.ask(13, 0, group_id=group, member_id=answer["member_id"])

        self.both.ask(11, 0, go, group_id=group, member_id="", protocols=protocols, **asked)
        for _ in range(2):
            self.both.settle(lambda asked: asked.fields.get("group_id") != group)
        self.founded.add(group)

    def _other_leader(self, asked: Asked, kafka: Any, headrace: Any) -> bool:
        """Return whether two answers differ because the leader has gone."""
        group = asked.fields.get("group_id", "")
        before = self.leaders.get(group)
        gone = (
            asked.key == 11
            and kafka["error_code"] == headrace["error_code"] == ErrorCode.NONE
            and (
                before not in (None, kafka["leader"], headrace["leader"])
                and kafka["leader"] != headrace["leader"]
            )
        )
        if gone:
            self.lost.add(group)
        return gone

    def _choose_protocols(self, who: Who) -> None:
        names = [name for name in PROTOCOLS if self.rng.random() < 0.7] or ["sticky"]
        # all in one order, so that one protocol has most votes
        if self.kinds[who.group] == "connect":
            names.reverse()
        topics = self.rng.sample(self.topics, self.rng.randint(0, 2))
        metadata = [
            subscription(*topics),
            subscription(*topics, version=0),
            subscription(self.topics[0]),
        ]
        strange = self.rng.choice([b"", b"\0"])
        who.protocols = [
            {
                "name": name,
                "metadata": strange if self.rng.random() < 0.04 else self.rng.choice(metadata),
            }
            for name in names
        ]

    # --- members ---

    def join(self, who: Who) -> None:
        if self.rng.random() < 0.2:
            self._choose_protocols(who)
        fields: dict[str, Any] = {
            "group_id": who.group,
            "member_id": who.id,
            "group_instance_id": who.instance,
            "protocol_type": self.kinds[who.group],
            "protocols": who.protocols,
            "session_timeout": self.rng.choice(self.sessions),
            "rebalance_timeout": self.rng.choice(self.rebalances),
        }
        known = any(one.generation > 0 for one in self.people if one.group == who.group)
        strange: list[dict[str, Any]] = [
            {"member_id": "nobody"},
            {"member_id": self._somebody()},
            {"group_id": ""},
            {"session_timeout": 1},
            {"session_timeout": 10**9},
            {"protocols": [{"name": "unheard", "metadata": b""}]},
            {"member_id": ""},
            {"group_instance_id": f"i{self.rng.randrange(5)}"},
            {"group_instance_id": None},
            {"reason": "because"},
            {"rebalance_timeout": -1},
            {"group_instance_id": ""},
            {"group_instance_id": "i/1"},
            *({"group_id": self.others[n]} for n in ([1] if self.hasty else [0, 1, 3])),
            *(
                [{"protocol_type": "other"}, {"protocol_type": ""}, {"protocols": []}]
                if known
                else []
            ),
        ]
        fields |= self._odd(strange)
        version = self.rng.randint(0, 9)
        # Kafka forgets an empty consumer group that a stranger wants to join
        if fields["group_id"] == self.others[3]:
            fields["member_id"] = ""
        # Kafka fails when such a member comes back with an instance id
        if fields["member_id"] in self.pending:
            fields["group_instance_id"] = None
        if self._has_request_waiting(fields["member_id"]):
            return

        def then(answer: Any) -> None:
            who.waits = False
            if answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
                self.pending.add(answer["member_id"])
            if answer["error_code"] in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                who.id = answer["member_id"]
            if answer["error_code"] == ErrorCode.NONE:
                who.generation = answer["generation_id"]
                self.leaders[who.group] = answer["leader"]
                who.everybody = tuple(one["member_id"] for one in answer["members"])
            self._note(who, answer["error_code"])

        who.waits = True
        self.both.ask(11, version, then, **fields)

    def sync(self, who: Who) -> None:
        told = (
            who.everybody
            if self.rng.random() < 0.9
            else (*who.everybody, "nobody", self._somebody())
        )
        protocol = next((one["name"] for one in who.protocols), "")
        fields: dict[str, Any] = {
            **self._as(who),
            "protocol_type": self.kinds[who.group],
            "protocol_name": protocol,
            "assignments": [
                {"member_id": one, "assignment": f"for {one} {next(self.numbers)}".encode()}
                for one in (*told, *(told[:1] if self.rng.random() < 0.1 else ()))
                if self.rng.random() < 0.95
            ],
        }
        fields |= self._odd(
            [
                {"protocol_type": None},
                {"protocol_name": None},
                {"protocol_type": "other"},
                {"protocol_name": "unheard"},
                {"protocol_type": None, "protocol_name": None},
                *self._not_quite(),
            ]
        )

        if self._has_request_waiting(fields["member_id"]):
            return

        def then(answer: Any) -> None:
            who.waits = False
            self._note(who, answer["error_code"])

        who.waits = True
        version = self.rng.randint(0, 5)
        self.both.ask(14, version, then, **fields)

    def heartbeat(self, who: Who) -> None:
        fields = {**self._as(who), **self._odd(self._not_quite())}
        version = self.rng.randint(0, 4)
        self.both.ask(12, version, lambda answer: self._note(who, answer["error_code"]), **fields)

    def leave(self, who: Who) -> None:
        leavers = [who, *self.rng.sample(self.people, self.rng.choice([0, 0, 0, 1, 2]))]
        strange = [
            {"member_id": ""},
            {"group_instance_id": None},
            {"member_id": "nobody"},
            {"group_instance_id": "i9"},
        ]
        members = [
            self._odd(
                strange,
                {"member_id": one.id, "group_instance_id": one.instance, "reason": None},
                0.2,
            )
            for one in leavers
        ]
        group = self._odd(
            [{"group_id": one} for one in (*self.others, "")], {"group_id": who.group}
        )
        waiting = {one.fields["member_id"] for one in self.both.waiting if one.key == 14}
        static = {one.instance for one in self.people if one.instance and one.id in waiting}
        members = [  # Kafka never answers the SyncGroup of a member that leaves
            one
            for one in members
            if one["member_id"] not in waiting and one["group_instance_id"] not in static
        ]
        who_id = "" if who.id in waiting else who.id
        if group["group_id"] not in self.founded and self.pending & {
            who_id,
            *(one["member_id"] for one in members),
        }:
            return
        members = members if self.rng.random() < 0.97 else []
        self.both.ask(13, self.rng.randint(0, 5), member_id=who_id, members=members, **group)

    def _as(self, who: Who) -> dict[str, Any]:
        return {
            "group_id": who.group,
            "member_id": who.id,
            "group_instance_id": who.instance,
            "generation_id": who.generation,
        }

    def _not_quite(self) -> list[dict[str, Any]]:
        """Return fields that make the request of a member wrong."""
        return [
            *({"group_id": one} for one in (*self.others, "")),
            {"member_id": "nobody"},
            {"member_id": ""},
            *({"generation_id": self.rng.randint(-1, 5)} for _ in range(3)),
            {"member_id": self._somebody()},
            {"group_instance_id": f"i{self.rng.randrange(5)}"},
            {"group_instance_id": None},
        ]

    def _odd(
        self, strange: list[dict[str, Any]], usual: Any = None, chance: float = 0.12
    ) -> dict[str, Any]:
        return {**(usual or {}), **(self.rng.choice(strange) if self.rng.random() < chance else {})}

    def _somebody(self) -> str:
        return self.rng.choice(self.people).id

    def _has_request_waiting(self, member_id: str) -> bool:
        """Return whether a request of this member waits: Kafka never answers it when the member
        sends another.
        """
        return any(
            one.key in (11, 14) and one.fields["member_id"] == member_id != ""
            for one in self.both.waiting
        )

    def _note(self, who: Who, error: int) -> None:
        if error in GONE and self.rng.random() < 0.7:
            who.id, who.generation = "", -1
