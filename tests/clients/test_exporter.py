"""`headrace exporter`: the metrics of groups, against headrace and Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from headrace.cli.exporter.scraper import Scraper
from headrace.client import Connection
from headrace.client.config import read_config
from headrace.client.lag.model import LagQuery
from tests.cli.command import start
from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    produce,
    share_consumer,
    share_from_earliest,
    take,
)
from tests.support import ROOT, free_port_pair, unique, wait_until, write_properties

Metrics = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(page: bytes) -> Metrics:
    """Return the samples of a page by name and labels."""
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(page.decode())
        for one in family.samples
    }


class Exporter:
    """An exporter in this process.

    :ivar sent: names of the requests of the last scrape
    """

    def __init__(
        self, config: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, **more: Any
    ) -> None:
        self._runner = asyncio.Runner()
        query = LagQuery(**{key: more[key] for key in more if key != "by_partition"})
        self._scraper = Scraper(
            replace(read_config(config), request_timeout_ms=int(PATIENCE_S * 1000)),
            query,
            by_partition=more.get("by_partition", False),
            window_s=60.0,
        )
        self.sent: list[str] = []
        self.page: Metrics = {}
        send = Connection.ask

        async def counted(connection: Connection, payload: Any, **options: Any) -> Any:
            self.sent.append(type(payload).__name__.removesuffix("Request"))
            return await send(connection, payload, **options)

        monkeypatch.setattr(Connection, "ask", counted)

    def scrape(self) -> Metrics:
        self.sent.clear()
        self.page = parsed(self._runner.run(self._scraper.page()))
        return self.page

    def value(self, name: str, **labels: str) -> float | None:
        """Return the only value of the last page with these labels, or None."""
        found = [
            value
            for (one, have), value in self.page.items()
            if one == f"headrace_{name}" and labels.items() <= set(have)
        ]
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None

    def close(self) -> None:
        self._runner.run(self._scraper.close())
        self._runner.close()


@pytest.fixture
def exporter(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Exporter]]:
    opened: list[Exporter] = []

    def make(config: Mapping[str, str] | None = None, **more: Any) -> Exporter:
        config = config or {"bootstrap.servers": bootstrap_servers}
        opened.append(Exporter(config, monkeypatch, **more))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def commit(
    config: Mapping[str, str], group_id: str, topic: str, offsets: Mapping[int, int]
) -> None:
    """Commit for a group without members."""
    client = AdminClient({**config, "log_level": 2})
    partitions = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    asked = [ConsumerGroupTopicPartitions(group_id, partitions)]

    def is_committed() -> bool:
        answer = client.alter_consumer_group_offsets(asked)[group_id].result(PATIENCE_S)
        return not any(one.error for one in answer.topic_partitions)

    # The coordinator of a new Apache Kafka may learn of a new topic later.
    wait_until(is_committed, PATIENCE_S, "committed offsets")


@pytest.fixture
def plain(bootstrap_servers: str) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap_servers}


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic with ten records in partition 0, and none in partition 1."""
    name = create_topic(bootstrap_servers, unique("topic"), partitions=2)
    produce(bootstrap_servers, name, [b"x"] * 10, partition=0)
    return name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_consumers(
    exporter: Callable[..., Exporter],
    bootstrap_servers: str,
    topic: str,
    group_id: str,
    protocol: str,
) -> None:
    metrics = exporter(groups_pattern=re.escape(group_id))
    with consumer(bootstrap_servers, group_id, group_protocol=protocol) as source:
        source.subscribe([topic])
        source.commit(message=take(source, 4)[-1], asynchronous=False)
        produce(bootstrap_servers, topic, [b"x"], partition=1)
        wait_until(
            lambda: metrics.scrape() and metrics.value("group_state", state="Stable"),
            PATIENCE_S,
            "a stable group",
        )
        labels = {"group": group_id, "type": protocol, "topic": topic}
        assert metrics.value("group_members", group=group_id, type=protocol) == 1
        assert metrics.value("group_lag", **labels) == 6
        age_s = metrics.value("group_lag_seconds", **labels)
        assert age_s is not None and 0 < age_s < 600
        # Nothing is committed in partition 1, so nothing is known of its record.
        assert metrics.value("group_unknown_partitions", **labels) == 1
    assert metrics.value("exporter_up") == 1 and metrics.value("exporter_problems") == 0


