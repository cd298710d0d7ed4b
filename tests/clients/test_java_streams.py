"""Kafka Streams: a word count that survives a restart of the broker, and a join of two topics, as a
streams group, through rebalances and kills of applications and of the broker.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from tests.clients.confluent import PATIENCE_S, config_of, consumer, create_topic, produce
from tests.peer import java_program
from tests.support import COMMON_CONFIGS, HeadraceProcess, unique, wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 2
WORDS = ("a", "lazy", "dog", "and", "one", "more", "dog")


class App:
    """An application of Kafka Streams in a process of its own: the word count, or another one."""

    def __init__(self, *args: str, program: str = "WordCount") -> None:
        self.process = subprocess.Popen(
            java_program(program, *args),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.output.extend(line.rstrip() for line in self.process.stdout)

    def close(self) -> None:
        """End the process in good order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0, self.output[-20:]


def records(bootstrap_servers: str, topic: str) -> list[Message]:
    """Return all records of a topic for a read_committed consumer."""
    found: list[Message] = []
    with consumer(bootstrap_servers, unique("reader"), enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ended = set()
        while len(ended) < PARTITIONS:
            message = reader.poll(PATIENCE_S)
            assert message is not None
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
            else:
                found.append(message)
    return found


def counts(bootstrap_servers: str, topic: str) -> dict[str, list[int]]:
    """Return the counts of each word for a read_committed consumer."""
    found: dict[str, list[int]] = defaultdict(list)
    for one in records(bootstrap_servers, topic):
        found[one.key().decode()].append(int(one.value()))
    return found


def produce_keyed(bootstrap_servers: str, topics: Sequence[str], keys: Sequence[str]) -> None:
    """Write a record for each key to each topic, to the same partition in all of them."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number, key in enumerate(keys):
        for topic in topics:
            value = f"{topic[0]}-{key}".encode()
            producer.produce(topic, value, key.encode(), number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def values(bootstrap_servers: str, topic: str) -> list[str]:
    """Return all values of a topic for a read_committed consumer."""
    return [one.value().decode() for one in records(bootstrap_servers, topic)]


@pytest.mark.parametrize("protocol", ["classic", "streams"])
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_word_count(tmp_path: Path, kafka_libs: Path, guarantee: str, protocol: str) -> None:
    server = HeadraceProcess(tmp_path / "data", COMMON_CONFIGS).start()
    app: App | None = None
    try:
        servers, name = server.bootstrap_servers, unique("count")
        source, counted = (
            create_topic(servers, unique(kind), PARTITIONS) for kind in ("lines", "counts")
        )
        state = str(tmp_path / "state")
        app = App(servers, source, counted, name, state, guarantee, protocol)
        expected: Counter[str] = Counter()

        def write(lines: int) -> None:
            values = [" ".join(WORDS[i % 5 :]).encode() for i in range(lines)]
            produce(servers, source, values)
            for value in values:
                expected.update(value.decode().split())

        def counted_all() -> bool:
            assert app is not None
            assert app.process.poll() is None, app.output[-20:]
            found = counts(servers, counted)
            return {word: max(numbers) for word, numbers in found.items()} == expected

        write(200)
        wait_until(counted_all, 120, "the counts", 0.3)
        write(200)
        server.stop()
        server.start()
        write(200)
        wait_until(counted_all, 120, "the counts after a restart", 0.3)
        found = counts(servers, counted)
        assert {word: numbers[-1] for word, numbers in found.items()} == expected
        if guarantee == "exactly_once_v2":
            assert all(
                numbers == [*range(1, expected[word] + 1)] for word, numbers in found.items()
            )
        repartition, changelog = (
            f"{name}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-{kind}"
            for kind in ("repartition", "changelog")
        )
        assert config_of(servers, changelog, "cleanup.policy") == "compact"
        assert config_of(servers, repartition, "cleanup.policy") == "delete"
        # what was processed is deleted by DeleteRecords
        with consumer(servers, unique("reader")) as reader:

            def purged() -> bool:
                return all(
                    reader.get_watermark_offsets(
                        TopicPartition(repartition, partition), PATIENCE_S
                    )[0]
                    > 0
                    for partition in range(PARTITIONS)
                )

            wait_until(purged, PATIENCE_S, "the purge", 0.2)
        app.close()
    finally:
        if app is not None and app.process.poll() is None:
            app.process.kill()
            app.process.wait()
        server.kill()


def test_a_join_goes_on_exactly_once(tmp_path: Path, kafka_libs: Path) -> None:
    """Each pair is there once, whatever is killed: an application, then the broker."""
    session = dict.fromkeys(
        ("group.streams.session.timeout.ms", "group.streams.min.session.timeout.ms"), "6000"
    )
    server = HeadraceProcess(tmp_path / "data", {**COMMON_CONFIGS, **session}).start()
    apps: list[App] = []
    try:
        servers, name = server.bootstrap_servers, unique("join")
        left, right, joined = (
            create_topic(servers, unique(kind), PARTITIONS) for kind in ("left", "right", "joined")
        )
        expected: set[str] = set()

        def start() -> App:
            state = str(tmp_path / f"state{len(apps)}")
            args = (servers, left, right, joined, name, state)
            apps.append(App(*args, program="StreamJoin"))
            return apps[-1]

        def write(count: int) -> None:
            keys = [f"k{len(expected) + n}" for n in range(count)]
            produce_keyed(servers, (left, right), keys)
            expected.update(f"l-{key}+r-{key}" for key in keys)

        def all_joined() -> bool:
            return set(values(servers, joined)) == expected

        first = start()
        write(20)
        wait_until(all_joined, 120, "the first pairs", 0.5)
        start()
        write(20)
        wait_until(all_joined, 120, "the pairs of two applications", 0.5)
        first.process.kill()
        write(20)
        server.kill()
        server.start()
        write(20)
        wait_until(all_joined, 180, "the pairs after the kills", 0.5)
        assert sorted(values(servers, joined)) == sorted(expected)
        apps[1].close()
    finally:
        for app in apps:
            if app.process.poll() is None:
                app.process.kill()
                app.process.wait()
        server.kill()
