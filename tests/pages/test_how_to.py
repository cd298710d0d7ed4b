"""The tutorial and the how-to pages work as they stand."""

from __future__ import annotations

import pytest

from .reader import Reader, blocks

pytestmark = pytest.mark.broker


def test_tutorial(reader: Reader) -> None:
    reader.follow(*blocks("docs/tutorial.md"))


def test_test_fixtures(reader: Reader) -> None:
    printed = reader.follow(*blocks("docs/how-to/test-fixtures.md"))
    assert sum("1 passed" in text for text in printed) == 3


def test_dead_letters(reader: Reader) -> None:
    reader.serve("headrace serve")
    reader.follow(*blocks("docs/how-to/dead-letters.md"))


def test_apache_kafka(reader: Reader) -> None:
    """A second broker stands for the cluster."""
    reader.serve("headrace serve")
    reader.serve("headrace serve --listen 127.0.0.1:9093 --data-dir cluster")
    produced = reader.run("headrace topics create orders && seq 20 | headrace produce orders")
    assert produced.returncode == 0, produced.stderr
    reader.follow(*blocks("docs/how-to/apache-kafka.md"))
    moved = reader.run(
        "headrace consume orders --from-beginning --to-end --bootstrap-server 127.0.0.1:9093"
    )
    assert sorted(map(int, moved.stdout.split())) == list(range(1, 21))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_spark(reader: Reader) -> None:
    reader.serve("headrace serve")
    reader.follow(*blocks("docs/how-to/spark.md"))