def test_a_share_group(
    exporter: Callable[..., Exporter], bootstrap_servers: str, topic: str, group_id: str
) -> None:
    metrics = exporter(groups_pattern=re.escape(group_id))
    share_from_earliest(bootstrap_servers, group_id)
    labels = {"group": group_id, "type": "share", "topic": topic}
    with share_consumer(bootstrap_servers, group_id, [topic]) as source:
        taken = wait_until(lambda: source.poll(1.0), PATIENCE_S, "records")
        for message in taken[:4]:
            source.acknowledge(message)
        source.commit_sync(timeout=PATIENCE_S)
        wait_until(
            lambda: metrics.scrape() and metrics.value("group_lag", **labels) == 6,
            PATIENCE_S,
            "the lag of what is accepted",
        )
        assert metrics.value("group_members", group=group_id, type="share") == 1
    age_s = metrics.value("group_lag_seconds", **labels)
    assert age_s is not None and 0 < age_s < 600


def test_unknown_is_absent(
    exporter: Callable[..., Exporter], bootstrap_servers: str, topic: str, group_id: str
) -> None:
    """A member that has committed nothing: its lag is neither 0 nor -1."""
    metrics = exporter(groups_pattern=re.escape(group_id))
    with consumer(bootstrap_servers, group_id) as source:
        source.subscribe([topic])
        wait_until(
            lambda: (
                source.poll(0.1) is None
                or (metrics.scrape() and metrics.value("group_unknown_partitions"))
            ),
            PATIENCE_S,
            "an assignment",
        )
        wait_until(
            lambda: metrics.scrape() and metrics.value("group_unknown_partitions"),
            PATIENCE_S,
            "partitions",
        )
    assert metrics.value("group_unknown_partitions", group=group_id, topic=topic) == 1
    for name in ("group_lag", "group_lag_seconds", "group_seconds_to_zero"):
        assert metrics.value(name) is None, name
    assert metrics.value("group_members") == 1


def test_counts_rates_and_forecasts(
    exporter: Callable[..., Exporter],
    bootstrap_servers: str,
    plain: dict[str, str],
    topic: str,
    group_id: str,
) -> None:
    metrics = exporter(groups_pattern=re.escape(group_id))
    commit(plain, group_id, topic, {0: 0, 1: 0})
    metrics.scrape()
    assert metrics.value("group_consumed_records_total") == 0
    assert metrics.value("group_consumption_rate") is None, "unknown before the second scrape"
    assert metrics.value("group_seconds_to_zero") is None

    commit(plain, group_id, topic, {0: 4})
    produce(bootstrap_servers, topic, [b"x"] * 2, partition=1)
    metrics.scrape()
    assert metrics.value("group_consumed_records_total") == 4
    assert metrics.value("topic_produced_records_total", topic=topic) == 2
    consumed, produced = (
        metrics.value(name) for name in ("group_consumption_rate", "topic_production_rate")
    )
    assert consumed and produced and consumed == pytest.approx(2 * produced)
    assert metrics.value("group_lag") == 8
    assert metrics.value("group_seconds_to_zero") == pytest.approx(8 / consumed), "it keeps up"

    commit(plain, group_id, topic, {0: 1})  # rewound: no consumption, and nothing is taken back
    produce(bootstrap_servers, topic, [b"x"] * 2000, partition=1)
    metrics.scrape()
    assert metrics.value("group_consumed_records_total") == 4
    assert metrics.value("group_seconds_to_zero") == inf, "it is produced faster"

    commit(plain, group_id, topic, {0: 10, 1: 2002})
    metrics.scrape()
    assert metrics.value("group_lag") == metrics.value("group_lag_seconds") == 0
    assert metrics.value("group_seconds_to_zero") == 0


