"""`headrace dlq`: dead letters by KIP-1191's headers, on headrace and on Apache Kafka."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headrace.admin import AdminClient
from headrace.cli.main import main
from headrace.client import partition_reader
from headrace.client.dead_letters.letters import LetterFilter
from headrace.client.dead_letters.reading import QueueReader, selected_ranges
from headrace.client.dead_letters.redrive import Redrive, RedriveCounts, RedriveOptions
from headrace.client.errors import ClientError
from headrace.protocol import dead_letters
from headrace.protocol.record_batch import HEADER_BYTES, build, header_at, seal
from headrace.secure_broker import SecureBroker
from tests.cli.command import ENVIRONMENT, HEADRACE
from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    gone_records,
    poll_share,
    produce,
    set_configs,
    share_consumer,
    share_from_earliest,
)
from tests.support import set_quotas, unique, wait_until, write_properties
from tests.wire_client import connection

REJECTED = "Offset rejected by client."
UNCOMPARED = "not compared: the topic no longer has the record"
WORN_OUT = "Offset delivery count exceeded the threshold."

Dlq = Callable[..., Any]
"""``dlq("show", queue, status=0)`` returns the parsed JSON, or the lines of stderr after a failure.
A redrive is a dry run without ``"--yes"``; it returns counts by source, reason or outcome.
"""


@pytest.fixture
def dlq(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> Dlq:
    def call(*arguments: str, status: int = 0) -> Any:
        capsys.readouterr()
        is_plan = arguments[0] == "redrive" and "--yes" not in arguments
        more = ("--dry-run",) if is_plan else ()
        ended = main(["dlq", *arguments, *more, "-o", "json", "-b", bootstrap_servers])
        said = capsys.readouterr()
        assert ended == status, said
        if status:
            return said.err.splitlines()
        rows = json.loads(said.out)
        return outcomes(rows) if arguments[0] == "redrive" else rows

    return call


def outcomes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    counts: dict[str, Any] = {"redriven": {}, "not_compared": {}, "skipped": {}, "others": {}}
    for row in rows:
        source, letters, outcome = row["source_topic"], row["letter_count"], row["outcome"]
        if outcome.endswith("redriven"):
            counts["redriven"][source] = letters
        elif outcome == "of these":
            assert row["reason"] == UNCOMPARED
            counts["not_compared"][source] = letters
        elif outcome.endswith("skipped"):
            counts["skipped"][source, row["reason"]] = letters
        else:
            counts["others"][outcome] = letters
    return counts


class Queue:
    """A queue of letters that the test writes.

    :ivar name: the topic
    :ivar group: the share group of letters, unless others are named
    """

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.name = name
        self.group = unique("workers")
        self._config = config
        self._producer = Producer({**config, "log_level": 2})

    def write(
        self,
        source: str,
        offset: int,
        value: bytes | None = None,
        key: bytes | None = None,
        group: str | None = None,
        message: str = REJECTED,
        headers: tuple[tuple[str, bytes], ...] = (),
        source_partition: int = 0,
        **more: Any,
    ) -> None:
        """Write one letter, as a broker does."""
        values = (source, source_partition, offset, group or self.group, 1, message)
        named = zip(dead_letters.HEADERS, (str(one).encode() for one in values), strict=True)
        self._producer.produce(self.name, value, key, headers=[*headers, *named], **more)

    def serve(self, source: str, *groups: str, partitions: int = 1) -> None:
        """Have share groups consume a topic, and use the queue."""
        with AdminClient({**self._config, "log_level": 2}) as client:
            for group in groups or (self.group,):
                resource = ConfigResource(ResourceType.GROUP, group)
                resource.add_incremental_config(
                    ConfigEntry(
                        "errors.deadletterqueue.topic.name",
                        self.name,
                        incremental_operation=AlterConfigOpType.SET,
                    )
                )
                for done in client.incremental_alter_configs([resource]).values():
                    done.result(PATIENCE_S)
                starts = [TopicPartition(source, number, 0) for number in range(partitions)]
                wait_until(partial(set_starts, client, group, starts), PATIENCE_S, "the topic")

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0


def set_starts(client: AdminClient, group: str, starts: list[TopicPartition]) -> bool:
    """Return whether the group's coordinator knows the topic already."""
    done = client.alter_share_group_offsets(group, starts).values()
    errors = [future.exception(PATIENCE_S) for future in done]
    for error in errors:
        if error is not None and "UNKNOWN_TOPIC_OR_PART" not in str(error):
            raise error
    return not any(errors)


@pytest.fixture
def queue(bootstrap_servers: str) -> Queue:
    name = create_topic(bootstrap_servers, unique("dlq.t"), partitions=2, retention_ms="-1")
    return Queue({"bootstrap.servers": bootstrap_servers}, name)


@pytest.fixture
def new_source(bootstrap_servers: str, queue: Queue) -> str:
    """A topic without records that the group of the queue consumes."""
    name = create_topic(bootstrap_servers, unique("source"), partitions=2)
    queue.serve(name, partitions=2)
    return name


