"""Kafka Connect: a standalone worker, and MirrorMaker 2 between headrace and Apache Kafka."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.clients.confluent import PATIENCE_S, admin, config_of, consumer, create_topic, take
from tests.peer import OLDER_CLIENTS, KafkaPeer, java_program
from tests.support import (
    HeadraceProcess,
    free_port_pair,
    unique,
    wait_until,
    write_properties,
)

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(1200)]

CONNECT_S = 180.0
"""The time in which Connect has done something: a JVM starts, then workers, connectors and tasks,
one after the other, each with clients of its own. That takes minutes on a busy machine.
"""
FILE_STREAM = "org.apache.kafka.connect.file.FileStream"


@contextmanager
def running(main_class: str, *files: Path) -> Iterator[None]:
    """Run a program of Kafka with files of properties; end it with SIGTERM, or kill it when it does
    not end: the shutdown hooks of Connect and of its web server may disturb each other.
    """
    log = files[0].with_suffix(".log")
    command = java_program(
        main_class, *map(str, files), options=("-Xmx512m",), version=OLDER_CLIENTS
    )
    with log.open("a") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
        assert process.poll() is None, log.read_text()[-5000:]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def records(bootstrap_servers: str, topic: str, count: int) -> list[Message]:
    """Return the first records of partition 0 for a read_committed consumer."""
    with consumer(bootstrap_servers, unique("reader")) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        return take(reader, count, CONNECT_S)


def committed(bootstrap_servers: str, group_id: str, topic: str) -> int:
    """Return the committed offset of partition 0, or a negative number."""
    with consumer(bootstrap_servers, group_id) as member:
        (partition,) = member.committed([TopicPartition(topic, 0)], PATIENCE_S)
        return int(partition.offset)


def test_standalone(tmp_path: Path, kafka_libs: Path, bootstrap_servers: str) -> None:
    """A file becomes a topic, and the topic another file; a restart goes on from stored offsets.
    The line that is not JSON becomes a dead letter.
    """
    topic, letters, sink = unique("lines"), unique("letters"), unique("sink")
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    offsets = tmp_path / "offsets"
    source.write_text("0\n1\nnot JSON\n2\n")
    string = "org.apache.kafka.connect.storage.StringConverter"
    files = [
        write_properties(
            tmp_path / "worker.properties",
            {
                "bootstrap.servers": bootstrap_servers,
                "key.converter": string,
                "value.converter": string,
                "listeners": f"http://127.0.0.1:{free_port_pair()}",
                "offset.flush.interval.ms": 500,
                "offset.storage.file.filename": offsets,
                "plugin.discovery": "service_load",
            },
        ),
        write_properties(
            tmp_path / "source.properties",
            {
                "name": unique("source"),
                "connector.class": f"{FILE_STREAM}SourceConnector",
                "file": source,
                "topic": topic,
                "topic.creation.default.partitions": 1,
                "topic.creation.default.replication.factor": 1,
            },
        ),
        write_properties(
            tmp_path / "sink.properties",
            {
                "name": sink,
                "connector.class": f"{FILE_STREAM}SinkConnector",
                "file": target,
                "topics": topic,
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": letters,
                "errors.deadletterqueue.topic.replication.factor": 1,
                "errors.deadletterqueue.context.headers.enable": "true",
                # the topic may not exist yet when the sink subscribes
                "consumer.override.metadata.max.age.ms": 500,
                "consumer.override.auto.offset.reset": "earliest",
            },
        ),
    ]

    def copied(*lines: str) -> None:
        def is_there() -> bool:
            return target.exists() and target.read_text().splitlines() == list(lines)

        wait_until(is_there, CONNECT_S, f"{lines} in {target}")
        end = len(lines) + 1
        wait_until(
            lambda: committed(bootstrap_servers, f"connect-{sink}", topic) == end,
            CONNECT_S,
            "the sink to commit",
            interval_s=0.5,
        )
        position = b'{"position":%d}' % source.stat().st_size
        wait_until(
            lambda: offsets.exists() and position in offsets.read_bytes(),
            CONNECT_S,
            "the source to store its offset",
        )

    main_class = "org.apache.kafka.connect.cli.ConnectStandalone"
    with running(main_class, *files):
        copied("0", "1", "2")
    with source.open("a") as more:
        more.write("3\n4\n")
    with running(main_class, *files):
        copied("0", "1", "2", "3", "4")
    written = [message.value() for message in records(bootstrap_servers, topic, 6)]
    assert written == [b"0", b"1", b"not JSON", b"2", b"3", b"4"]
    (letter,) = records(bootstrap_servers, letters, 1)
    assert letter.value() == b"not JSON"
    assert ("__connect.errors.topic", topic.encode()) in letter.headers()


def commit(bootstrap_servers: str, group_id: str, topic: str, offset: int) -> None:
    """Read up to `offset` and commit it, as a member of the group."""
    source = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    source.subscribe([topic])
    message = take(source, offset)[-1]
    source.commit(message, asynchronous=False)
    source.close()


def check_mirrored(bootstrap_servers: str, source: str, topic: str, group_id: str) -> None:
    """Wait for the copy of a topic and of its group's offset, and check them."""
    copy = f"{source}.{topic}"
    wait_until(
        lambda: copy in admin(bootstrap_servers).list_topics(timeout=PATIENCE_S).topics,
        CONNECT_S,
        f"the topic {copy}",
        interval_s=0.5,
    )
    messages = records(bootstrap_servers, copy, 20)
    assert [message.value() for message in messages] == [b"value %d" % i for i in range(20)]
    assert {message.key() for message in messages} == {b"key"}
    assert messages[0].headers() == [("from", source.encode())]
    # The end is the one offset that MirrorMaker always translates: a task that starts after the
    # records were copied knows where the last of them went, but not the others.
    wait_until(
        lambda: committed(bootstrap_servers, group_id, copy) == messages[-1].offset() + 1,
        CONNECT_S,
        "the offset of the group",
        interval_s=0.5,
    )
    assert config_of(bootstrap_servers, copy, "retention.ms") == "123456789"


