"""A topic that is emptied, or deleted and made again, between two runs of one query."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.spark.conftest import Batches, Queue
from tests.spark.ordered_topics import Topics

pytestmark = pytest.mark.spark


def empty(topics: Topics, records: int) -> None:
    """Delete all records of the topic, as retention does."""
    topics.drop_records(0, records)


def make_again(topics: Topics, records: int) -> None:
    topics.drop(topics.names[0])
    topics.add(topics.names[0])


def fail(_: DataFrame) -> None:
    raise ConnectionError("the database is down")


@pytest.mark.parametrize("lose", [empty, make_again])
def test_the_next_run_gets_the_new_records(
    queue: Callable[..., Queue], drain: Callable[..., Batches], lose: Callable[[Topics, int], None]
) -> None:
    """The checkpoint has a micro-batch that failed, whose records no longer exist."""
    orders = queue(8, partitions=1)
    topics = Topics(orders.bootstrap_servers, (orders.topic,), 1)
    assert drain(orders, checkpoint="kept").values() == list(range(8))
    orders.produce(6, start=8)
    with pytest.raises(StreamingQueryException, match="the database is down"):
        drain(orders, fail, checkpoint="kept")

    lose(topics, 14)
    assert drain(orders, checkpoint="kept").values() == []
    orders.produce(5, start=100)
    assert drain(orders, checkpoint="kept").values() == list(range(100, 105))
    assert orders.is_drained()