@pytest.fixture
def source(bootstrap_servers: str, new_source: str) -> str:
    """A topic that the group of the queue consumes, whose first 200 records are gone: letters of
    them may have any content.
    """
    gone_records(bootstrap_servers, new_source, 2)
    return new_source


def all_of(bootstrap_servers: str, topic: str, count: int) -> list[Message]:
    """Return the committed records of a topic, and check their number."""
    with consumer(bootstrap_servers, unique("g"), enable_partition_eof=True) as reader:
        partitions = len(admin(bootstrap_servers).list_topics(topic).topics[topic].partitions)
        reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found, ended = [], 0
        while ended < partitions:
            (message,) = reader.consume(1, PATIENCE_S)
            if message.error() is not None:
                ended += 1
            else:
                found.append(message)
    assert len(found) == count, [message.value() for message in found]
    return found


def values(messages: list[Message]) -> list[bytes]:
    return sorted(message.value() for message in messages)


def test_letters_are_redriven_once(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, source: str
) -> None:
    for number in range(6):
        traced = (("trace", b"t%d" % number), ("trace", b"again"))
        queue.write(source, number, b"v%d" % number, b"k", headers=traced, partition=number % 2)
    queue.write(source, 9, b"elsewhere", source_partition=1)
    queue.flush()
    expected = {
        "redriven": {source: 7},
        "not_compared": {source: 7},
        "skipped": {},
        "others": {},
    }
    assert dlq("redrive", queue.name) == expected
    assert dlq("redrive", queue.name, "--dry-run", "--yes") == expected
    assert all_of(bootstrap_servers, source, 0) == []
    assert dlq("redrive", queue.name, "--yes") == expected
    found = all_of(bootstrap_servers, source, 7)
    (other,) = [message for message in found if message.partition() == 1]
    assert (other.key(), other.value()) == (None, b"elsewhere")
    found.remove(other)
    assert values(found) == [b"v%d" % number for number in range(6)]
    for message in found:
        number = message.value().removeprefix(b"v")
        assert message.key() == b"k"
        assert message.headers() == [
            ("trace", b"t" + number),
            ("trace", b"again"),
            ("headrace.redrive.count", b"1"),
        ]
    assert dlq("redrive", queue.name, "--yes")["redriven"] == {}
    all_of(bootstrap_servers, source, 7)


def test_a_filter_leaves_the_other_letters_pending(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, source: str
) -> None:
    queue.serve(source, "a", "b")
    for number in range(20):
        queue.write(
            source,
            number,
            b"%02d" % number,
            b"k%d" % (number % 4),
            group="a" if number % 2 else "b",
            message=REJECTED if number < 10 else WORN_OUT,
            partition=0,
            timestamp=1_000_000 + number,
        )
    queue.flush()

    def redrive(*options: str) -> int:
        return sum(dlq("redrive", queue.name, "--yes", *options)["redriven"].values())

    assert redrive("--group", "a", "--reason", "REJECTED by") == 5
    assert redrive("--key", "k1") == 2, "of the group a, with the other reason"
    assert redrive("--from", "4", "--to", "7") == 2, "5 is done"
    assert redrive("--from", "1970-01-01T00:16:40.018Z", "--to", "1970-01-01T00:16:40.019Z") == 1
    assert redrive("--partition", "1") == redrive("--source", "other") == 0
    counts = dlq("list", queue.name)
    assert {(row["group_id"], row["reason"]): row["pending_count"] for row in counts} == {
        ("a", REJECTED): 0,
        ("b", REJECTED): 3,
        ("a", WORN_OUT): 3,
        ("b", WORN_OUT): 4,
    }
    assert redrive("--max", "4") == 4
    rest = dlq("redrive", queue.name)
    assert (rest["redriven"], rest["others"]) == ({source: 6}, {"done before": 3})
    assert redrive() == 6
    assert values(all_of(bootstrap_servers, source, 20)) == [b"%02d" % n for n in range(20)]


def test_what_cannot_be_redriven_is_skipped_and_told(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, source: str
) -> None:
    small = create_topic(bootstrap_servers, unique("small"), max_message_bytes="5000")
    gone_records(bootstrap_servers, small, 1)
    queue.serve(small)
    count = ("headrace.redrive.count", b"3")
    queue.write(source, 0, b"back again", headers=(count,), partition=0)
    queue.write("deleted-topic", 0, b"x", partition=0)
    queue.write(source, 0, b"x", source_partition=7, partition=0)
    queue.write(source, 1, partition=0)  # without a copy, and the record is gone
    queue.write(source, 4711, b"x", partition=0)
    queue.write(small, 0, b"fits", partition=0)
    queue.write(small, 1, bytes(6000), partition=0)
    queue.flush()
    produce(bootstrap_servers, queue.name, [b"no letter"], partition=0)

    def skipped(result: Any) -> dict[str, str]:
        return {reason: topic for topic, reason in result["skipped"]}

    expected = {
        "redriven 3 times before": source,
        "the topic does not exist, or the user may not describe it": "deleted-topic",
        "the partition does not exist": source,
        "the partition ends before the offset of the record": source,
        "the queue has no copy of the record, and the topic no longer has it": source,
    }
    assert skipped(dlq("redrive", queue.name)) == expected
    done = dlq("redrive", queue.name, "--yes")
    assert (done["redriven"], done["others"]) == ({small: 1}, {"not dead letters": 1})
    refused = {"refused by the broker: MSG_SIZE_TOO_LARGE": small}
    assert skipped(done) == {**expected, **refused}
    assert values(all_of(bootstrap_servers, small, 1)) == [b"fits"]
    # They stay pending, and can be redriven when the cause is gone.
    again = dlq("redrive", queue.name, "--yes", "--max-redrives", "4")
    assert (again["redriven"], again["others"]["done before"]) == ({source: 1}, 1)
    (message,) = all_of(bootstrap_servers, source, 1)
    assert message.headers() == [("headrace.redrive.count", b"4")]
    settled = dlq("redrive", queue.name, "--yes", "--settle-skipped")
    assert len(settled["skipped"]) == 5
    last = dlq("redrive", queue.name)
    assert (last["redriven"], last["skipped"]) == ({}, {})