def test_a_group_that_vanishes_goes(
    exporter: Callable[..., Exporter],
    bootstrap_servers: str,
    plain: dict[str, str],
    topic: str,
    group_id: str,
) -> None:
    metrics = exporter(groups_pattern=re.escape(group_id))
    commit(plain, group_id, topic, {0: 4})
    assert any(("group", group_id) in labels for _, labels in metrics.scrape())
    admin(bootstrap_servers).delete_consumer_groups([group_id])[group_id].result(PATIENCE_S)
    assert {name for name, _ in metrics.scrape()} == {
        "headrace_exporter_up",
        "headrace_exporter_scrape_seconds",
        "headrace_exporter_problems",
    }


def test_filters(
    exporter: Callable[..., Exporter], bootstrap_servers: str, plain: dict[str, str]
) -> None:
    prefix = unique("f")
    topics = [create_topic(bootstrap_servers, f"{prefix}-{name}") for name in ("a", "b")]
    for name in ("x", "y", "z"):
        for topic in topics:
            commit(plain, f"{prefix}-{name}", topic, {0: 0})
    metrics = exporter(
        groups_pattern=f"{prefix}-.*",
        groups_excluded=".*-y",
        topics_pattern=f"{prefix}-[ab]",
        topics_excluded=".*-b",
    )
    found = {
        (dict(labels)["group"], dict(labels)["topic"])
        for name, labels in metrics.scrape()
        if name == "headrace_group_lag"
    }
    assert found == {(f"{prefix}-x", f"{prefix}-a"), (f"{prefix}-z", f"{prefix}-a")}


def test_a_scrape_costs_the_same_requests_for_many_groups_and_partitions(
    exporter: Callable[..., Exporter], bootstrap_servers: str, plain: dict[str, str]
) -> None:
    prefix = unique("many")
    topic = create_topic(bootstrap_servers, prefix, partitions=30)
    for partition in range(30):
        produce(bootstrap_servers, topic, [b"x"] * 2, partition=partition)
    metrics = exporter(groups_pattern=f"{prefix}-.*", by_partition=True)

    def requests() -> list[str]:
        metrics.scrape()
        return sorted(one for one in metrics.sent if one not in ("ApiVersions", "Metadata"))

    once = ["DescribeCluster", "DescribeGroups", "ListGroups", *["ListOffsets"] * 3, "OffsetFetch"]
    commit(plain, f"{prefix}-0", topic, dict.fromkeys(range(30), 0))
    assert requests() == sorted([*once, "Fetch"])
    for number in range(1, 40):
        commit(plain, f"{prefix}-{number}", topic, dict.fromkeys(range(30), number % 2))
    assert requests() == sorted([*once, "Fetch"])
    assert requests() == sorted(once), "no record is read twice for a position that stays"
    for partition in range(30):
        labels = {"group": f"{prefix}-1", "topic": topic, "partition": str(partition)}
        assert metrics.value("group_partition_lag", **labels) == 1
        assert metrics.value("group_partition_offset", **labels) == 1
        assert metrics.value("group_partition_lag_seconds", **labels)
        end = {"topic": topic, "partition": str(partition)}
        assert metrics.value("topic_partition_end_offset", **end) == 2


