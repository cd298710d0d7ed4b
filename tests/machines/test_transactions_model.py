"""Transactional ids through thousands of random steps: one producer each, decisions that stay,
replay equal to live.

The machine under test is told what clients and time do in any order, with answers that are lost,
requests that come again, and crashes between any two records. A small model keeps who was given
which epoch, and what was decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.coordinators.clock import Clock
from headrace.coordinators.coordinators import load
from headrace.coordinators.runtime import CoordinatorRuntime
from headrace.outcome import Outcome
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.transactions import transaction as machine
from headrace.transactions.records import State, Transaction, TransactionRecord
from headrace.transactions.transaction import (
    MAX_EPOCH,
    NO_PRODUCER,
    Producer,
    TransactionCoordinator,
)
from tests.memory_log import MemoryLog
from tests.turns import Meters

IDS = ("a", "b")
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))
TIMEOUT_MS, EXPIRATION_MS, CHECK_MS = 5_000, 60_000, 10_000
CLIENT_VERSIONS = st.sampled_from([0, 2])
DECIDED = {State.PREPARE_COMMIT: True, State.PREPARE_ABORT: False}
COMPLETE = {State.COMPLETE_COMMIT: True, State.COMPLETE_ABORT: False}


@dataclass
class Client:
    """A producer as it knows itself: it does not know what others do."""

    transactional_id: str
    producer: Producer = NO_PRODUCER
    last: Callable[[], object] | None = None
    """The request whose answer was lost: it is sent again."""


@dataclass
class Known:
    """The facts that must hold for one transactional id."""

    # producer id → the highest epoch that was seen
    epochs: dict[int, int] = field(default_factory=dict)
    decided: bool | None = None


class TransactionMachine(RuleBasedStateMachine):
    """Some clients with two transactional ids."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.next_producer_id = 0
        self.disk = MemoryLog()
        self.runtime = self.fresh()
        self.clients = [Client(one) for one in IDS for _ in range(2)]
        self.known = {one: Known() for one in IDS}

    def fresh(self) -> CoordinatorRuntime[TransactionCoordinator]:
        coordinator = TransactionCoordinator(
            expiration_ms=EXPIRATION_MS, expiration_check_ms=CHECK_MS
        )
        clock = Clock(lambda: self.now_ms, lambda: self.now_ms)
        return CoordinatorRuntime(coordinator, self.disk, clock, Meters(), lambda: None)

    @property
    def coordinator(self) -> TransactionCoordinator:
        return self.runtime.coordinator

    def allocate(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    # --- how records become true ---

    def submit(self, outcome: Outcome[TransactionRecord, object]) -> object:
        """Append and replay an outcome."""
        for record in outcome.records:
            self.check(record)
        return self.runtime.write_now("", outcome)

    def check(self, record: TransactionRecord) -> None:
        """Check that a record goes back to no earlier epoch, and changes no decision."""
        known, value = self.known[record.transactional_id], record.value
        if value is None:
            assert known.decided is None, "forgotten before it was complete"
            before = self.coordinator.transactions[record.transactional_id]
            assert before.state in (State.EMPTY, *COMPLETE), "forgotten while it was open"
            self.known[record.transactional_id] = Known()
            return
        assert value.producer_epoch >= known.epochs.get(value.producer_id, 0), "an epoch goes back"
        known.epochs[value.producer_id] = value.producer_epoch
        assert 0 <= value.producer_epoch <= MAX_EPOCH
        before = self.coordinator.transactions.get(record.transactional_id)
        if before is not None and before.producer_id != value.producer_id:
            assert value.producer_epoch == 0, "a new producer id begins with an epoch that is not 0"
        if before is not None and before.state == value.state == State.ONGOING:
            assert value.start_ms == before.start_ms, "it begins anew"
        if value.state in DECIDED:
            assert known.decided in (None, DECIDED[value.state]), "a decision changes"
            known.decided = DECIDED[value.state]
        elif known.decided is not None:
            assert value.state in COMPLETE, f"{value.state.name} after a decision"
            assert COMPLETE[value.state] == known.decided, "completed another way than decided"
            known.decided = None

    def answer(self, client: Client, ask: Callable[[], object], lost: bool) -> object:
        """Answer a client. If the answer is lost, the client asks again."""
        told = ask()
        client.last = ask if lost else None
        return None if lost else told

    # --- clients ---

    def who(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.clients))

    @rule(data=st.data(), comes_back=st.booleans(), lost=st.booleans())
    def init(self, data: st.DataObject, comes_back: bool, lost: bool) -> None:
        self.come(self.who(data), comes_back, lost)

    @initialize()
    def begin(self) -> None:
        for client in self.clients[::2]:
            self.come(client, False, False)

    def come(self, client: Client, comes_back: bool, lost: bool) -> None:
        expected = client.producer if comes_back else NO_PRODUCER
        transactional_id = client.transactional_id

        def ask() -> object:
            decide = self.coordinator
            if transactional_id in decide.prepared:
                return machine.CONCURRENT_TRANSACTIONS
            before = decide.transactions.get(transactional_id)
            told = self.submit(
                decide.init_producer_id(
                    transactional_id, TIMEOUT_MS, expected, self.now_ms, self.allocate
                )
            )
            if told == NO_PRODUCER:
                assert before is not None and before.state == State.ONGOING
                assert transactional_id in decide.prepared, "what is open is not aborted"
                return machine.CONCURRENT_TRANSACTIONS
            if isinstance(told, Producer):
                assert before is None or before.state != State.ONGOING, "nor aborted first"
                # A retry may be answered with what was given before, but never with what another
                # one was given.
                others = {
                    one.producer
                    for one in self.clients
                    if one.transactional_id == transactional_id and one is not client
                }
                assert told not in others, f"{told} belongs to another producer"
            return told

        told = self.answer(client, ask, lost)
        if isinstance(told, Producer):
            client.producer = told

    @precondition(lambda self: any(one.last for one in self.clients))
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([one for one in self.clients if one.last]))
        assert client.last is not None
        told = client.last()
        client.last = None
        if isinstance(told, Producer):
            client.producer = told

    @rule(
        data=st.data(),
        partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1),
        version=CLIENT_VERSIONS,
    )
    def add(self, data: st.DataObject, partitions: set[tuple[str, int]], version: int) -> None:
        client = self.who(data)
        before = self.coordinator.transactions.get(client.transactional_id)
        told = self.submit(
            self.coordinator.add_partitions(
                client.transactional_id, client.producer, partitions, self.now_ms, version
            )
        )
        if isinstance(told, Producer):
            assert before is not None
            assert before.state not in DECIDED, "something joins a decided transaction"
            assert (before.producer_id, before.producer_epoch) == client.producer, "a zombie joins"
            self.only_one(client)
            taking_part = (
                set(before.partitions) | partitions if before.state == State.ONGOING else partitions
            )
            for one in PARTITIONS:
                refusal = self.coordinator.takes_part(client.transactional_id, client.producer, one)
                assert (refusal is None) == (one in taking_part), (
                    "another partition takes part than was added"
                )

    @rule(data=st.data(), commit=st.booleans(), version=CLIENT_VERSIONS, lost=st.booleans())
    def end(self, data: st.DataObject, commit: bool, version: int, lost: bool) -> None:
        client = self.who(data)
        producer, transactional_id = client.producer, client.transactional_id
        before = self.coordinator.transactions.get(transactional_id)

        def ask() -> object:
            if transactional_id in self.coordinator.prepared:
                return machine.CONCURRENT_TRANSACTIONS
            told = self.submit(
                self.coordinator.end(
                    transactional_id, producer, commit, self.now_ms, version, self.allocate
                )
            )
            if isinstance(told, Producer):
                if (
                    before is not None
                    and (before.producer_id, before.producer_epoch) == producer
                    and version == 2
                ):
                    assert not commit or before.state == State.ONGOING or lost, (
                        "nothing was committed"
                    )
                state = self.coordinator.transactions[transactional_id].state
                decided = DECIDED.get(state, COMPLETE.get(state))
                assert decided == commit, (
                    f"told that it ended with commit={commit}, and it is {state.name}"
                )
            return told

        told = self.answer(client, ask, lost)
        if isinstance(told, Producer):
            if before is not None and before.state == State.ONGOING:
                self.only_one(client)
            if version == 2:
                client.producer = told

    def only_one(self, client: Client) -> None:
        """Nobody else may write under the id with what they were given."""
        transactional_id = client.transactional_id
        for other in self.clients:
            if (
                other is client
                or other.transactional_id != transactional_id
                or other.producer == NO_PRODUCER
            ):
                continue
            told = self.coordinator.takes_part(transactional_id, other.producer, PARTITIONS[0])
            assert told is not None
            assert told.code in (
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ), f"{other.producer} is not fenced"

    # --- the broker ---

    @precondition(lambda self: self.coordinator.prepared)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        transactional_id = data.draw(st.sampled_from(sorted(self.coordinator.prepared)))
        self.submit(self.coordinator.complete(transactional_id, self.now_ms))

    @rule(topic=st.sampled_from(["t", "u"]))
    def delete_topic(self, topic: str) -> None:
        for _, outcome in self.coordinator.forget_partitions({topic}, ()):
            self.submit(outcome)
        assert all(
            name != topic
            for one in self.coordinator.transactions.values()
            for name, _ in one.partitions
        )

    @rule(ms=st.sampled_from([1, 1_000, 6_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        for transactional_id, outcome in self.coordinator.expire(self.now_ms, self.now_ms):
            if outcome.records[0].value is None:
                idle_ms = (
                    self.now_ms - self.coordinator.transactions[transactional_id].last_update_ms
                )
                assert idle_ms >= EXPIRATION_MS, "forgotten too early"
            self.submit(outcome)
        due = self.coordinator.next_deadline_ms()
        assert due is None or due > self.now_ms
        for one in self.coordinator.transactions.values():
            assert one.state != State.ONGOING or self.now_ms < one.start_ms + TIMEOUT_MS, (
                "it should have timed out"
            )
            idle_ms = self.now_ms - one.last_update_ms
            assert (
                one.state not in (State.EMPTY, *COMPLETE) or idle_ms < EXPIRATION_MS + CHECK_MS
            ), "never forgotten"

    @rule()
    def crash(self) -> None:
        """Start anew from the log. A client that asks again with an earlier epoch may be fenced."""
        before = dict(self.coordinator.transactions)
        self.runtime = self.fresh()
        load(self.disk, self.coordinator)
        assert self.coordinator.transactions == before

    @precondition(lambda self: any(self.coordinator.transactions.values()))
    @rule(data=st.data())
    def nearly_use_up_epochs(self, data: st.DataObject) -> None:
        """As after tens of thousands of transactions of the producer that is there."""
        found = [
            one for one, value in self.coordinator.transactions.items() if value.state in COMPLETE
        ]
        if not found:
            return
        transactional_id = data.draw(st.sampled_from(found))
        value = self.coordinator.transactions[transactional_id]
        if value.producer_epoch > MAX_EPOCH - 10:
            return
        holder = next(
            (
                one
                for one in self.clients
                if one.producer == (value.producer_id, value.producer_epoch)
            ),
            None,
        )
        if holder is None:
            return
        aged = replace(value, producer_epoch=MAX_EPOCH - 3, previous_producer_id=-1)
        self.submit(Outcome(None, (TransactionRecord(transactional_id, aged),)))
        holder.producer = Producer(aged.producer_id, aged.producer_epoch)

    @invariant()
    def what_is_decided_is_to_be_completed(self) -> None:
        decided = {
            one: value
            for one, value in self.coordinator.transactions.items()
            if value.state in DECIDED
        }
        assert decided == self.coordinator.prepared
        assert set(decided) == {
            one for one, known in self.known.items() if known.decided is not None
        }

    @invariant()
    def the_latest_epoch_is_the_one(self) -> None:
        for transactional_id, value in self.coordinator.transactions.items():
            assert value.producer_epoch == self.known[transactional_id].epochs[value.producer_id]


TransactionMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestTransactions = TransactionMachine.TestCase


def test_expired_ids_go_with_the_next_look_at_them() -> None:
    decide = TransactionCoordinator(expiration_ms=EXPIRATION_MS, expiration_check_ms=CHECK_MS)
    for one, ms in (("a", 0), ("b", 4_000), ("c", 8_000)):
        outcome = decide.init_producer_id(one, TIMEOUT_MS, NO_PRODUCER, 1_001_000 + ms, lambda: 1)
        decide.replay(*outcome.records)
    assert decide.next_deadline_ms() == 1_070_000
    assert list(decide.expire(1_069_999, 1_069_999)) == []
    assert [one for one, _ in decide.expire(1_070_000, 1_070_000)] == ["a", "b", "c"]


def test_ids_that_expire_together_are_deleted_in_slices() -> None:
    decide = TransactionCoordinator(expiration_check_ms=CHECK_MS)
    for number in range(50):
        init = decide.init_producer_id(str(number), TIMEOUT_MS, NO_PRODUCER, 1_000_000, lambda: 1)
        decide.replay(*init.records)
    due_ms = decide.next_deadline_ms()
    assert due_ms is not None
    sizes = []
    while decide.transactions:
        assert decide.next_deadline_ms() == due_ms
        before = len(decide.transactions)
        for _, outcome in decide.expire(due_ms, due_ms):
            decide.replay(*outcome.records)
        sizes.append(before - len(decide.transactions))
    assert sizes == [20, 20, 10]


def test_a_producer_that_is_busy_for_a_day_leaves_no_deadlines_behind() -> None:
    decide, now_ms = TransactionCoordinator(), 10**12

    def submit(outcome: Outcome[TransactionRecord, object]) -> object:
        for record in outcome.records:
            decide.replay(record)
        return outcome.reply

    producer = submit(decide.init_producer_id("a", 60_000, NO_PRODUCER, now_ms, lambda: 1))
    assert isinstance(producer, Producer)
    for _ in range(24 * 360):
        now_ms += 10_000
        submit(decide.add_partitions("a", producer, [("t", 0)], now_ms))
        submit(decide.end("a", producer, True, now_ms, 0, lambda: 2))
        submit(decide.complete("a", now_ms))
        assert list(decide.expire(now_ms, now_ms)) == []
    assert len(decide._deadlines._heap) < 100


def test_a_used_up_producer_id_is_good_until_its_successor_writes() -> None:
    told = TransactionMachine()
    aged = Transaction(1, MAX_EPOCH - 1, TIMEOUT_MS, State.EMPTY, told.now_ms)
    told.submit(Outcome(None, (TransactionRecord("a", aged),)))
    last, new = Producer(1, MAX_EPOCH - 1), Producer(7, 0)

    def init(expected: Producer) -> object:
        return told.submit(
            told.coordinator.init_producer_id("a", TIMEOUT_MS, expected, told.now_ms, lambda: 7)
        )

    assert init(Producer(1, 5)) == machine.PRODUCER_FENCED
    assert [init(last) for _ in range(3)] == [new] * 3
    assert init(new) == Producer(7, 1)
    assert init(last) == machine.PRODUCER_FENCED


class Story(TransactionMachine):
    """A transactional id told step by step, with an epoch for each transaction (KIP-890)."""

    def write(self, producer: Producer) -> object:
        return self.submit(
            self.coordinator.add_partitions("a", producer, PARTITIONS[:1], self.now_ms, 2)
        )

    def finish(self, producer: Producer, *, commit: bool = True) -> object:
        """End the transaction and write its markers, if it can be ended."""
        told = self.submit(self.coordinator.end("a", producer, commit, self.now_ms, 2, lambda: 7))
        for transactional_id in list(self.coordinator.prepared):
            self.complete_one(transactional_id)
        return told

    def complete_one(self, transactional_id: str) -> None:
        self.submit(self.coordinator.complete(transactional_id, self.now_ms))


def a_story(epoch: int) -> tuple[Story, Producer]:
    """Return a story of a producer at this epoch."""
    told = Story()
    told.submit(
        Outcome(
            None,
            (TransactionRecord("a", Transaction(1, epoch, TIMEOUT_MS, State.EMPTY, told.now_ms)),),
        )
    )
    return told, Producer(1, epoch)


def test_an_end_may_be_asked_for_again_until_the_next_transaction_begins() -> None:
    told, first = a_story(3)
    second = Producer(1, 4)
    told.write(first)
    assert [told.finish(first) for _ in range(2)] == [second] * 2
    assert told.finish(first, commit=False) == machine.INVALID_TXN_STATE
    assert told.write(second) == second
    assert told.finish(first) == machine.PRODUCER_FENCED
    assert told.finish(second) == Producer(1, 5)


def test_an_abort_of_nothing_has_no_partitions() -> None:
    told, first = a_story(3)
    told.write(first)
    second = told.finish(first)
    assert isinstance(second, Producer)
    told.submit(told.coordinator.end("a", second, False, told.now_ms, 2, told.allocate))
    assert told.coordinator.prepared["a"].partitions == frozenset()


def test_the_last_epoch_of_a_producer_id_is_followed_by_another_id() -> None:
    told, last = a_story(MAX_EPOCH - 1)
    new = Producer(7, 0)
    told.write(last)
    assert told.submit(told.coordinator.end("a", last, True, told.now_ms, 2, lambda: 7)) == new
    decided = told.coordinator.prepared["a"]
    assert (decided.producer_id, decided.producer_epoch) == (1, MAX_EPOCH), (
        "the markers do not fence the old producer"
    )
    told.complete_one("a")
    assert told.finish(last) == new  # the answer was lost
    assert told.finish(last, commit=False) == machine.INVALID_TXN_STATE
    assert told.finish(Producer(1, 5)) == machine.INVALID_PRODUCER_ID_MAPPING
    assert told.write(new) == new
    assert told.finish(last) == machine.INVALID_PRODUCER_ID_MAPPING
    assert told.finish(new) == Producer(7, 1)
    assert told.write(Producer(7, 1)) == Producer(7, 1)


# --- mistakes, made on purpose, that must be found ---


def any_epoch_may_write(patch: pytest.MonkeyPatch) -> None:
    owned = machine.TransactionCoordinator._owned

    def unaware(
        self: TransactionCoordinator, transactional_id: str, producer: Producer
    ) -> Transaction | Refusal:
        transaction = self.transactions.get(transactional_id)
        return transaction or owned(self, transactional_id, producer)

    patch.setattr(machine.TransactionCoordinator, "_owned", unaware)


def no_new_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "_with_new_epoch", lambda known: known)


def an_epoch_that_goes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        machine,
        "_with_new_epoch",
        lambda known: replace(known, producer_epoch=known.producer_epoch // 2),
    )


def aborted_is_completed_as_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(machine.PREPARED, State.PREPARE_ABORT, State.COMPLETE_COMMIT)


def any_end_is_fine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TransactionCoordinator,
        "_ended",
        lambda self, known, commit: Producer(known.producer_id, known.producer_epoch),
    )


def a_decision_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = TransactionCoordinator.replay

    def replay(self: TransactionCoordinator, record: TransactionRecord, *at: object) -> None:
        right(self, record)
        if record.value is not None and record.value.state == State.PREPARE_COMMIT:
            self.prepared.clear()

    patch.setattr(TransactionCoordinator, "replay", replay)


def an_epoch_before_is_good_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Planted: a producer with the epoch before comes back although another producer came."""
    right = TransactionCoordinator.replay

    def replay(self: TransactionCoordinator, record: TransactionRecord, *at: object) -> None:
        before = self.transactions.get(record.transactional_id)
        right(self, record)
        if (
            before is not None
            and record.value is not None
            and before.producer_epoch != record.value.producer_epoch
        ):
            self._last_epochs[record.transactional_id] = before.producer_epoch

    patch.setattr(TransactionCoordinator, "replay", replay)


def the_start_is_not_written(patch: pytest.MonkeyPatch) -> None:
    right = machine.records.encode

    def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return right(
            TransactionRecord(
                record.transactional_id, record.value and replace(record.value, start_ms=-1)
            )
        )

    patch.setattr(TransactionCoordinator, "encode", staticmethod(encode))


def nothing_times_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionCoordinator, "_deadline_ms", lambda self, known: None)


def a_decided_transaction_grows(patch: pytest.MonkeyPatch) -> None:
    right = TransactionCoordinator.add_partitions

    def add(self: TransactionCoordinator, transactional_id: str, *more: object) -> object:
        self.transactions |= {
            one: replace(value, state=State.ONGOING)
            for one, value in self.transactions.items()
            if one == transactional_id and value.state == State.PREPARE_COMMIT
        }
        return right(self, transactional_id, *more)

    patch.setattr(TransactionCoordinator, "add_partitions", add)


@pytest.mark.parametrize(
    "mistake",
    [
        any_epoch_may_write,
        no_new_epoch,
        an_epoch_that_goes_back,
        aborted_is_completed_as_committed,
        any_end_is_fine,
        a_decision_is_forgotten,
        an_epoch_before_is_good_for_ever,
        the_start_is_not_written,
        nothing_times_out,
        a_decided_transaction_grows,
    ],
)
def test_mistakes_are_found(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mistake(monkeypatch)
    quickly = settings(
        max_examples=2000,
        stateful_step_count=40,
        deadline=None,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(TransactionMachine, settings=quickly)
