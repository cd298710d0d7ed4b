"""Random producers and readers of transactions, with Kafka and headrace at once.

Transactions time out only on brokers that look for them more often than every ten seconds.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import crc32c
import pytest

from tests.conformance.producers import describe_transactions
from tests.conformance.two_brokers import Conversation, Side, TopicId, codes_in
from tests.conformance.world import OK, PATIENCE_S, World
from tests.support import RUN_SEED, unique, wait_until
from tests.wire_client import batch, with_byte_changed

pytestmark = pytest.mark.kafka

STEPS = 250
ROUNDS = 5
PARTITIONS = 3
NO_ID, TIMEOUT_MS, SHORT_MS = "", 60_000, 300
INTERNAL = "__consumer_offsets"
CONFIGS: list[dict[str, str]] = [
    {},
    {},
    {},
    {"cleanup_policy": "compact", "min_compaction_lag_ms": "1000000000"},
    {"message_timestamp_type": "LogAppendTime"},
    {"max_message_bytes": "150"},
]
BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "of 30 bytes": lambda data: data[:30],
    "torn": lambda data: data[:-3],
    "twice": lambda data: data * 2,
    "of a wrong checksum": lambda data: with_byte_changed(data, len(data) - 2),
    "of magic 1": lambda data: data[:16] + b"\1" + data[17:],
    "of magic 3": lambda data: data[:16] + b"\3" + data[17:],
    "of offset 5": lambda data: struct.pack(">q", 5) + data[8:],
    "of another count": lambda data: _with_field(data, 57, ">i", 7),
    "of another last offset": lambda data: _with_field(data, 23, ">i", 7),
    "without records": lambda data: _with_field(_with_field(data, 57, ">i", 0), 23, ">i", -1),
    "with the log's time": lambda data: _with_field(data, 21, ">h", data[22] | 0x08),
}
"""Damage to a batch, by name."""
MAX_SEQUENCE = 2**31 - 1


class Who(NamedTuple):
    """A producer id by its number, and an epoch."""

    number: int
    epoch: int

    @property
    def fields(self) -> dict[str, Any]:
        return {"producer_id": self.id, "producer_epoch": self.epoch}

    def id(self, side: Side) -> int:
        return side.producer_id(self.number)


NOBODY = Who(-1, -1)
Place = tuple[str, int]


class Producers(Conversation[Side]):
    """Producers with three transactional ids and some without one, who write to two topics, and
    their readers.
    """

    def __init__(self, worlds: list[World], seed: int, *, times_out: bool) -> None:
        super().__init__([Side(world) for world in worlds], seed)
        self.begin_ms = int(time.time() * 1000) - 3_600_000
        self.ids = [unique("transactions") for _ in range(3)]
        self.groups = [unique("group") for _ in range(2)]
        self.timeouts = (
            [TIMEOUT_MS] * 15 + [0, -1, 900_000, 900_001] + [SHORT_MS] * (2 if times_out else 0)
        )
        self.latest: dict[str | None, Who] = dict.fromkeys(self.ids, NOBODY)
        self.known: list[Who] = [NOBODY]
        self.written: dict[tuple[int, Place], list[tuple[int, int]]] = {}
        """Epoch and first sequence of each batch of a producer."""
        self.tainted: set[tuple[int, Place]] = set()
        """Producers whose state Kafka has wrong after a refused batch (docs/differences.md)."""
        self.refused: set[tuple[int, Place]] = set()
        self.trimmed: set[Place] = set()
        """Partitions of which Kafka may name a deleted record as the latest, and a last stable
        offset before the log's start.
        """
        self.there: set[str] = set()
        """Groups that have committed or joined."""
        self.members: dict[str, int] = {}
        """Generation of the member of each group that has one."""
        self.short: set[str] = set()
        self.topics: list[str] = []
        self.gone: set[str] = set()
        self.end = 10
        for _ in range(2):
            self.make_topic()
        for side in self.sides:
            for transactional_id in self.ids:
                assert side.world.find_coordinator(transactional_id, 1)[0] == OK
            for group_id in self.groups:
                assert side.world.find_coordinator(group_id, 0)[0] == OK

    # --- choices ---

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def an_id(self) -> str:
        return (
            NO_ID
            if self.chance(0.02)
            else unique("nobody")
            if self.chance(0.02)
            else self.rng.choice(self.ids)
        )

    def who(self, transactional_id: str | None) -> Who:
        """Return a producer: mostly the one that may write under a transactional id."""
        latest = self.latest.get(transactional_id, NOBODY)
        if latest == NOBODY and self.chance(0.8):
            latest = self.rng.choice(self.known)
        if self.chance(0.75):
            return latest
        number, epoch = self.rng.choice([latest, *self.known])
        if self.chance(0.3):
            number, epoch = latest.number, latest.epoch + self.rng.choice([-2, -1, -1, 1, 2])
        return Who(1000 if self.chance(0.05) else number, epoch)

    def places(self, most: int = 3) -> dict[str, list[int]]:
        """Return some partitions, now and then some that do not exist."""
        found: dict[str, list[int]] = {}
        for _ in range(self.rng.randint(1, most)):
            name = (
                unique("missing")
                if self.chance(0.03)
                else INTERNAL
                if self.chance(0.02)
                else self.a_topic()
            )
            partition = (
                self.rng.choice([-1, 7]) if self.chance(0.03) else self.rng.randrange(PARTITIONS)
            )
            if partition not in found.setdefault(name, []):
                found[name].append(partition)
        return found

    def a_topic(self) -> str:
        return self.rng.choice(self.topics)

    def version(self, lowest: int, highest: int) -> int:
        return highest if self.chance(0.35) else self.rng.randint(lowest, highest)

    # --- topics ---

    def make_topic(self) -> None:
        name, configs = unique("topic"), self.rng.choice(CONFIGS)
        self.topics.append(name)
        self.said.append(f"new topic {name} {configs}")
        for side in self.sides:
            side.make(name, PARTITIONS, **configs)

    def grow_topic(self) -> None:
        name, count = self.a_topic(), PARTITIONS + 1
        self.ask(
            f"grow {name}",
            37,
            3,
            topics=[{"name": name, "count": count, "assignments": None}],
            timeout=30_000,
        )

    def replace_topic(self) -> None:
        gone = self.topics.pop(self.rng.randrange(2))
        self.gone.add(gone)
        for side in self.sides:
            side.topics[gone].delete()
        self.said.append(f"{gone} is deleted")
        self.make_topic()

    # --- producers ---

    def init(self) -> None:
        transactional_id = None if self.chance(0.15) else self.an_id()
        expected = NOBODY if self.chance(0.6) else self.who(transactional_id)
        if self.chance(0.03):
            expected = Who(expected.number, -1) if self.chance(0.5) else Who(-1, 0)
        timeout_ms = self.rng.choice(self.timeouts)
        version = self.version(0, 5)
        answer = self.ask(
            (f"init {transactional_id} {expected} {timeout_ms}"),
            22,
            version,
            transactional_id=transactional_id,
            transaction_timeout=timeout_ms,
            **expected.fields,
        )
        if not answer["error_code"]:
            who = Who(answer["producer_id"], answer["producer_epoch"])
            self.known.append(who)
            if transactional_id is not None:
                self.note(transactional_id, who)
                (self.short.add if timeout_ms == SHORT_MS else self.short.discard)(transactional_id)

    def abort_all(self) -> None:
        """Abort the open transactions, as they would hide later records of the shared brokers from
        read_committed readers.
        """
        for transactional_id in self.ids:
            self.ask(
                f"end with init {transactional_id}",
                22,
                4,
                transactional_id=transactional_id,
                transaction_timeout=TIMEOUT_MS,
                **NOBODY.fields,
            )

    def note(self, transactional_id: str, who: Who) -> None:
        if transactional_id in self.ids and self.latest[transactional_id] != who:
            self.latest[transactional_id] = who
            self.known.append(who)

    def add_partitions(self) -> None:
        version = self.version(0, 5)
        transactions: list[dict[str, Any]] = []
        text = []
        for transactional_id in self.rng.sample(self.ids, self.rng.choice([1, 1, 1, 2, 3])):
            transactional_id = unique("nobody") if self.chance(0.05) else transactional_id
            who, places = self.who(transactional_id), self.places()
            transactions.append(
                {
                    "transactional_id": transactional_id,
                    "verify_only": version >= 4 and self.chance(0.4),
                    **who.fields,
                    "topics": [
                        {"name": name, "partitions": partitions}
                        for name, partitions in places.items()
                    ],
                }
            )
            text.append((transactional_id, who, places, transactions[-1]["verify_only"]))
        first = {
            f"v3_and_below_{name}": value
            for name, value in transactions[0].items()
            if name != "verify_only"
        }
        self.ask(f"add partitions {text}", 24, version, transactions=transactions, **first)

    def add_group(self) -> None:
        transactional_id = self.an_id()
        who, group_id = (
            self.who(transactional_id),
            self.rng.choice([*self.groups, *self.groups, ""]),
        )
        self.ask(
            (f"add {group_id} {transactional_id} {who}"),
            25,
            self.version(0, 4),
            transactional_id=transactional_id,
            group_id=group_id,
            **who.fields,
        )

    def commit_offsets(self) -> None:
        transactional_id = self.an_id()
        who = self.who(transactional_id)
        group_id = "" if self.chance(0.03) else self.rng.choice(self.groups)
        generation_id, member_id = self.a_member(group_id)
        instance_id = "i" if self.chance(0.03) else None
        topics = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": self.rng.randrange(-1, 30),
                        "committed_leader_epoch": self.rng.choice([-1, 0, 3]),
                        "committed_metadata": self.rng.choice(["", "", "said", None, "x" * 5000]),
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in self.places().items()
        ]
        said = [
            (
                t["name"],
                [
                    (
                        p["partition_index"],
                        p["committed_offset"],
                        len(p["committed_metadata"] or ""),
                    )
                    for p in t["partitions"]
                ],
            )
            for t in topics
        ]
        answer = self.ask(
            (
                f"commit {group_id} {transactional_id} {who} "
                f"{(generation_id, bool(member_id), instance_id)} {said}"
            ),
            28,
            self.version(0, 5),
            transactional_id=transactional_id,
            group_id=group_id,
            **who.fields,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=topics,
        )
        if 0 in codes_in(answer):
            self.there.add(group_id)

    def a_member(self, group_id: str) -> tuple[int, Any]:
        """Return a generation and a member id, mostly those of the group's member."""
        if self.chance(0.15):
            return self.rng.choice([(-1, "m"), (3, ""), (0, "m"), (-1, "")])
        if group_id not in self.members:
            return -1, ""
        wrong = self.chance(0.1)
        return self.members[group_id] + wrong, lambda side: side.members.get(group_id, "")

    def join(self) -> None:
        """Have a member join a group that has none, or leave it."""
        group_id = self.rng.choice(self.groups)
        if group_id in self.members:
            del self.members[group_id]
            self.ask(
                f"leave {group_id}",
                13,
                1,
                group_id=group_id,
                member_id=lambda side: side.members.get(group_id),
            )
            return

        def joined(side: Side) -> Any:
            answer = side.answer(
                11,
                3,
                group_id=group_id,
                session_timeout=60_000,
                rebalance_timeout=60_000,
                member_id="",
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
            )
            side.members[group_id] = answer.member_id
            return int(answer.error_code), answer.generation_id

        code, self.members[group_id] = self.both(f"join {group_id}", joined)
        assert not code
        self.there.add(group_id)
        if self.chance(0.8):
            self.ask(
                f"sync {group_id}",
                14,
                3,
                group_id=group_id,
                generation_id=self.members[group_id],
                member_id=lambda side: side.members[group_id],
            )

    def forget_offsets(self) -> None:
        """Delete a group or some of its offsets, unless a refused commit may have left a group
        behind in Kafka.
        """
        group_id, name = self.rng.choice(self.groups), self.a_topic()
        if group_id not in self.there:
            return
        if self.chance(0.3):
            (result,) = self.ask(f"delete group {group_id}", 42, 2, groups_names=[group_id])[
                "results"
            ]
            self.there -= {group_id} if not result["error_code"] else set()
        else:
            partitions = [
                {"partition_index": index} for index in range(PARTITIONS) if self.chance(0.5)
            ]
            self.ask(
                f"forget offsets {group_id} {name} {partitions}",
                47,
                0,
                group_id=group_id,
                topics=[{"name": name, "partitions": partitions}],
            )

    def plain_commit(self) -> None:
        """Send an OffsetCommit outside of a transaction."""
        group_id, name = self.rng.choice(self.groups), self.a_topic()
        partition = {
            "partition_index": self.rng.randrange(PARTITIONS),
            "committed_offset": self.rng.randrange(30),
        }
        self.ask(
            (f"plain commit {group_id} {name} {partition}"),
            8,
            9,
            group_id=group_id,
            member_id="",
            topics=[{"name": name, "partitions": [partition]}],
        )

    def a_sequence(self, who: Who, place: Place) -> int:
        """Return a sequence: mostly the next one, and always where Kafka remembers the sequence of
        a refused batch.
        """
        written = [
            first
            for epoch, first in self.written.get((who.number, place), [])
            if epoch == who.epoch
        ]
        following = written[-1] if written else 0
        if (who.number, place) in self.refused or self.chance(0.8):
            return following
        after = [(following + more) & MAX_SEQUENCE for more in (1, 3)]
        return self.rng.choice([0, 1, *after, -1, MAX_SEQUENCE, *written, *written, *written])

    def produce(self) -> None:
        """Produce one batch to each of some partitions."""
        transactional_id = None if self.chance(0.25) else self.an_id()
        version = 12 + self.chance(0.5) if self.chance(0.4) else self.rng.randint(3, 13)
        who, acks = self.who(transactional_id), self.rng.choice([-1] * 8 + [0, 1, 1, 2])
        transactional = (transactional_id is not None) != self.chance(0.05)
        batches: dict[Place, tuple[Who, int, int]] = {}
        topics: list[dict[str, Any]] = []
        text = []
        for name, partitions in self.places().items():
            parts: list[dict[str, Any]] = []
            for partition in partitions:
                place = name, partition
                writer = self.who(transactional_id) if self.chance(0.01) else who
                kind = transactional != self.chance(0.02)
                if not kind and writer.epoch > self.newest_epoch(writer.number):
                    continue  # with it in the log, Kafka cannot write the marker of a transaction
                if (writer.number, place) in (
                    self.tainted if kind else self.tainted | self.refused
                ):
                    continue
                sequence, count, control = (
                    self.a_sequence(writer, place),
                    self.rng.randint(1, 3),
                    self.chance(0.02),
                )
                wrong = self.rng.choice(list(BROKEN)) if self.chance(0.02) else ""
                batches[place] = writer, sequence, count
                text.append(
                    (
                        place,
                        writer,
                        sequence,
                        count,
                        "transactional" * kind + " control" * control,
                        wrong,
                    )
                )
                parts.append(
                    {
                        "index": partition,
                        "records": self.a_batch(writer, sequence, count, kind, control, wrong),
                    }
                )
            topics.append({"name": name, "topic_id": TopicId(name), "partition_data": parts})
        if not batches:
            return
        asked = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": 30_000,
            "topic_data": topics,
        }
        what = f"produce {transactional_id} acks {acks} {text}"
        if acks == 0:
            self.both(
                f"{what} [0 v{version}]", lambda side: side.send_unacknowledged(0, version, **asked)
            )
            self.tainted |= {
                (writer.number, place)
                for place, (writer, _, _) in batches.items()
                if writer.number >= 0
            }
            return
        answer = self.ask(what, 0, version, **asked)
        for topic in answer["responses"]:
            for one in topic["partition_responses"]:
                place = topic.get("name", topic.get("topic_id")), one["index"]
                self.wrote(place, *batches.get(place, (NOBODY, 0, 0)), one)

    def newest_epoch(self, number: int) -> int:
        return max([one.epoch for one in self.known if one.number == number], default=-1)

    def a_batch(
        self, who: Who, sequence: int, count: int, kind: bool, control: bool, wrong: str
    ) -> Callable[[Side], bytes]:
        ahead_ms = 90_000_000 if self.chance(0.01) else self.rng.randrange(1000)
        written_ms, key = self.begin_ms + ahead_ms, None if self.chance(0.3) else b"k"
        damage = BROKEN.get(wrong, lambda data: data)
        return lambda side: damage(
            batch(
                [b"v" * 20] * count,
                producer_id=who.id(side),
                producer_epoch=who.epoch,
                base_sequence=sequence,
                transactional=kind,
                control=control,
                timestamp_ms=written_ms,
                key=key,
            )
        )

    def wrote(self, place: Place, who: Who, sequence: int, count: int, answer: Any) -> None:
        if not answer["error_code"]:
            self.refused.discard((who.number, place))
            self.end = max(self.end, answer["base_offset"] + count)
            written = self.written.setdefault((who.number, place), [(who.epoch, sequence)])
            if written[-1] == (who.epoch, sequence):
                written.append((who.epoch, (sequence + count) & MAX_SEQUENCE))
            elif written[-1][0] == who.epoch and who.number >= 0:
                self.tainted.add((who.number, place))  # sent again
            elif written[-1][0] != who.epoch:
                after = (sequence + count) & MAX_SEQUENCE
                written += [(who.epoch, sequence), (who.epoch, after)]
        elif who.number >= 0:
            self.refused.add((who.number, place))
            following = [
                first
                for epoch, first in self.written.get((who.number, place), [])
                if epoch == who.epoch
            ]
            if who.epoch != self.newest_epoch(who.number) or sequence != (following or [0])[-1]:
                self.tainted.add((who.number, place))

    def finish(self) -> None:
        transactional_id = self.an_id()
        who, version, commit = self.who(transactional_id), self.version(0, 5), self.chance(0.6)
        for _ in range(self.rng.choice([1, 1, 2])):
            answer = self.ask(
                (f"end {transactional_id} {who} {commit}"),
                26,
                version,
                transactional_id=transactional_id,
                **who.fields,
                committed=commit,
            )
            self.states()
            commit = commit != self.chance(0.2)
        if version >= 5 and not answer["error_code"] and self.chance(0.9):
            self.note(transactional_id, Who(answer["producer_id"], answer["producer_epoch"]))

    # --- what is seen ---

    def states(self) -> None:
        """Compare the states of all transactional ids once no transaction is being ended."""

        def described(side: Side) -> Any:
            told = describe_transactions(side.world, *self.ids)
            return [
                (
                    one.error_code,
                    one.state,
                    one.timeout_ms,
                    one.start_ms > 0,
                    one.producer_epoch,
                    one.producer_id if one.error_code else side.number(one.producer_id),
                    {
                        name: partitions
                        for name, partitions in one.topics.items()
                        if name not in self.gone
                    },
                )
                for one in told
            ]

        for transactional_id in sorted(self.short):
            wait_until(
                lambda one=transactional_id: (
                    not any(
                        describe_transactions(side.world, one)[0].state == "Ongoing"
                        for side in self.sides
                    )
                ),
                PATIENCE_S,
                "a transaction to time out",
            )
        self.both("  states", described)

    def list(self) -> None:
        states = self.rng.sample(
            ["Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "Dead", "Nonsense", ""],
            self.rng.choice([0, 0, 1, 2]),
        )
        producers = [
            one.id
            for one in self.rng.sample(
                self.known, min(len(self.known), self.rng.choice([0, 0, 1, 2]))
            )
        ]
        pattern, duration_ms = (
            self.rng.choice([None, "", self.ids[0], self.ids[1] + "|x", ".*", "(", "[a-", "a"]),
            -1,
        )
        if self.chance(0.2):
            duration_ms = self.rng.choice([-5, 3_600_000])
        version = self.version(0, 2)

        def ours(side: Side) -> Any:
            answer = side.answer(
                66,
                version,
                state_filters=states,
                producer_id_filters=producers,
                duration_filter=duration_ms,
                transactional_id_pattern=pattern,
            )
            found = [one for one in answer.transaction_states if one.transactional_id in self.ids]
            return (
                int(answer.error_code),
                side.plain(answer.unknown_state_filters),
                side.plain(found),
            )

        self.both(f"list {states} {len(producers)} {duration_ms} {pattern} [66 v{version}]", ours)

    def producers(self) -> None:
        asked = [
            {"name": name, "partition_indexes": partitions}
            for name, partitions in self.places().items()
            if name != INTERNAL
        ]
        self.ask(f"producers {asked}", 61, 0, topics=asked)

    def fetch(self) -> None:
        places = self.places(self.rng.choice([1, 1, 3]))
        alone = sum(map(len, places.values())) == 1
        sizes = [0, 1, 100, 200, 400, 1 << 20] if alone else [1 << 20]
        asked = [
            {
                "topic": name,
                "topic_id": TopicId(name),
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": self.rng.randrange(-1, self.end + 2),
                        "current_leader_epoch": self.rng.choice([-1, -1, -1, 0, 1]),
                        "last_fetched_epoch": self.rng.choice([-1, -1, 0]),
                        "partition_max_bytes": self.rng.choice(sizes),
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in places.items()
            if name != INTERNAL
        ]
        version, committed = self.version(5 if self.trimmed else 4, 18), self.chance(0.65)
        fields = {
            "min_bytes": self.rng.choice([0, 1]),
            "max_bytes": self.rng.choice(sizes),
            "isolation_level": int(committed),
        }

        def fetched(side: Side) -> Any:
            answer = side.ask(1, version, topics=asked, **fields)
            told = [
                (topic.get("topic", topic.get("topic_id")), _without_needless(one))
                for topic in answer.pop("responses")
                for one in topic["partitions"]
            ]
            return answer, sorted(told, key=repr)

        text = [
            (
                t["topic"],
                [
                    (p["partition"], p["fetch_offset"], p["partition_max_bytes"])
                    for p in t["partitions"]
                ],
            )
            for t in asked
        ]
        self.both(
            f"fetch {text} committed {committed} max {fields['max_bytes']} [1 v{version}]", fetched
        )

    def a_timestamp(self, place: Place) -> int:
        end, latest = (-2, -2) if place in self.trimmed else (-1, -3)
        special = [end, end, -2, latest, latest, self.rng.choice([-7, -6, -5, -4, -2])]
        return self.rng.choice(
            [*special, self.begin_ms + self.rng.randrange(1000), self.begin_ms + 3_700_000_000]
        )

    def list_offsets(self) -> None:
        asked = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": partition,
                        "current_leader_epoch": self.rng.choice([-1, -1, -1, 0, 1]),
                        "timestamp": self.a_timestamp((name, partition)),
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in self.places().items()
            if name != INTERNAL
        ]
        version, committed = self.version(1, 11), self.chance(0.6)

        def told(side: Side) -> Any:
            answer = side.ask(
                2,
                version,
                topics=asked,
                isolation_level=int(committed),
                replica_id=-1,
                timeout=10_000,
            )
            for topic in answer["topics"]:
                for one in topic["partitions"]:
                    one["timestamp"] = (
                        "now" if one["timestamp"] > self.begin_ms + 1000 else one["timestamp"]
                    )
            return answer

        self.both(f"list offsets {asked} committed {committed} [2 v{version}]", told)

    def fetch_offsets(self) -> None:
        version = self.version(1, 10)
        every = version >= 2 and self.chance(0.4)
        topics = (
            None
            if every
            else [
                {"name": name, "topic_id": TopicId(name), "partition_indexes": partitions}
                for name, partitions in self.places().items()
                if name != INTERNAL
            ]
        )
        groups = [
            {"group_id": one, "member_id": None, "member_epoch": -1, "topics": topics}
            for one in self.groups
        ]
        group_id, stable = self.rng.choice(self.groups), self.chance(0.7)

        def told(side: Side) -> Any:
            answer = side.ask(
                9, version, group_id=group_id, topics=topics, groups=groups, require_stable=stable
            )
            for one in answer.get("groups", [answer]):
                one["topics"] = [
                    {**topic, "partitions": topic["partitions"]}
                    for topic in one["topics"]
                    if (topic["name"] if "name" in topic else topic["topic_id"]) not in self.gone
                ]
            return answer

        self.both(f"offsets {group_id} {topics} stable {stable} [9 v{version}]", told)

    def delete_records(self) -> None:
        asked = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": partition,
                        "offset": self.rng.choice(
                            [-2, -1, self.rng.randrange(self.end + 2), self.rng.randrange(5)]
                        ),
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in self.places(1).items()
            if name != INTERNAL
        ]
        self.trimmed |= {
            (topic["name"], one["partition_index"])
            for topic in asked
            for one in topic["partitions"]
        }
        self.ask(f"delete records {asked}", 21, self.version(0, 2), topics=asked, timeout=10_000)

    def leader_epochs(self) -> None:
        asked = [
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": self.rng.choice([-1, 0, 1]),
                        "leader_epoch": self.rng.choice([-1, 0, 0, 1]),
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in self.places().items()
            if name != INTERNAL
        ]
        self.ask(f"leader epochs {asked}", 23, self.version(2, 4), topics=asked, replica_id=-1)

    # --- one step ---

    def go_on(self) -> None:
        dice = self.rng.random()
        changes = [
            (self.init, 0.10),
            (self.add_partitions, 0.12),
            (self.add_group, 0.04),
            (self.commit_offsets, 0.08),
            (self.produce, 0.34),
            (self.finish, 0.12),
            (self.plain_commit, 0.02),
            (self.join, 0.015),
            (self.forget_offsets, 0.015),
        ]
        if dice < 0.6:
            (step,) = self.rng.choices(
                [one for one, _ in changes], [weight for _, weight in changes]
            )
            step()
            self.states()
        elif dice < 0.99:
            self.rng.choice(
                [
                    self.fetch,
                    self.fetch,
                    self.fetch,
                    self.list_offsets,
                    self.list,
                    self.producers,
                    self.producers,
                    self.fetch_offsets,
                    self.leader_epochs,
                ]
            )()
            if self.chance(0.08):
                self.delete_records()
        elif self.chance(0.6):
            self.replace_topic()
        else:
            self.grow_topic()


def _with_field(data: bytes, position: int, layout: str, value: int) -> bytes:
    """Return a batch with one field changed and its checksum corrected."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c.crc32c(bytes(changed[21:])))
    return bytes(changed)


def _without_needless(partition: dict[str, Any]) -> dict[str, Any]:
    """Return a partition's answer without differences that readers do not notice: aborted
    transactions beyond the records, and a last stable offset before the log's start.
    """
    aborted, records = partition["aborted_transactions"], partition["records"]
    if aborted:
        end = int(records[-1].split(" ")[0].split("-")[1]) if records else -1
        aborted = [one for one in aborted if one["first_offset"] <= end]
    stable = max(partition["last_stable_offset"], partition.get("log_start_offset", -1))
    return {**partition, "aborted_transactions": aborted, "last_stable_offset": stable}


@pytest.mark.parametrize("seed", [RUN_SEED + n for n in range(ROUNDS)])
def test_both_answer_the_same(world: World, beside: World, seed: int) -> None:
    talk = Producers([world, beside], seed, times_out=False)
    for _ in range(STEPS):
        talk.go_on()
    talk.abort_all()