def test_a_letter_without_a_copy_gets_the_record_of_its_source(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, new_source: str
) -> None:
    produce(
        bootstrap_servers, new_source, [b"%d" % n for n in range(9)], 1, compression_codec="lz4"
    )
    for offset in (7, 2, 5):
        queue.write(new_source, offset, source_partition=1, partition=0)
    queue.flush()
    shown = dlq("show", queue.name)
    assert [(one["source_offset"], one["value"]) for one in shown] == [
        (7, "7"),
        (2, "2"),
        (5, "5"),
    ]
    assert dlq("redrive", queue.name, "--yes")["redriven"] == {new_source: 3}
    assert [one.value() for one in all_of(bootstrap_servers, new_source, 12)[-3:]] == [
        b"7",
        b"2",
        b"5",
    ]


def test_a_client_that_exceeds_its_quota_gets_the_records_later(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, new_source: str, tmp_path: Path
) -> None:
    """A response to such a client has no partitions."""
    for number in (0, 1):
        produce(bootstrap_servers, new_source, [b"%d" % number * 30_000], number)
        queue.write(new_source, 0, source_partition=number, partition=0)
    queue.flush()
    client_id = unique("slow")
    set_quotas(bootstrap_servers, {"client-id": client_id}, consumer_byte_rate=5_000)
    file = write_properties(tmp_path / "client.properties", {"client.id": client_id})
    shown = dlq("show", queue.name, "--command-config", str(file))
    assert [one["value"] for one in shown] == ["0" * 30_000, "1" * 30_000]


