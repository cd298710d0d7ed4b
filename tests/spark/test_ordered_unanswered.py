"""Runs of `kafka-ordered` that end by themselves, while brokers leave requests unanswered."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from typing import Any

import pytest

from headrace.client import ClientError, ConnectionFailed
from headrace.client.connection import Connection
from headrace.spark.errors import SourceError
from headrace.spark.ordered import source
from tests.spark.ordered_query import Query
from tests.spark.ordered_topics import Place, Topics

ANSWER = Connection.ask


class Losses:
    """Requests of a run, of which some are not answered.

    :param first: number of the first request without an answer
    :param count: number of requests of the same API without an answer, from there on
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: int, count: int) -> None:
        self.sent = 0
        self.lost: Counter[str] = Counter()
        losses = self

        async def request(connection: Connection, payload: Any, **options: Any) -> Any:
            number, name = losses.sent, type(payload).__name__
            losses.sent += 1
            is_next = not losses.lost and number == first
            if is_next or 0 < losses.lost[name] < count:
                losses.lost[name] += 1
                raise ConnectionFailed("the broker did not answer within 10 s")
            return await ANSWER(connection, payload, **options)

        monkeypatch.setattr(Connection, "ask", request)


@pytest.fixture(autouse=True)
def full_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the traceback limit that the readers set for a process that ends."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)


@pytest.fixture
def topics(bootstrap_servers: str) -> Topics:
    made = Topics.create(bootstrap_servers, 2)
    made.produce(0, range(1000, 2000, 20))
    made.produce(1, range(1010, 2000, 20))
    return made


def run(topics: Topics, **options: Any) -> list[Place]:
    """Run a new query with `Trigger.AvailableNow`; return its rows."""
    query = Query(topics, **options)
    query.reader.prepareForTriggerAvailableNow()
    return query.until_idle()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("options", [{}, {"maxTaskIdleMs": -1}], ids=["waits", "does not wait"])
def test_a_run_reads_everything_or_fails_whichever_requests_are_lost(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], count: int
) -> None:
    whole, complete, failures = topics.merged(), 0, list[str]()
    for first in itertools.count():
        losses = Losses(monkeypatch, first, count)
        try:
            rows = run(topics, maxOffsetsPerTrigger=40, **options)
        except (SourceError, ClientError) as failure:
            failures.append(str(failure))
        else:
            assert rows == whole, f"request {first} lost: {losses.lost}"
            complete += 1
        if losses.sent <= first:
            break
    assert complete > len(failures)
    assert not [failure for failure in failures if "\n" in failure]
    assert first > 15, "the run sent too few requests for this test to tell anything"


def test_a_run_whose_leaders_have_stopped_answering_fails(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_UNREADABLE_TIMEOUT_S", 0.2)
    query = Query(topics, maxOffsetsPerTrigger=40)
    query.reader.prepareForTriggerAvailableNow()

    async def request(connection: Connection, payload: Any, **options: Any) -> Any:
        if type(payload).__name__ == "ListOffsetsRequest":
            raise ConnectionFailed("the broker did not answer within 10 s")
        return await ANSWER(connection, payload, **options)

    monkeypatch.setattr(Connection, "ask", request)
    first, second = topics.names
    with pytest.raises(SourceError, match=rf"the leaders of {first}-0, {second}-0 have not answer"):
        query.until_idle()
