"""Idempotent and transactional producers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_batch import TRANSACTIONAL_BIT, build

from .actor import Actor
from .book import ABORTED, COMMITTED, COMMITTING, OPEN, UNKNOWN, Entry, Transaction, Where

if TYPE_CHECKING:
    from .world import World

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = (
    0,
    22,
    24,
    25,
    26,
    28,
)
GONE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
FATAL = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
)
"""Errors after which a transactional producer starts again: its transaction timed out."""
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]


def batch(entries: list[Entry], *, producer: tuple[int, int], sequence: int) -> bytes:
    """Return a batch of records."""
    return build(
        [(entry.key, entry.value) for entry in entries],
        timestamp_ms=entries[0].timestamp_ms,
        attributes=TRANSACTIONAL_BIT if entries[0].transaction else 0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
    )


class Writer(Actor):
    """An idempotent producer, which repeats a batch until it is answered."""

    def __init__(self, world: World, name: str, topics: list[str]) -> None:
        super().__init__(world, name)
        self._topics = topics
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Where, int] = {}
        self._sending: tuple[Where, list[Entry]] | None = None
        self._values = count()

    def act(self) -> str:
        if self.is_waiting:
            return "waits"
        if self._producer is None:
            self.ask(
                INIT_PRODUCER_ID,
                4,
                self._initialized,
                transactional_id=None,
                transaction_timeout=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            return "asks for an id"
        if self._sending is None and not self._choose():
            return "has no topic"
        assert self._sending is not None
        where, entries = self._sending
        sequence = self._sequences.get(where, 0)
        records = batch(entries, producer=self._producer, sequence=sequence)
        self.ask(
            PRODUCE,
            13,
            self._answered,
            transactional_id=None,
            acks=-1,
            timeout=30_000,
            topic_data=[
                {
                    "topic_id": where[0],
                    "partition_data": [{"index": where[1], "records": records}],
                }
            ],
        )
        return f"sends {len(entries)} to {self.world.topic_name(where)} from sequence {sequence}"

    def _choose(self) -> bool:
        world, rng = self.world, self.world.rng
        places = world.places(self._topics)
        if not places:
            return False
        where = rng.choice(places)
        first = self._sequences.get(where, 0)
        has_keys = world.topic_name(where) == "state"
        entries = []
        for i in range(rng.choice((1, 1, 2, 5))):
            value: bytes | None = b"%s-%d" % (self.name.encode(), next(self._values))
            key = rng.choice(KEYS) if has_keys else None
            if key is not None and rng.random() < 0.2:
                value = None
            entries.append(Entry(key, value, self.name, first + i, world.machine.wall_ms()))
        world.book.sending(where, entries)
        self._sending = where, entries
        return True

    def _initialized(self, answer: Any) -> None:
        if answer is None or self.failed(answer.error_code):
            return
        self._producer = answer.producer_id, answer.producer_epoch

    def _answered(self, answer: Any) -> None:
        if answer is None or self._sending is None:
            return
        where, entries = self._sending
        partition = answer.responses[0].partition_responses[0]
        gone = GONE if not self.world.exists(where) else ()
        if self.failed(partition.error_code, *gone):
            if int(partition.error_code) in GONE:
                self._sending = None
            return
        self._sending = None
        self._sequences[where] = self._sequences.get(where, 0) + len(entries)
        self.world.book.acknowledge(where, partition.base_offset, entries)
        self.world.counts["records acknowledged"] += len(entries)


Step = Callable[[], None]


class TransactionalProducer(Actor):
    """A transactional producer. Each transaction writes to some partitions, and may commit the
    number of the transaction as an offset of the producer's own group.

    :param bumps_epoch: whether it uses the transactions of KIP-890
    """

    def __init__(self, world: World, name: str, topics: list[str], *, bumps_epoch: bool) -> None:
        super().__init__(world, name)
        self.group_id = f"group of {name}"
        self._topics, self._bumps_epoch = topics, bumps_epoch
        self._producer: tuple[int, int] | None = None
        self._zombie: tuple[int, int] | None = None
        self._sequences: dict[Where, int] = {}
        self._written: dict[Where, int] = {}
        self._transaction: Transaction | None = None
        self._steps: list[tuple[str, Step]] = []
        self._numbers = count()

    @property
    def is_idle(self) -> bool:
        """True between two transactions."""
        return self._transaction is None and self._producer is not None and not self.is_waiting

    def act(self) -> str:
        if self.is_waiting:
            return "waits"
        if self._producer is None:
            self.ask(
                INIT_PRODUCER_ID,
                4,
                self._initialized,
                transactional_id=self.name,
                transaction_timeout=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            return "starts"
        if self._transaction is None:
            if self.world.is_calm:
                return "is done"
            if self._zombie is not None and self.world.rng.random() < 0.3:
                return self._return_as_zombie()
            self._begin()
        what, step = self._steps[0]
        step()
        return what

    def _return_as_zombie(self) -> str:
        """Write with an epoch that was fenced."""
        assert self._zombie is not None
        zombie, self._zombie = self._zombie, None
        where = self.world.rng.choice(self.world.places(self._topics))
        lost = Transaction(f"zombie {self.name}", -1, ABORTED)
        entry = Entry(None, b"zombie-%d-%d" % zombie, "zombie", 0, self.world.machine.wall_ms())
        entry.transaction = lost
        self.world.book.sending(where, [entry])

        def answered(answer: Any) -> None:
            if answer is not None:
                partition = answer.responses[0].partition_responses[0]
                assert partition.error_code, "a fenced producer could write"

        self._produce(where, [entry], zombie, 0, answered)
        return "writes as a zombie"

    def _initialized(self, answer: Any) -> None:
        if answer is None or self.failed(answer.error_code, ErrorCode.CONCURRENT_TRANSACTIONS):
            return
        self._producer = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def _begin(self) -> None:
        rng, world = self.world.rng, self.world
        transaction = self._transaction = Transaction(self.name, next(self._numbers))
        world.book.transactions.append(transaction)
        places = world.places(self._topics)
        chosen = sorted(rng.sample(places, rng.randint(1, min(3, len(places)))))
        steps: list[tuple[str, Step]] = []
        if not self._bumps_epoch:
            steps.append((f"adds {[p for _, p in chosen]}", lambda: self._add(chosen)))
        steps += [(f"writes to {where[1]}", self._writing(where)) for where in chosen]
        if rng.random() < 0.5:
            if not self._bumps_epoch:
                steps.append(("adds its group", self._add_group))
            steps.append((f"commits the offset {transaction.number}", self._commit_offset))
        commit = rng.random() < 0.7
        steps.append(("commits" if commit else "aborts", lambda: self._end(commit)))
        self._steps = steps

    def _done(self) -> None:
        del self._steps[0]

    def _fails(self, code: int, *expected: ErrorCode) -> bool:
        """Return whether a step failed; give the transaction up if it cannot go on."""
        if not self.failed(code, ErrorCode.CONCURRENT_TRANSACTIONS, *FATAL, *expected):
            return False
        if code in FATAL:
            self._give_up()
        return True

    def _give_up(self) -> None:
        assert self._transaction is not None
        if self._transaction.outcome == OPEN:
            self._transaction.outcome = ABORTED
        elif self._transaction.outcome == COMMITTING:
            self._transaction.outcome = UNKNOWN
        self._transaction, self._steps = None, []
        self._producer, self._zombie = None, None

    def restart(self) -> str:
        """Start the producer anew, as after a crash of its own."""
        if self.is_waiting or self._transaction is None:
            return "is not in a transaction"
        zombie = self._producer
        self._give_up()
        self._zombie = zombie
        return "begins anew"

    def _add(self, places: list[Where]) -> None:
        assert self._producer is not None
        names: dict[str, list[int]] = {}
        for where in places:
            names.setdefault(self.world.topic_name(where), []).append(where[1])

        def answered(answer: Any) -> None:
            if answer is None:
                return
            codes = {
                int(one.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            }
            if not self._fails(max(codes)):
                self._done()

        self.ask(
            ADD_PARTITIONS,
            3,
            answered,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[
                {"name": name, "partitions": partitions} for name, partitions in names.items()
            ],
        )

    def _writing(self, where: Where) -> Step:
        transaction, rng = self._transaction, self.world.rng
        assert transaction is not None
        first = self._written.get(where, 0)
        size = rng.choice((1, 2, 4))
        self._written[where] = first + size
        entries = [
            Entry(
                None,
                b"%s-%d-%d" % (self.name.encode(), transaction.number, first + i),
                self.name,
                first + i,
                self.world.machine.wall_ms(),
                transaction,
            )
            for i in range(size)
        ]

        def step() -> None:
            assert self._producer is not None
            self.world.book.sending(where, entries)
            if (where, entries[0]) not in transaction.entries:
                transaction.entries.extend((where, entry) for entry in entries)
            sequence = self._sequences.get(where, 0)

            def answered(answer: Any) -> None:
                if answer is None:
                    return
                partition = answer.responses[0].partition_responses[0]
                if self._fails(int(partition.error_code)):
                    return
                self._sequences[where] = sequence + len(entries)
                self.world.book.acknowledge(where, partition.base_offset, entries)
                self._done()

            self._produce(where, entries, self._producer, sequence, answered)

        return step

    def _produce(
        self,
        where: Where,
        entries: list[Entry],
        producer: tuple[int, int],
        sequence: int,
        answered: Callable[[Any], None],
    ) -> None:
        partitions = [
            {"index": where[1], "records": batch(entries, producer=producer, sequence=sequence)}
        ]
        topic = {"topic_id": where[0], "name": self.world.topic_name(where)}
        self.ask(
            PRODUCE,
            13 if self._bumps_epoch else 11,
            answered,
            transactional_id=self.name,
            acks=-1,
            timeout=30_000,
            topic_data=[{**topic, "partition_data": partitions}],
        )

    def _add_group(self) -> None:
        assert self._producer is not None

        def answered(answer: Any) -> None:
            if answer is not None and not self._fails(int(answer.error_code)):
                self._done()

        self.ask(
            ADD_OFFSETS,
            3,
            answered,
            transactional_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=self.group_id,
        )

    def _commit_offset(self) -> None:
        transaction = self._transaction
        assert self._producer is not None
        assert transaction is not None
        transaction.commits_offset = True

        def answered(answer: Any) -> None:
            if answer is None or self._fails(int(answer.topics[0].partitions[0].error_code)):
                return
            self._done()

        committed = {
            "partition_index": 0,
            "committed_offset": transaction.number,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        self.ask(
            TXN_OFFSET_COMMIT,
            5 if self._bumps_epoch else 3,
            answered,
            transactional_id=self.name,
            group_id=self.group_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[{"name": "orders", "partitions": [committed]}],
        )

    def _end(self, commit: bool) -> None:
        transaction = self._transaction
        assert self._producer is not None
        assert transaction is not None
        if commit:
            transaction.outcome = COMMITTING

        def answered(answer: Any) -> None:
            if answer is None or self._fails(int(answer.error_code)):
                return
            transaction.outcome = COMMITTED if commit else ABORTED
            self.world.counts["committed" if commit else "aborted"] += 1
            if self._bumps_epoch:
                self._producer = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
            self._transaction, self._steps = None, []

        self.ask(
            END_TXN,
            5 if self._bumps_epoch else 3,
            answered,
            transactional_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commit,
        )
