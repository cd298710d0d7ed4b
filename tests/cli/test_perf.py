"""`headrace perf` against the broker under test: its output, not its numbers."""

from __future__ import annotations

import json

from tests.cli.command import run
from tests.clients.confluent import create_topic, produce


def test_members_share_the_records(bootstrap_servers: str, topic_name: str, group_id: str) -> None:
    create_topic(bootstrap_servers, topic_name, 2)
    for partition in (0, 1):
        produce(bootstrap_servers, topic_name, [b"x" * 100] * 1000, partition)
    words = ["perf", "share-consume", topic_name, "--group", group_id, "-b", bootstrap_servers]
    status, output, errors = run(*words, "--max", "2000", "--members", "2", "-o", "jsonl")
    assert (status, errors) == (0, [])
    measured = json.loads(output)
    assert measured["record_count"] == 2000 and measured["mib"] == round(200_000 / 2**20, 3)
    assert measured["records_per_s"] > 0
    status, output, errors = run(*words, "--idle", "1s")
    assert (status, output) == (1, b""), "they were accepted: nothing is left"
    assert errors == ["headrace perf share-consume: no record came for 1 s"]


def test_failures_are_one_line(bootstrap_servers: str, topic_name: str) -> None:
    for where, complaint in (
        (bootstrap_servers, f"topic '{topic_name}' does not exist: create it first"),
        ("127.0.0.1:1", "no broker answers at 127.0.0.1:1: Connection refused"),
    ):
        status, output, (line,) = run("perf", "share-consume", topic_name, "-b", where)
        assert (status, output) == (1, b"")
        assert line.startswith("headrace perf share-consume: ") and complaint in line
