"""One client sends many requests without reading an answer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.attacks.harness import (
    MIB,
    create_topics,
    crowd,
    fetch,
    fill,
    metadata_of_all,
    watching,
)
from tests.support import HeadraceProcess, unique

pytestmark = [pytest.mark.broker, pytest.mark.alone]


def test_pipelined_fetches_that_nobody_reads_take_no_memory(tmp_path: Path) -> None:
    topic = unique("pipelined")
    with HeadraceProcess(tmp_path / "data") as broker:
        fill(broker, topic, 50 * MIB)
        with watching(broker) as watch, crowd(broker.bootstrap_servers, 1, 4096) as (sock,):
            sock.sendall(b"".join(fetch(topic, correlation_id=i) for i in range(80)))
            time.sleep(3)
    assert watch.grown_bytes < 16 * MIB
    assert not watch.honest.errors


@pytest.mark.slow
def test_pipelined_metadata_delays_nobody(tmp_path: Path) -> None:
    with HeadraceProcess(tmp_path / "data") as broker:
        create_topics(broker.bootstrap_servers, 1000)
        with watching(broker) as watch, crowd(broker.bootstrap_servers, 1) as (sock,):
            sock.sendall(b"".join(metadata_of_all(i) for i in range(1000)))
            time.sleep(5)
    assert watch.grown_bytes < 16 * MIB
    assert watch.honest.p99_ms < 300