def test_records_that_are_gone_cost_one_request(
    bootstrap_servers: str, queue: Queue, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(bootstrap_servers, source, [b"v"], 0)
    for number in range(100):
        queue.write(source, number, b"v", partition=0)
    queue.write(source, 200, b"v", partition=0)
    queue.flush()
    ask, requests = partition_reader.fetch, 0

    async def fetch(*arguments: Any, **more: Any) -> Any:
        nonlocal requests
        requests += 1
        return await ask(*arguments, **more)

    monkeypatch.setattr(partition_reader, "fetch", fetch)
    config = {"bootstrap.servers": bootstrap_servers}
    counts = Redrive(config, queue.name, LetterFilter(), RedriveOptions()).plan(threading.Event())
    assert (counts.redriven, counts.uncompared) == ({source: 101}, {source: 100})
    # The letters may come in several chunks.
    assert requests < 20


def test_a_record_after_the_end_is_gone(dlq: Dlq, queue: Queue, new_source: str) -> None:
    queue.write(new_source, 0, source_partition=1)
    queue.flush()
    (letter,) = dlq("show", queue.name)
    assert not letter["has_content"]


def test_more_letters_than_the_queue_of_the_producer_takes(
    bootstrap_servers: str, queue: Queue, source: str
) -> None:
    for number in range(30):
        queue.write(source, number, b"v%d" % number, partition=0)
    queue.flush()
    config = {"bootstrap.servers": bootstrap_servers, "queue.buffering.max.messages": 10}
    redrive = Redrive(config, queue.name, LetterFilter(), RedriveOptions())
    assert redrive.run(threading.Event()).redriven == {source: 30}
    assert values(all_of(bootstrap_servers, source, 30)) == sorted(b"v%d" % n for n in range(30))


def test_a_header_key_that_is_not_utf8(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, new_source: str
) -> None:
    batch = build([(None, b"original")], timestamp_ms=10**12, headers=[[("h?", b"1")]])
    payload = batch[HEADER_BYTES:].replace(b"h?", b"h\xff")
    with connection(bootstrap_servers) as wire:
        for topic in (new_source, queue.name):
            wire.produce(topic, seal(header_at(batch), payload) + payload)
    queue.write(new_source, 0, partition=0)
    queue.flush()
    done = dlq("redrive", queue.name, "--yes")
    assert (done["redriven"], done["others"]) == ({new_source: 1}, {"not dead letters": 1})


def test_any_timestamp_of_a_letter_is_printed(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.write(source, 0, b"v", timestamp=-100_000_000_000_000)  # before the year 1
    queue.flush()
    for action in ("list", "show"):
        assert main(["dlq", action, queue.name, "--bootstrap-server", bootstrap_servers]) == 0
        assert "-100000000000000" in capsys.readouterr().out


def test_a_letter_about_a_letter_goes_back_to_its_queue(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, source: str
) -> None:
    outer = Queue({"bootstrap.servers": bootstrap_servers}, unique("dlq.outer"))
    create_topic(bootstrap_servers, outer.name)
    gone_records(bootstrap_servers, queue.name, 2, 5)
    outer.serve(queue.name)
    inner = [(name, b"0") for name in dead_letters.HEADERS]
    inner[0] = (dead_letters.TOPIC, source.encode())
    outer.write(queue.name, 3, b"x", headers=tuple(inner))
    outer.flush()
    assert dlq("redrive", outer.name, "--yes")["redriven"] == {queue.name: 1}
    (letter,) = dlq("show", queue.name)
    assert (letter["source_topic"], letter["value"], letter["redrive_count"]) == (source, "x", 1)


def test_a_crash_between_produce_and_commit(
    bootstrap_servers: str, queue: Queue, source: str
) -> None:
    """The next run aborts the open transaction: no record is lost, and none is twice."""
    for number in range(8):
        queue.write(source, number, b"%d" % number, partition=number % 2)
    queue.flush()
    config = {"bootstrap.servers": bootstrap_servers}

    class Crash(Exception):
        pass

    class Fragile(Producer):
        calls = 0

        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            Fragile.calls += 1
            if Fragile.calls == 2:
                raise Crash
            super().send_offsets_to_transaction(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.client.dead_letters.redrive.Producer", Fragile)
        fragile = Redrive(config, queue.name, LetterFilter(), RedriveOptions(records_per_s=3))
        with pytest.raises(Crash):
            fragile.run(threading.Event())
    finished = Redrive(config, queue.name, LetterFilter(), RedriveOptions()).run(threading.Event())
    assert 0 < finished.total < 8
    assert values(all_of(bootstrap_servers, source, 8)) == [b"%d" % n for n in range(8)]


def test_a_second_redrive_fences_the_first(
    bootstrap_servers: str, queue: Queue, source: str
) -> None:
    for number in range(6):
        queue.write(source, number, b"%d" % number, partition=0)
    queue.flush()
    config = {"bootstrap.servers": bootstrap_servers}
    first = Redrive(config, queue.name, LetterFilter(), RedriveOptions(records_per_s=2))
    second = Redrive(config, queue.name, LetterFilter(), RedriveOptions())
    others = []

    def interfere(done: int, total: int) -> None:
        if not others:
            others.append(second.run(threading.Event()).total)

    with pytest.raises(ClientError, match=r"another redrive with the group .* has begun"):
        first.run(threading.Event(), interfere)
    assert others == [4]
    all_of(bootstrap_servers, source, 6)


def test_a_rate_and_a_stop(bootstrap_servers: str, queue: Queue, source: str) -> None:
    """A stop ends after a transaction, and the next run goes on."""
    for number in range(10):
        queue.write(source, number, b"%d" % number, partition=0)
    queue.flush()
    waits: list[float] = []

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            if len(waits) == 2:
                self.set()
            return self.is_set()

    stop = Waiting()
    config = {"bootstrap.servers": bootstrap_servers}
    redrive = Redrive(config, queue.name, LetterFilter(), RedriveOptions(records_per_s=3))
    counts = redrive.run(stop)
    assert counts.stopped and counts.total == 6, "two chunks of a second each"
    assert 0 < waits[1] <= 2
    assert redrive.plan(threading.Event()).total == 4


class SlowLink(Producer):
    """A producer whose records are acknowledged one in a wait, or none."""

    is_stuck = False

    def begin_transaction(self) -> None:
        self.left = 3
        super().begin_transaction()

    def flush(self, timeout: float = -1) -> int:
        self.left -= not self.is_stuck
        return self.left or super().flush(timeout)


def test_a_slow_link_may_take_longer_than_a_timeout(
    bootstrap_servers: str, queue: Queue, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        queue.write(source, number, b"%d" % number, partition=0)
    queue.flush()
    monkeypatch.setattr("headrace.client.dead_letters.redrive.Producer", SlowLink)
    config = {"bootstrap.servers": bootstrap_servers}
    redrive = Redrive(config, queue.name, LetterFilter(), RedriveOptions())
    monkeypatch.setattr(SlowLink, "is_stuck", True)
    with pytest.raises(ClientError, match="the broker does not answer"):
        redrive.run(threading.Event())
    monkeypatch.setattr(SlowLink, "is_stuck", False)
    assert redrive.run(threading.Event()).total == 3
    assert sorted(values(all_of(bootstrap_servers, source, 3))) == [b"0", b"1", b"2"]


def test_large_records_are_in_several_transactions(
    bootstrap_servers: str, queue: Queue, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop ends after one of them."""
    for number in range(5):
        queue.write(source, number, b"%d" % number * 600, partition=0)
    queue.flush()
    monkeypatch.setattr("headrace.client.dead_letters.redrive._TRANSACTION_BYTES", 1000)
    redrive = Redrive(
        {"bootstrap.servers": bootstrap_servers}, queue.name, LetterFilter(), RedriveOptions()
    )
    stop = threading.Event()
    counts = redrive.run(stop, lambda *_: stop.set())
    assert counts.stopped and counts.total == 2
    rest = redrive.run(threading.Event())
    assert (rest.total, rest.others, rest.stopped) == (3, {}, False)
    all_of(bootstrap_servers, source, 5)


def test_a_stop_after_a_refusal(
    bootstrap_servers: str, queue: Queue, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop ends after the current transaction, also when each record has one of its own."""
    set_configs(bootstrap_servers, ResourceType.TOPIC, source, max_message_bytes="1000")
    for number in range(5):
        queue.write(source, number, bytes(2000), partition=0)
    queue.flush()
    stop, producers = threading.Event(), list[Producer]()

    def producer(config: dict[str, Any]) -> Producer:
        producers.append(Producer(config))
        if len(producers) == 2:  # in the place of the one whose transaction was refused
            stop.set()
        return producers[-1]

    monkeypatch.setattr("headrace.client.dead_letters.redrive.Producer", producer)
    redrive = Redrive(
        {"bootstrap.servers": bootstrap_servers}, queue.name, LetterFilter(), RedriveOptions()
    )
    counts = redrive.run(stop)
    assert (counts.stopped, counts.skipped) == (True, {})
    assert redrive.run(threading.Event()).skipped.total() == 5


def test_ctrl_c_ends_cleanly(bootstrap_servers: str, queue: Queue, source: str) -> None:
    """On a terminal a bar shows the progress. Ctrl-C ends with 130 between two transactions."""
    for number in range(100):
        queue.write(source, number, b"%02d" % number, partition=0)
    queue.flush()
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [
            *(*HEADRACE, "dlq", "redrive", queue.name, "--yes", "--rate", "5", "-o", "json"),
            *("--bootstrap-server", bootstrap_servers),
        ],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**ENVIRONMENT, "TERM": "xterm"},
    )
    os.close(theirs)
    said = b""
    while b"/100" not in said:
        said += os.read(ours, 4096)
    assert b"redriving" in said
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=PATIENCE_S)
    os.close(ours)
    assert run.returncode == 130
    done = outcomes(json.loads(out))["redriven"][source]
    assert 0 < done < 100
    all_of(bootstrap_servers, source, done)


def test_a_plan_that_is_interrupted_has_no_next_run(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(*_: object) -> RedriveCounts:
        signal.raise_signal(signal.SIGINT)
        return RedriveCounts(stopped=True)

    monkeypatch.setattr(Redrive, "plan", plan)
    assert main(["dlq", "redrive", "q", "--dry-run", "-b", bootstrap_servers]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"


def test_queues_are_found(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, source: str, target: str
) -> None:
    queue.write(source, 0, b"x", partition=0, timestamp=1_000)
    queue.write(source, 1, b"x", partition=1, timestamp=2_000)
    queue.flush()
    rows = {row["queue"]: row for row in dlq("list")}
    assert source not in rows
    assert rows[queue.name] == {
        "queue": queue.name,
        "group_id": queue.group,
        "source_topic": source,
        "letter_count": 2,
        "pending_count": 2,
        "oldest_ms": 1_000,
        "newest_ms": 2_000,
        "reason": REJECTED,
        "partition_count": 2,
        "groups": [queue.group],
        "record_count": 2,
        "read_count": 2,
        "other_count": 0,
    }
    assert source not in rows
    named = create_topic(
        bootstrap_servers, unique("other"), errors_deadletterqueue_group_enable="true"
    )
    assert named in {one["queue"] for one in dlq("list")}


def test_letters_that_are_deleted_meanwhile_are_skipped(
    bootstrap_servers: str, queue: Queue, source: str
) -> None:
    for number in range(4):
        queue.write(source, number, b"x", partition=0)
    queue.flush()
    with QueueReader({"bootstrap.servers": bootstrap_servers}, queue.name) as reader:
        ranges = selected_ranges(reader.bounds(), LetterFilter())
        deleted = admin(bootstrap_servers).delete_records([TopicPartition(queue.name, 0, 3)])
        assert {future.result().low_watermark for future in deleted.values()} == {3}
        records = list(reader.records(ranges, threading.Event()))
    assert [record.offset for record in records] == [3]


def test_a_queue_of_no_group_has_a_line(
    queue: Queue, source: str, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.serve(source)
    assert main(["dlq", "list", source, "-b", bootstrap_servers]) == 0
    line = f"headrace dlq list: '{source}' is the queue of no group; "
    error = capsys.readouterr().err
    assert error.startswith(line) and error.endswith(("without a name shows all\n", "?\n")), error
    assert main(["dlq", "list", queue.name, "-b", bootstrap_servers]) == 0
    assert "no group" not in capsys.readouterr().err


def test_the_newest_letters_are_counted(dlq: Dlq, queue: Queue, source: str) -> None:
    for number in range(9):
        queue.write(source, number, b"x", partition=0)
    queue.flush()
    (found,) = dlq("list", queue.name, "--scan", "4")
    assert (found["record_count"], found["read_count"], found["letter_count"]) == (9, 2, 2)


def test_letters_that_are_not_counted_are_told(
    bootstrap_servers: str, queue: Queue, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(9):
        queue.write(source, number, b"x", partition=0)
    queue.flush()
    for scan, complaint in (("4", "only the newest 2 of 9 records of"), ("9", "")):
        assert main(["dlq", "list", queue.name, "--scan", scan, "-b", bootstrap_servers]) == 0
        error = capsys.readouterr().err
        assert complaint in error and bool(complaint) == bool(error)


def test_forged_letters_are_skipped(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may write to the queue names no other topic, no other content and no other group."""
    victim = create_topic(bootstrap_servers, unique("victim"))
    produce(bootstrap_servers, victim, [b"pay 1"])
    produce(bootstrap_servers, source, [b"real", b"real"], 0)
    stranger = unique("stranger")  # consumes the source, and uses no queue
    with AdminClient({"bootstrap.servers": bootstrap_servers}) as client:
        assert set_starts(client, stranger, [TopicPartition(source, 0, 0)])
    queue.write(victim, 0, b"pay 1000", partition=0)
    queue.write(victim, 0, partition=0)
    queue.write("__consumer_offsets", 0, b"x", b"y", partition=0)
    queue.write(source, 200, b"x", group=stranger, partition=0)
    queue.write(source, 200, b"x", group="nobody", partition=0)
    queue.write(source, 200, b"unreal", partition=0)
    queue.write(source, 200, b"real", b"other key", partition=0)
    queue.write(source, 200, b"real", headers=(("admin", b"yes"),), partition=0)
    queue.write(source, 201, partition=0)
    queue.write(source, 9, b"who knows", partition=0)
    queue.flush()
    plan = dlq("redrive", queue.name)
    reasons = {(topic, reason[:50]): count for (topic, reason), count in plan["skipped"].items()}
    assert reasons == {
        (victim, "the letter's share group does not consume the topi"): 2,
        ("__consumer_offsets", "an internal topic is never a source"): 1,
        (source, "the letter's share group does not use this queue ("): 2,
        (source, "key or value differ from those of the record in th"): 2,
    }
    assert (plan["redriven"], plan["not_compared"]) == ({source: 3}, {source: 1})
    capsys.readouterr()
    assert main(["dlq", "redrive", queue.name, "--dry-run", "-b", bootstrap_servers]) == 0
    samples = [line.split(None, 3) for line in capsys.readouterr().out.splitlines()[-3:]]
    assert [sample[0].rpartition("@")[2] for sample in samples] == ["200", "201", "9"]
    assert [" ".join(sample[2:])[:24] for sample in samples] == [
        "real as in the topic",
        "real from the topic",
        "who knows not compared: ",
    ]
    done = dlq("redrive", queue.name, "--yes")
    assert (done["redriven"], done["skipped"]) == (plan["redriven"], plan["skipped"])
    assert values(all_of(bootstrap_servers, victim, 1)) == [b"pay 1"]
    found = all_of(bootstrap_servers, source, 5)[2:]
    assert values(found) == [b"real", b"real", b"who knows"]
    assert {header for one in found for header in one.headers() or ()} == {
        ("headrace.redrive.count", b"1")
    }, "headers are those of the record"


def test_letters_that_come_after_a_plan_wait_for_the_next_one(
    bootstrap_servers: str, queue: Queue, source: str
) -> None:
    queue.write(source, 0, b"seen", partition=0)
    queue.flush()
    redrive = Redrive(
        {"bootstrap.servers": bootstrap_servers}, queue.name, LetterFilter(), RedriveOptions()
    )
    assert redrive.plan(threading.Event()).total == 1
    for partition in (0, 1):
        queue.write(source, 1, b"unseen", partition=partition)
    queue.flush()
    assert redrive.run(threading.Event()).total == 1
    assert values(all_of(bootstrap_servers, source, 1)) == [b"seen"]
    assert redrive.plan(threading.Event()).total == 2
    assert redrive.run(threading.Event()).total == 2


def test_the_plan_shows_no_control_characters(
    bootstrap_servers: str, queue: Queue, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.write(source, 0, b"\x1b]0;title\x07" + b"v" * 10_000, b"\x1b[2J", partition=0)
    queue.write("\x1b[31m" * 10_000, 0, b"x", partition=0)
    queue.flush()
    for more in (["--dry-run"], ["--dry-run", "-o", "json"]):
        words = ["dlq", "redrive", queue.name, "--bootstrap-server", bootstrap_servers, *more]
        assert main(words) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out and "\x07" not in out
        assert ("title" in out) is (len(more) == 1) and len(out) < 5_000


def test_a_source_that_refuses_is_skipped_with_all_its_records(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if target == "kafka":
        pytest.skip("Apache Kafka of the tests has no authorizer")
    with SecureBroker(users=("ann",)) as broker:
        queue = Queue(broker.client_config(), unique("dlq.s"))
        producer = Producer({**broker.client_config(), "log_level": 2})
        for topic in ("open", "closed", "unread"):
            for number in range(4):
                producer.produce(topic, b"%d" % number)
                queue.write(topic, number, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        queue.flush()
        for topic in ("open", "closed", "unread"):
            queue.serve(topic)
        for operation, kind, name in (
            ("READ", "TOPIC", queue.name),
            ("WRITE", "TRANSACTIONAL_ID", f"headrace-redrive-{queue.name}"),
            ("READ", "GROUP", f"headrace-redrive-{queue.name}"),
            ("DESCRIBE", "GROUP", queue.group),
            ("DESCRIBE_CONFIGS", "GROUP", queue.group),
            ("READ", "TOPIC", "open"),
            ("WRITE", "TOPIC", "open"),
            ("READ", "TOPIC", "closed"),
            ("DESCRIBE", "TOPIC", "unread"),
        ):
            broker.allow("ann", operation, kind, name)
        config = broker.client_config("ann")
        counts = Redrive(config, queue.name, LetterFilter(), RedriveOptions()).run(
            threading.Event()
        )
        assert counts.redriven == {"open": 4}
        assert {topic: count for (topic, _), count in counts.skipped.items()} == {
            "closed": 4,
            "unread": 4,
        }


def test_failures_are_one_line(dlq: Dlq, source: str, queue: Queue) -> None:
    (line,) = dlq("redrive", "dlq.missing", "--yes", status=1)
    assert line == (
        "headrace dlq redrive: topic 'dlq.missing' does not exist: create it first, or correct its "
        "name"
    )
    for action in (["show"], ["redrive"], ["redrive", "--yes"]):
        for number in ("-1", "2"):
            (line,) = dlq(*action, queue.name, "--partition", number, status=1)
            assert line.endswith(f"topic '{queue.name}' has no partition {number}: it has 2")


def test_a_redrive_asks_after_its_plan(
    dlq: Dlq,
    bootstrap_servers: str,
    queue: Queue,
    source: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It does no more than the plan has shown."""
    queue.write(source, 0, b"seen", partition=0)
    queue.flush()
    words = ["dlq", "redrive", queue.name, "-b", bootstrap_servers]
    assert main(words) == 2
    assert "There is no terminal to ask on" in capsys.readouterr().err
    answers = [b"no", b"yes"]

    class Terminal(BytesIO):
        def isatty(self) -> bool:
            return True

        def readline(self, *_: Any) -> bytes:
            queue.write(source, 1, b"unseen", partition=0)
            queue.flush()
            return answers.pop(0)

    monkeypatch.setattr("sys.stdin", TextIOWrapper(Terminal()))
    assert main(words) == 1
    assert f"{source}: 1 records" in capsys.readouterr().err
    assert all_of(bootstrap_servers, source, 0) == []
    assert main(words) == 0
    assert re.search(r" 2 +would be redriven", capsys.readouterr().out)
    assert values(all_of(bootstrap_servers, source, 2)) == [b"seen", b"unseen"]
    assert dlq("redrive", queue.name)["redriven"] == {source: 1}


def test_a_partition_that_does_not_exist_ends_no_other_redrive(
    dlq: Dlq, bootstrap_servers: str, queue: Queue, source: str
) -> None:
    for number in range(3):
        queue.write(source, number, b"%d" % number, partition=0)
    queue.flush()
    config = {"bootstrap.servers": bootstrap_servers}
    one_by_one = RedriveOptions(records_per_s=1000)
    first = Redrive(config, queue.name, LetterFilter(), one_by_one)

    def meanwhile(*_: int) -> None:
        dlq("redrive", queue.name, "--partition", "2", "--yes", status=1)

    assert first.run(threading.Event(), meanwhile).redriven == {source: 3}


def wait_for_letters(dlq: Dlq, queue: str, count: int) -> None:
    """Wait for letters: Apache Kafka writes them after the answer to the acknowledgement."""
    wait_until(lambda: dlq("list", queue)[0]["record_count"] == count, PATIENCE_S, "letters", 0.1)


def reject_one(member: ShareConsumer) -> dict[str, bytes]:
    """Reject the next record; return its headers."""
    seen: list[dict[str, bytes]] = []

    def reject(message: Message) -> None:
        member.acknowledge(message, AcknowledgeType.REJECT)
        seen.append(dict(message.headers() or ()))

    poll_share(member, lambda: len(seen) == 1, reject)
    member.commit_sync(timeout=PATIENCE_S)
    return seen[0]


@pytest.mark.parametrize("copied", ["true", "false"])
def test_the_letters_of_a_group(
    dlq: Dlq, bootstrap_servers: str, new_source: str, group_id: str, target: str, copied: str
) -> None:
    """The whole way: rejected, dead-lettered, redriven, delivered again.

    Apache Kafka copies no headers: the count of redrives is that of the record in the topic.
    """
    name = create_topic(
        bootstrap_servers, unique("dlq.g"), errors_deadletterqueue_group_enable="true"
    )
    share_from_earliest(
        bootstrap_servers,
        group_id,
        errors_deadletterqueue_topic_name=name,
        errors_deadletterqueue_copy_record_enable=copied,
    )
    produce(bootstrap_servers, new_source, [b"bad"], partition=0)
    with share_consumer(bootstrap_servers, group_id, [new_source]) as member:
        assert reject_one(member) == {}
        wait_for_letters(dlq, name, 1)
        assert dlq("redrive", name, "--yes")["redriven"] == {new_source: 1}
        assert reject_one(member) == {"headrace.redrive.count": b"1"}
        wait_for_letters(dlq, name, 2)
    (shown,) = dlq("show", name, "--from", "1")
    assert (shown["source_topic"], shown["group_id"], shown["value"]) == (
        new_source,
        group_id,
        "bad",
    )
    plan = dlq("redrive", name, "--max-redrives", "1")
    assert shown["redrive_count"] == (0 if target == "kafka" and copied == "true" else 1)
    assert plan["skipped"] == {(new_source, "redriven once before"): 1}
    (row,) = dlq("list", name)
    assert (row["groups"], row["letter_count"], row["pending_count"]) == ([group_id], 2, 1)


def test_a_secured_cluster(
    secured: dict[str, str], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    queue, source = Queue(secured, unique("dlq.s")), unique("source")
    producer = Producer({**secured, "log_level": 2})
    producer.produce(source, b"original")
    queue.write(source, 0)
    assert producer.flush(PATIENCE_S) == 0
    queue.flush()
    queue.serve(source)
    file = write_properties(tmp_path / "client.properties", secured)
    words = ["dlq", "redrive", queue.name, "--yes", "-o", "json", "--command-config", str(file)]
    assert main([*words, "--bootstrap-server", secured["bootstrap.servers"]]) == 0
    assert outcomes(json.loads(capsys.readouterr().out))["redriven"] == {source: 1}


def test_letters_are_seen_without_permissions_on_groups(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the count of pending letters needs one."""
    if target == "kafka":
        pytest.skip("Apache Kafka of the tests has no authorizer")
    with SecureBroker(users=("ann",)) as broker:
        queue = Queue(broker.client_config(), unique("dlq.s"))
        queue.write("source", 0, b"x")
        queue.flush()
        broker.allow("ann", "READ", "TOPIC", queue.name)
        file = write_properties(tmp_path / "ann.properties", broker.client_config("ann"))
        where = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file))

        def pending() -> list[int | None]:
            assert main(["dlq", "list", "-o", "json", *where]) == 0
            return [row["pending_count"] for row in json.loads(capsys.readouterr().out)]

        assert main(["dlq", "show", queue.name, "-o", "json", *where]) == 0
        (letter,) = json.loads(capsys.readouterr().out)
        assert letter["value"] == "x"
        assert pending() == [None]
        broker.allow("ann", "DESCRIBE", "GROUP", f"headrace-redrive-{queue.name}")
        assert pending() == [1]


def test_a_missing_permission_is_named(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The permissions of the documentation suffice; without one the error names it."""
    if target == "kafka":
        pytest.skip("Apache Kafka of the tests has no authorizer")
    with SecureBroker(users=("ann",)) as broker:
        queue, source = Queue(broker.client_config(), unique("dlq.s")), unique("source")
        producer = Producer({**broker.client_config(), "log_level": 2})
        producer.produce(source, b"original")
        assert producer.flush(PATIENCE_S) == 0
        queue.write(source, 0)
        queue.flush()
        queue.serve(source)
        config, group = broker.client_config("ann"), f"headrace-redrive-{queue.name}"

        def attempt() -> RedriveCounts:
            redrive = Redrive(config, queue.name, LetterFilter(), RedriveOptions())
            return redrive.run(threading.Event())

        for operation, kind, name, complaint in (
            ("READ", "TOPIC", queue.name, f"DESCRIBE on topic '{queue.name}'"),
            ("WRITE", "TRANSACTIONAL_ID", group, f"WRITE on transactional id '{group}'"),
            ("READ", "GROUP", group, f"DESCRIBE on group '{group}'"),
            ("DESCRIBE", "TOPIC", source, "the topic does not exist, or the user may not describe"),
            ("DESCRIBE", "GROUP", queue.group, "may not describe the group and its configs"),
            (
                "DESCRIBE_CONFIGS",
                "GROUP",
                queue.group,
                "may not describe the group and its configs",
            ),
            ("READ", "TOPIC", source, f"READ on topic '{source}'"),
            ("WRITE", "TOPIC", source, f"WRITE on topic '{source}'"),
        ):
            if name in (source, queue.group):
                ((_, reason),) = attempt().skipped
                assert complaint in reason
            else:
                with pytest.raises(ClientError, match=re.escape(complaint)):
                    attempt()
            broker.allow("ann", operation, kind, name)
        assert attempt().total == 1