def test_mirror_maker(
    tmp_path: Path, kafka_libs: Path, headrace_server: HeadraceProcess, kafka_server: KafkaPeer
) -> None:
    """Topics are mirrored in both directions, exactly once, with their configs and the offsets of
    their groups.
    """
    servers = {
        "headrace": headrace_server.bootstrap_servers,
        "kafka": kafka_server.bootstrap_servers,
    }
    topics, groups = ({name: unique(kind) for name in servers} for kind in ("topic", "group"))
    pairs = [("headrace", "kafka"), ("kafka", "headrace")]
    for name, address in servers.items():
        create_topic(address, topics[name], retention_ms="123456789")
        producer = Producer({"bootstrap.servers": address, "compression.type": "lz4"})
        for i in range(20):
            producer.produce(topics[name], b"value %d" % i, b"key", headers={"from": name})
        assert producer.flush(PATIENCE_S) == 0
        commit(address, groups[name], topics[name], 20)
    settings: dict[str, object] = {
        "clusters": "headrace, kafka",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_port_pair()}",
        "offset.flush.interval.ms": 500,
        "offset.lag.max": 0,
        "sync.topic.acls.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
    }
    for kind in ("checkpoints.topic", "offset-syncs.topic", "heartbeats.topic"):
        settings[f"{kind}.replication.factor"] = 1
    for kind in ("config.storage", "offset.storage", "status.storage"):
        settings[f"{kind}.replication.factor"] = 1
    for name in ("emit.checkpoints", "sync.group.offsets", "refresh.groups", "sync.topic.configs"):
        settings[f"{name}.interval.seconds"] = 1
    settings["replication.factor"] = 1
    for name, address in servers.items():
        settings[f"{name}.bootstrap.servers"] = address
        settings[f"{name}.exactly.once.source.support"] = "enabled"
        settings[f"{name}.plugin.discovery"] = "service_load"
    for source, target in pairs:
        settings[f"{source}->{target}.enabled"] = "true"
        settings[f"{source}->{target}.topics"] = topics[source]
        settings[f"{source}->{target}.groups"] = groups[source]
    file = write_properties(tmp_path / "mm2.properties", settings)
    with running("org.apache.kafka.connect.mirror.MirrorMaker", file):
        for source, target in pairs:
            check_mirrored(servers[target], source, topics[source], groups[source])