def test_the_requests_for_records_have_a_limit(
    exporter: Callable[..., Exporter],
    bootstrap_servers: str,
    plain: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Positions far apart, each in a batch of its own, would take a request each."""
    monkeypatch.setattr("headrace.client.lag.watch.MAX_FETCHES", 3)
    topic = create_topic(bootstrap_servers, unique("far"))
    for _ in range(8):
        produce(bootstrap_servers, topic, [bytes(300_000)])
    metrics = exporter(topics_pattern=topic)
    for position in range(8):
        commit(plain, f"{topic}-{position}", topic, {0: position})

    def known() -> int:
        metrics.scrape()
        assert metrics.sent.count("Fetch") <= 3
        return sum(name == "headrace_group_lag_seconds" for name, _ in metrics.page)

    first = known()
    assert 0 < first < 8
    assert known() > first, "the next scrape goes on"
    while known() < 8:
        pass


def test_a_secured_cluster(
    secured: dict[str, str], group_id: str, topic_name: str, tmp_path: Path
) -> None:
    producer = Producer({**secured, "log_level": 2})
    producer.produce(topic_name, b"x")
    assert producer.flush(PATIENCE_S) == 0
    commit(secured, group_id, topic_name, {0: 0})
    file = write_properties(tmp_path / "client.properties", secured)
    with Running("--command-config", str(file), servers=secured["bootstrap.servers"]) as running:
        page = running.get()
    labels = {("group", group_id), ("type", "classic"), ("topic", topic_name)}
    assert page["headrace_group_lag", frozenset(labels)] == 1
    assert page["headrace_exporter_up", frozenset()] == 1


class Running:
    """The command `headrace exporter`, on a free port."""

    def __init__(self, *options: str, servers: str) -> None:
        self._process = start(
            "exporter", "--bootstrap-server", servers, "--listen", "127.0.0.1:0", *options
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line.startswith("metrics are at "), self._process.communicate()
        self.url = line.split()[-1]

    def get(self) -> Metrics:
        with urllib.request.urlopen(self.url, timeout=PATIENCE_S) as response:
            return parsed(response.read())

    def peak_bytes(self) -> int:
        """Return the most memory that the process has had."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        _, said = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, said


def test_a_cluster_that_does_not_answer_is_said_to_be_down() -> None:
    with Running(servers="127.0.0.1:1") as running:
        page = running.get()
    assert {name for name, _ in page} == {
        "headrace_exporter_up",
        "headrace_exporter_scrape_seconds",
        "headrace_exporter_problems",
    }
    assert page["headrace_exporter_up", frozenset()] == 0


PROMETHEUS_MISSING = (
    "prometheus is not installed (Debian's package prometheus): no real Prometheus has scraped the "
    "exporter"
)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason=PROMETHEUS_MISSING)
def test_a_real_prometheus_scrapes_it_with_the_alert_rules(
    bootstrap_servers: str, plain: dict[str, str], topic: str, group_id: str, tmp_path: Path
) -> None:
    commit(plain, group_id, topic, {0: 4})
    shutil.copy(ROOT / "deploy/prometheus/alerts.yml", tmp_path)
    port = free_port_pair()
    with Running("--groups-pattern", group_id, servers=bootstrap_servers) as running:
        text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        text = text.replace("127.0.0.1:9308", running.url.split("/")[2]).replace("15s", "1s")
        (tmp_path / "prometheus.yml").write_text(text)
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def asked(path: str) -> Any:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}") as response:
                    return json.load(response)["data"]
            except OSError:
                return None

        def lag() -> Any:
            found = asked("query?query=headrace_group_lag")
            return found and found["result"]

        try:
            (sample,) = wait_until(lag, PATIENCE_S, "a scrape by Prometheus")
            assert sample["value"][1] == "6" and sample["metric"]["group"] == group_id
            (rules,) = asked("rules")["groups"]
            assert {rule["name"] for rule in rules["rules"]} >= {"GroupFallsBehind", "GroupStands"}
            wait_until(
                lambda: all(
                    rule["health"] == "ok" for rule in asked("rules")["groups"][0]["rules"]
                ),
                PATIENCE_S,
                "evaluated rules",
            )
        finally:
            server.terminate()
            server.wait(PATIENCE_S)
