"""Clients of librdkafka that close while a broker stands still."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from headrace.client import OrderedConsumer
from headrace.client.ordered import lag_consumer
from tests.clients.confluent import PATIENCE_S, create_topic, produce
from tests.support import HeadraceProcess, unique


def test_closing_ends_although_a_broker_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka would wait for the answer to its commit for as long as the broker stands."""
    monkeypatch.setattr(lag_consumer, "CLOSE_TIMEOUT_S", 0.5)
    with HeadraceProcess(tmp_path / "data") as server:
        topic = create_topic(server.bootstrap_servers, unique("topic"))
        produce(server.bootstrap_servers, topic, [b"1", b"2"], 0)
        conf = {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": unique("group"),
            "log_level": 0,
        }
        consumer = OrderedConsumer(conf, [topic])
        assert consumer.poll(PATIENCE_S)
        assert consumer.poll(PATIENCE_S)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            consumer.close()
        finally:
            os.kill(server.pid, signal.SIGCONT)
    assert "the consumer ends without leaving its group" in caplog.text
