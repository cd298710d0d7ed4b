"""OrderedConsumer: several topics in the order of their timestamps, by the rule of max.task.idle.ms
(KIP-695).
"""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from confluent_kafka import Producer, TopicPartition

from headrace.client import ClientError, ConnectionFailed, InvalidTopics, OrderedConsumer
from headrace.client.ordered import consumer as ordered_consumer
from tests.clients.compacted import CompactedTopic
from tests.clients.confluent import PATIENCE_S, admin, create_topic
from tests.machines.test_ordered_task import brute_force
from tests.support import RUN_SEED, unique, wait_until


def write(bootstrap_servers: str, topic: str, partition: int, timestamps: Iterable[int]) -> None:
    """Produce records with these timestamps; the value is the number of the record."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 1})
    for number, timestamp in enumerate(timestamps):
        producer.produce(topic, str(number).encode(), partition=partition, timestamp=timestamp)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def topics(bootstrap_servers: str) -> list[str]:
    """Two topics with one partition each."""
    return [create_topic(bootstrap_servers, unique(name)) for name in ("left", "right")]


@pytest.fixture
def conf(bootstrap_servers: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 500,
    }


def in_group(conf: Mapping[str, object], group_id: str) -> dict[str, object]:
    return {**conf, "group.id": group_id}


def what(record) -> tuple[str, int, int]:
    return record.topic(), record.partition(), record.offset()


def take(consumer: OrderedConsumer, count: int) -> list[tuple[str, int, int]]:
    """Return the next `count` records.

    :raises AssertionError: fewer come in time
    """
    taken = []
    while len(taken) < count:
        record = consumer.poll(PATIENCE_S)
        assert record is not None, f"got {len(taken)} of {count} records; {consumer.metrics()}"
        taken.append(what(record))
    return taken


def nothing(consumer: OrderedConsumer, seconds: float = 0.7) -> bool:
    """Check that no record comes although the consumer has its tasks."""
    wait_until(
        lambda: consumer.poll(0.1) is not None or consumer.assignment(), PATIENCE_S, "an assignment"
    )
    return consumer.poll(seconds) is None


def expected_order(
    topics: Sequence[str], partition: int, logs: Sequence[Sequence[int]]
) -> list[tuple[str, int, int]]:
    return [(topics[index], partition, offset) for index, offset in brute_force(logs)]


def by_partition(taken) -> dict[int, list[tuple[str, int, int]]]:
    found: dict[int, list[tuple[str, int, int]]] = {}
    for record in taken:
        found.setdefault(record[1], []).append(record)
    return found


def random_log(chance: random.Random) -> list[int]:
    """Return timestamps that mostly grow, with gaps, ties and late ones; sometimes none."""
    if chance.random() < 0.2:
        return []
    steps = (chance.choice([0, 1, 1, 2, 50, -30]) for _ in range(chance.randrange(1, 400)))
    return [max(1, 1_000 + at) for at in itertools.accumulate(steps)]


def test_the_order_is_that_of_brute_force(bootstrap_servers, conf, group_id):
    """Random topologies, with consumers that restart meanwhile."""
    print(f"seed {RUN_SEED}")
    chance = random.Random(RUN_SEED)
    for _ in range(3):
        partitions = chance.randrange(1, 4)
        names = [
            create_topic(bootstrap_servers, unique("in"), partitions)
            for _ in range(chance.randrange(1, 4))
        ]
        logs = {(name, index): random_log(chance) for name in names for index in range(partitions)}
        for (name, index), log in logs.items():
            write(bootstrap_servers, name, index, log)
        group, total, taken = unique(group_id), sum(map(len, logs.values())), []
        buffered = chance.choice([1, 10, 10_000])
        while len(taken) < total:
            with OrderedConsumer(
                in_group(conf, group), names, max_buffered_records=buffered
            ) as consumer:
                taken += take(consumer, min(total - len(taken), chance.randrange(1, 400)))
        found = by_partition(taken)
        for index in range(partitions):
            assert found.get(index, []) == expected_order(
                names, index, [logs[name, index] for name in names]
            )


def test_idle_0_takes_what_the_broker_has_and_waits_for_nothing_else(
    bootstrap_servers, conf, topics, group_id
):
    left, right = topics
    write(bootstrap_servers, left, 0, [10, 30])
    with OrderedConsumer(in_group(conf, group_id), topics) as consumer:
        assert take(consumer, 2) == [(left, 0, 0), (left, 0, 1)]
        assert consumer.poll(0) is None
        assert consumer.metrics()[0].enforced_processing_total == 2
        write(bootstrap_servers, right, 0, [20])
        assert take(consumer, 1) == [(right, 0, 0)]
        metrics = consumer.metrics()[0]
        assert (
            metrics.late_records_total,
            metrics.record_lateness_max_ms,
            metrics.stream_time_ms,
        ) == (1, 10, 30)
        assert metrics.record_lateness_avg_ms == pytest.approx(10 / 3)
        assert consumer.poll(0.2) is None
        assert consumer.metrics()[0].time_current_idling_started_ms is not None


def test_idle_waits_for_producers_no_longer_than_its_time(
    bootstrap_servers, conf, topics, group_id
):
    left, right = topics
    write(bootstrap_servers, left, 0, [10, 30])
    with OrderedConsumer(in_group(conf, group_id), topics, max_task_idle=3_600) as consumer:
        assert nothing(consumer)
        write(bootstrap_servers, right, 0, [20, 40])
        assert take(consumer, 3) == [(left, 0, 0), (right, 0, 0), (left, 0, 1)]
        assert nothing(consumer)
        assert consumer.metrics()[0].enforced_processing_total == 0
    with OrderedConsumer(in_group(conf, group_id), topics, max_task_idle=0.3) as consumer:
        started = time.monotonic()
        assert take(consumer, 1) == [(right, 0, 1)]
        assert time.monotonic() - started >= 0.3
        assert consumer.metrics()[0].enforced_processing_total == 1


def test_idling_disabled_gives_what_is_at_hand(bootstrap_servers, conf, topics, group_id):
    write(bootstrap_servers, topics[0], 0, [10])
    with OrderedConsumer(in_group(conf, group_id), topics, max_task_idle=None) as consumer:
        assert take(consumer, 1) == [(topics[0], 0, 0)]
        assert consumer.metrics()[0].enforced_processing_total == 0
        assert consumer.metrics()[0].time_current_idling_started_ms is None


def test_caught_up_is_known_after_a_restart_too(bootstrap_servers, conf, topics, group_id):
    """An input without records: its end offset alone proves that it is caught up."""
    left, right = topics
    write(bootstrap_servers, right, 0, [5, 6])
    write(bootstrap_servers, left, 0, [1])
    with OrderedConsumer(in_group(conf, group_id), topics) as consumer:
        assert take(consumer, 3) == [(left, 0, 0), (right, 0, 0), (right, 0, 1)]
    write(bootstrap_servers, left, 0, [7])
    with OrderedConsumer(in_group(conf, group_id), topics) as consumer:
        assert take(consumer, 1) == [(left, 0, 1)]


def transactional(bootstrap_servers: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": unique("tx"), "linger.ms": 1}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def test_read_committed_waits_behind_no_open_transaction(bootstrap_servers, conf, topics, group_id):
    """Records of an open or aborted transaction are not read: the input is caught up."""
    left, right = topics
    aborted, open_one = transactional(bootstrap_servers), transactional(bootstrap_servers)
    for producer, timestamp in ((aborted, 11), (open_one, 12)):
        producer.begin_transaction()
        producer.produce(right, b"x", partition=0, timestamp=timestamp)
        assert producer.flush(PATIENCE_S) == 0
    aborted.abort_transaction(PATIENCE_S)
    write(bootstrap_servers, left, 0, [20, 30])
    with OrderedConsumer(
        in_group(conf, group_id) | {"isolation.level": "read_committed"}, topics
    ) as consumer:
        assert take(consumer, 2) == [(left, 0, 0), (left, 0, 1)]
        assert consumer.metrics()[0].enforced_processing_total == 2
        write(bootstrap_servers, left, 0, [40])
        open_one.commit_transaction(PATIENCE_S)
        taken = take(consumer, 2)
        assert sorted(taken) == [(left, 0, 2), (right, 0, 1)]
        # Markers count as read: the group has no lag left.
        consumer.commit()
        wait_until(
            lambda: (
                consumer.poll(0.05) is None and consumer.current_lag(TopicPartition(right, 0)) == 0
            ),
            PATIENCE_S,
            "the end",
        )
    with OrderedConsumer(
        in_group(conf, group_id) | {"isolation.level": "read_uncommitted"}, topics
    ) as consumer:
        assert nothing(consumer)
        committed = consumer._consumer.committed([TopicPartition(right, 0)], timeout=PATIENCE_S)
        assert [p.offset for p in committed] == [4]


def test_what_is_buffered_is_not_committed(bootstrap_servers, conf, topics, group_id):
    left, right = topics
    write(bootstrap_servers, left, 0, range(1, 101))
    write(bootstrap_servers, right, 0, range(1, 101))
    conf = {**conf, "enable.auto.commit": False}
    with OrderedConsumer(in_group(conf, group_id), topics) as consumer:
        taken = take(consumer, 7)
        consumer.commit()
        assert take(consumer, 5)
        lags = [consumer.current_lag(TopicPartition(topic, 0)) for topic in topics]
        assert lags == [94, 94]
    with OrderedConsumer(in_group(conf, group_id), topics) as consumer:
        rest = take(consumer, 193)
    assert taken + rest == expected_order(topics, 0, [range(1, 101)] * 2)


@pytest.mark.parametrize("bad", [1, 2])
def test_the_record_in_hand_when_work_fails_comes_again(
    bootstrap_servers, conf, topics, group_id, bad
):
    write(bootstrap_servers, topics[0], 0, [1, 2, 3])

    def work() -> None:
        with OrderedConsumer(in_group(conf, group_id), topics) as consumer:
            for record in consumer:
                assert record.offset() != bad, "bad record"

    with pytest.raises(AssertionError, match="bad record"):
        work()
    with OrderedConsumer(in_group(conf, group_id), topics) as consumer:
        assert take(consumer, 3 - bad) == [(topics[0], 0, offset) for offset in range(bad, 3)]


class Member(threading.Thread):
    """A member that records its messages."""

    def __init__(self, names, group_id, conf) -> None:
        super().__init__()
        self.taken: list[tuple[str, int, int]] = []
        self.tasks: set[int] = set()
        self.leave = threading.Event()
        self.failure: BaseException | None = None
        self._arguments = (names, group_id, conf)
        self.start()

    def run(self) -> None:
        names, group_id, conf = self._arguments
        try:
            with OrderedConsumer(in_group(conf, group_id), names) as consumer:
                while not self.leave.is_set():
                    record = consumer.poll(0.1)
                    self.tasks = {p.partition for p in consumer.assignment()}
                    if record is not None:
                        self.taken.append(what(record))
        except BaseException as failure:
            self.failure = failure

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave.set()
        self.join(PATIENCE_S)
        assert self.failure is None, self.failure


PROTOCOLS = [{}, {"group.protocol": "consumer"}]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["classic", "consumer"])
def test_members_share_the_tasks_and_lose_nothing(bootstrap_servers, conf, group_id, protocol):
    if protocol:
        conf = {"bootstrap.servers": bootstrap_servers}
    names = [create_topic(bootstrap_servers, unique("in"), 4) for _ in range(2)]
    done = Counter()

    def write_round(number: int) -> None:
        for name, index in itertools.product(names, range(4)):
            write(bootstrap_servers, name, index, range(number * 1_000 + 1, number * 1_000 + 101))
            done[name, index] += 100

    def all_read(*members: Member) -> bool:
        assert all(m.failure is None for m in members), [m.failure for m in members]
        return len(set(itertools.chain(*(m.taken for m in members)))) == done.total()

    write_round(0)
    with Member(names, group_id, {**conf, **protocol}) as first:
        wait_until(lambda: all_read(first), PATIENCE_S, "the first member to read all")
        with Member(names, group_id, {**conf, **protocol}) as second:
            wait_until(
                lambda: len(first.tasks) == len(second.tasks) == 2, PATIENCE_S, "two tasks for each"
            )
            assert first.tasks | second.tasks == {0, 1, 2, 3}
            write_round(1)
            wait_until(lambda: all_read(first, second), PATIENCE_S, "both to read the rest")
        wait_until(lambda: len(first.tasks) == 4, PATIENCE_S, "the first to have all tasks again")
        write_round(2)
        wait_until(lambda: all_read(first, second), PATIENCE_S, "the first to read the rest")
    assert not [r for r, times in Counter(first.taken + second.taken).items() if times > 1], (
        "read twice"
    )
    assert {r[1] for r in second.taken} == {1, 0} or {r[1] for r in second.taken} == {2, 3}
    for member in (first, second):
        for name, index in itertools.product(names, range(4)):
            offsets = [record[2] for record in member.taken if record[:2] == (name, index)]
            assert offsets == sorted(offsets)


def test_a_task_goes_over_with_all_that_was_processed(bootstrap_servers, conf, group_id):
    """The first member loses one of its tasks while it is processing."""
    names = [create_topic(bootstrap_servers, unique(name), 2) for name in ("in", "empty")]
    for index in range(2):
        write(bootstrap_servers, names[0], index, range(1, 15_001))
    taken = []
    with OrderedConsumer(in_group(conf, group_id), names) as first:
        taken += take(first, 10)
        with Member(names, group_id, conf) as second:
            while len(first.assignment()) != 2:
                taken += take(first, 1)
                time.sleep(0.0001)
            while (record := first.poll(0.5)) is not None:
                taken.append(what(record))
            wait_until(lambda: len(taken) + len(second.taken) >= 30_000, PATIENCE_S, "all records")
    assert second.taken
    assert Counter(taken + second.taken) == Counter(
        itertools.product(names[:1], range(2), range(15_000))
    )


def test_buffers_are_bounded_and_nothing_is_lost_by_pausing(
    bootstrap_servers, conf, topics, group_id
):
    left, right = topics
    write(bootstrap_servers, left, 0, range(1, 5_001))
    write(bootstrap_servers, right, 0, range(1, 5_001, 500))
    with OrderedConsumer(in_group(conf, group_id), topics, max_buffered_records=100) as consumer:
        assert take(consumer, 5_010) == expected_order(
            topics, 0, [range(1, 5_001), range(1, 5_001, 500)]
        )


def test_topics_that_do_not_fit_together(bootstrap_servers, conf, topics, group_id):
    wide = create_topic(bootstrap_servers, unique("wide"), 3)
    with pytest.raises(
        InvalidTopics,
        match=rf"not co-partitioned: of partitions, '{topics[0]}' has 1, '{wide}' has 3",
    ):
        OrderedConsumer(in_group(conf, group_id), [topics[0], wide])


def test_a_missing_topic_is_an_error_and_is_not_created(conf, topics, group_id):
    missing = unique("missing")
    for _ in range(2):
        with pytest.raises(
            InvalidTopics, match=f"topic '{missing}' cannot be read: .*[Uu]nknown topic"
        ):
            OrderedConsumer(in_group(conf, group_id), [topics[0], missing])


def test_members_with_other_topics_do_not_fit_in(bootstrap_servers, conf, group_id):
    names = [create_topic(bootstrap_servers, unique("in"), 2) for _ in range(2)]
    with Member(names[:1], group_id, conf) as other:
        wait_until(lambda: len(other.tasks) == 2, PATIENCE_S, "the other member's tasks")
        with (
            pytest.raises(
                InvalidTopics, match=r"was not assigned .* all members must subscribe to exactly"
            ),
            OrderedConsumer(in_group(conf, group_id), names) as consumer,
        ):
            consumer.poll(PATIENCE_S)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"max_task_idle": -1}, "max_task_idle is -1"),
        ({"max_task_idle": float("nan")}, "max_task_idle is nan"),
        ({"topics": "orders"}, "topics is 'orders': give a list"),
        ({"topics": ["a", "a"]}, "different names"),
        ({"topics": []}, "one or more"),
        ({"max_buffered_records": 0}, "max_buffered_records is 0"),
        (
            {"conf": {"group.id": "g", "partition.assignment.strategy": "roundrobin"}},
            "is 'roundrobin': it must be 'range'",
        ),
        ({"conf": {"bootstrap.servers": "127.0.0.1:1"}}, r"group\.id is missing"),
    ],
)
def test_wrong_arguments(arguments, says):
    with pytest.raises(ValueError, match=says):
        OrderedConsumer(
            **{
                "conf": {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"},
                "topics": ["a"],
                **arguments,
            }
        )


def test_a_broker_that_is_not_there(monkeypatch):
    monkeypatch.setattr(ordered_consumer, "METADATA_TIMEOUT_S", 0.2)
    with pytest.raises(ConnectionFailed, match=r"127.0.0.1:1 cannot be reached"):
        OrderedConsumer(in_group({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "g"), ["a"])


def test_ctrl_c_ends_it_while_it_waits(bootstrap_servers, topics, group_id):
    program = "\n".join(
        (
            "from headrace.client import OrderedConsumer",
            f"conf = {{'bootstrap.servers': {bootstrap_servers!r}, 'group.id': {group_id!r}}}",
            f"with OrderedConsumer(conf, {topics!r}) as consumer:",
            "    consumer.poll(1)",
            "    print('waiting', flush=True)",
            "    for record in consumer: pass",
        )
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said.splitlines()[-1] == b"KeyboardInterrupt"
    groups = admin(bootstrap_servers).describe_consumer_groups([group_id])
    assert groups[group_id].result(PATIENCE_S).members == [], "it has left"


def test_current_lag_of_what_is_not_assigned(conf, topics, group_id):
    with OrderedConsumer(in_group(conf, group_id), topics) as consumer:
        with pytest.raises(ClientError, match=f"No current assignment for partition {topics[0]}-7"):
            consumer.current_lag(TopicPartition(topics[0], 7))
        assert consumer.poll(0) is None
    for call in (lambda: consumer.poll(0), consumer.commit):
        with pytest.raises(ClientError, match=f"the consumer of group '{group_id}' is closed"):
            call()
    assert list(consumer) == []


@pytest.mark.slow
@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_compacted_inputs_are_read_to_their_ends(
    bootstrap_servers, conf, group_id, isolation_level
):
    """Inputs with missing offsets and empty batches; the last offsets of one are aborted records
    and markers.
    """
    print(f"seed {RUN_SEED}")
    chance = random.Random(RUN_SEED)
    inputs = [CompactedTopic(bootstrap_servers, unique("compacted"), chance) for _ in range(2)]
    for one in inputs:
        one.write(10)
    found = [one.wait_until_compacted() for one in inputs]
    names = [one.name for one in inputs]
    producer = inputs[1].transactional[0]
    producer.begin_transaction()
    sent = inputs[1]._send(producer, 3)
    producer.abort_transaction(PATIENCE_S)
    conf = {**conf, "isolation.level": isolation_level}
    aborted = len(sent) if isolation_level == "read_uncommitted" else 0
    with OrderedConsumer(in_group(conf, group_id), names) as consumer:
        taken = take(consumer, 5)
    with OrderedConsumer(in_group(conf, group_id), names) as consumer:
        taken += take(consumer, sum(map(len, found)) + aborted - len(taken))
        for name, left in zip(names, found, strict=True):
            offsets = [offset for topic, _, offset in taken if topic == name]
            assert offsets[: len(left)] == [offset for offset, _, _ in left]
        at_end = lambda: [consumer.current_lag(TopicPartition(name, 0)) for name in names] == [0, 0]  # noqa: E731
        wait_until(
            lambda: consumer.poll(0.05) is None and at_end(),
            PATIENCE_S,
            "both inputs to be caught up",
        )
        inputs[0]._send(inputs[0].producers[0], 1)
        assert take(consumer, 1)[0][0] == names[0], (
            "the other input is caught up: nothing holds this record"
        )
        consumer.commit()
    with OrderedConsumer(in_group(conf, group_id), names) as consumer:
        assert nothing(consumer)
        wait_until(
            lambda: consumer.poll(0.05) is None and at_end(),
            PATIENCE_S,
            "no lag is left for the group",
        )
