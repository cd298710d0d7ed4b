"""The tutorial, the how-to pages and that of dead letters work as they stand."""

from __future__ import annotations

import pytest

from .reader import Block, Reader

pytestmark = pytest.mark.broker


@pytest.mark.follows("docs/tutorial.md")
def test_tutorial(reader: Reader, page: list[Block]) -> None:
    reader.follow(*page)


@pytest.mark.follows("docs/how-to/queue.md")
def test_queue(reader: Reader, page: list[Block]) -> None:
    reader.serve("headrace serve")
    reader.follow(*page)


@pytest.mark.follows("docs/how-to/ordered.md")
def test_ordered(reader: Reader, page: list[Block]) -> None:
    reader.serve("headrace serve")
    assert "at the end: 0" in reader.follow(*page)[-1]


@pytest.mark.follows("docs/how-to/worker.md")
def test_worker(reader: Reader, page: list[Block]) -> None:
    printed = reader.follow(*page)
    assert any("packing three blue boxes express" in text for text in printed)
    assert "2 passed" in printed[-1]


@pytest.mark.follows("docs/how-to/test-fixtures.md")
def test_test_fixtures(reader: Reader, page: list[Block]) -> None:
    printed = reader.follow(*page)
    assert sum("1 passed" in text for text in printed) == 6


@pytest.mark.follows("docs/dead-letters.md")
def test_dead_letters(reader: Reader, page: list[Block]) -> None:
    reader.serve("headrace serve")
    reader.follow(*page)


@pytest.mark.follows("docs/how-to/apache-kafka.md")
def test_apache_kafka(reader: Reader, page: list[Block]) -> None:
    """A second broker stands for the cluster."""
    reader.serve("headrace serve")
    reader.serve("headrace serve --listen 127.0.0.1:9093 --data-dir cluster", "of the cluster")
    produced = reader.run("headrace topics create orders && seq 20 | headrace produce orders")
    assert produced.returncode == 0, produced.stderr
    reader.follow(*page)
    moved = reader.run("headrace consume orders --exit --bootstrap-server 127.0.0.1:9093")
    assert sorted(map(int, moved.stdout.split())) == list(range(1, 21))
