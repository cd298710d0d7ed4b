"""Each command that lists something × each form of output: the same rows, with the same fields."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from headrace.blocking import ShareConsumer
from headrace.cli.main import main
from headrace.cli.output import title
from tests.cli.command import start
from tests.clients.confluent import PATIENCE_S, create_topic, produce
from tests.support import unique, wait_until
from tests.vocabulary import misnamed

GROUPS = {"group_id", "group_type", "group_state"}
LISTS = {
    "topics list {topic}": {"topic", "partition_count", "is_internal", "topic_id"},
    "topics describe {topic}": {"topic", "partition_count", "replication_factor", "configs"},
    "topics describe {topic} --partitions": {"topic", "partition", "leader", "replicas", "isr"},
    "configs describe topic {topic} --all": {"resource_type", "resource_name", "config", "value"},
    "configs describe broker --all": {"resource_type", "config", "source", "read_only"},
    "groups list {group}": {*GROUPS, "protocol_type"},
    "groups describe {group}": {*GROUPS, "member_count", "assignor", "coordinator"},
    "groups members {group}": {"group_id", "member_id", "client_id", "host", "assignment"},
    "groups offsets {group}": {"group_id", "topic", "partition", "start_offset", "lag"},
    "lag show {group}": {*GROUPS, "topic", "lag"},
    "lag show {group} --partitions": {*GROUPS, "topic", "partition", "lag", "held"},
    "consume {topic} --exit": {"topic", "partition", "offset", "timestamp_ms", "key", "value"},
}
"""Command → some of its fields."""


@pytest.fixture(scope="module")
def world(bootstrap_servers: str) -> dict[str, str]:
    """A topic with records, and a share group."""
    topic = create_topic(bootstrap_servers, unique("listed"), retention_ms="1000000000000")
    produce(bootstrap_servers, topic, [b"one", b"two"])
    return {"topic": topic, "group": unique("listed"), "servers": bootstrap_servers}


@pytest.fixture(scope="module", autouse=True)
def member(world: dict[str, str]) -> Iterator[None]:
    """Hold a record in the share group."""
    conf = {"bootstrap.servers": world["servers"], "group.id": world["group"]}
    with ShareConsumer(conf, [world["topic"]], start="earliest") as queue:
        wait_until(lambda: queue.poll(1, 1.0), PATIENCE_S, "a record")
        yield


@pytest.mark.parametrize(("command", "fields"), LISTS.items(), ids=LISTS)
def test_forms(
    world: dict[str, str],
    command: str,
    fields: set[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*command.format(**world).split(), "-b", world["servers"]]

    def printed(form: str) -> str:
        capsys.readouterr()
        assert main([*words, "-o", form]) == 0
        return capsys.readouterr().out

    array = json.loads(printed("json"))
    lines = [json.loads(line) for line in printed("jsonl").splitlines()]
    assert array and len(array) == len(lines)
    assert all(row.keys() == array[0].keys() for row in [*array, *lines])
    assert fields <= array[0].keys()
    assert [name for row in array for name in misnamed(row)] == []
    if command.startswith("consume"):
        return
    for form in ("table", "wide"):
        titles = set(printed(form).splitlines()[0].split())
        of_json = set(map(title, array[0]))
        if not command.startswith("lag") or "--partitions" in command:  # else a row for each topic
            assert titles == of_json if form == "wide" else titles <= of_json


def test_consume_ends_with_the_reader_of_its_output(world: dict[str, str]) -> None:
    process = start("consume", world["topic"], "-b", world["servers"])
    try:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"one\ntwo\n"
        process.stdout.close()  # no record comes whose write could fail
        assert process.wait(PATIENCE_S) == 1
    finally:
        process.kill()
