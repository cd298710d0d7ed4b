"""The page of a cluster with TLS and logins, on headrace and with ``--target kafka`` on Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.confluent import PATIENCE_S
from tests.support import unique, wait_until, write_properties
from tests.web.serving import acting, served


def test_views_and_actions_on_a_secured_cluster(secured: dict[str, Any], tmp_path: Path) -> None:
    topic = unique("orders")
    admin = AdminClient(secured)  # the futures of a deleted one fail
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    producer = Producer(secured)
    producer.produce(topic, b"one")
    assert producer.flush(PATIENCE_S) == 0
    file = write_properties(tmp_path / "client.properties", secured)
    options = ("--command-config", str(file))
    with (
        served(tmp_path, "--bootstrap-server", secured["bootstrap.servers"], *options) as page,
        acting(page) as user,
    ):

        def seen() -> bool:
            found = user.get("/api/topics", params={"filter": topic}).json()
            return [one["end_offset_sum"] for one in found.get("rows", ())] == [1]

        wait_until(seen, PATIENCE_S, "the page to see the topic", 0.1)
        asked = {"topic": topic, "value": "two", "dry_run": False}
        done = user.post("/api/actions/produce", json=asked).json()
        assert done["outcome"] == f"written to {topic}-0 at offset 1"
        found = user.get("/api/records", params={"topic": topic, "start": "earliest"}).json()
        assert [one["value"] for one in found["records"]] == ["one", "two"]
        assert user.get("/topic", params={"topic": topic}).status_code == 200
