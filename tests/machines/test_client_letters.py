"""Dead letters without a copy, whose records are looked up in their topics."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.dead_letters.letters import DeadLetter, QueuePosition, parse_letter
from headrace.client.dead_letters.reading import QueueReader, QueueSummary
from headrace.client.errors import ClientError, RequestRefused, UnknownTopic
from headrace.client.records import Record
from headrace.protocol import dead_letters
from headrace.protocol.errors import ErrorCode

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000}


def letter(offset: int) -> DeadLetter | None:
    place = {"topic": "t", "partition": "0", "offset": str(offset)}
    headers = [(f"__dlq.errors.{name}", value.encode()) for name, value in place.items()]
    return parse_letter(Record("dlq", 0, 7, None, None, tuple(headers), 1000, "CreateTime", 0))


def refusal(code: ErrorCode) -> RequestRefused:
    return RequestRefused("looking up topic 't'", code)


def letter_from(topic: TopicMetadata | ClientError, monkeypatch: pytest.MonkeyPatch) -> DeadLetter:
    """Return a letter of a record, for whose topic a cluster answers this."""

    async def metadata(*_: object) -> Any:
        return {"t": topic}

    monkeypatch.setattr(Cluster, "metadata", metadata)
    found = letter(5)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        (TopicMetadata("t", UUID(int=1), {0: -1}), "t-0 has no leader"),
        (refusal(ErrorCode.LEADER_NOT_AVAILABLE), "LEADER_NOT_AVAILABLE"),
    ],
)
def test_a_record_whose_leader_is_away_does_not_count_as_gone(
    monkeypatch: pytest.MonkeyPatch, topic: Any, problem: str
) -> None:
    found = letter_from(topic, monkeypatch)
    with QueueReader(CONFIG, "dlq") as reader, pytest.raises(ClientError, match=problem):
        reader.filled(found)


@pytest.mark.parametrize(
    "topic",
    [
        TopicMetadata("t", UUID(int=1), {1: 0}),
        UnknownTopic("t"),
        refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        refusal(ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_record_whose_partition_does_not_exist_is_gone(
    monkeypatch: pytest.MonkeyPatch, topic: Any
) -> None:
    found = letter_from(topic, monkeypatch)
    with QueueReader(CONFIG, "dlq") as reader:
        assert reader.filled(found) == found


def test_an_offset_that_no_log_can_have_is_that_of_no_letter() -> None:
    assert letter(2**63 - 1) is not None
    assert letter(2**63) is None


def by_worker(offset: int, *, own: tuple[tuple[str, bytes], ...] = ()) -> list[tuple[str, bytes]]:
    """Return the headers of a letter that a worker has written."""
    texts = ("t", "0", str(offset), "g", "2", "ValueError: no")
    worker = ("4", "host-1", "ValueError", "Traceback …\n  in pack")
    names = (*dead_letters.HEADERS, *dead_letters.WORKER_HEADERS)
    values = (text.encode() for text in (*texts, *worker))
    return [*own, *zip(names, values, strict=True)]


def parsed(headers: list[tuple[str, bytes]]) -> DeadLetter:
    record = Record("dlq", 0, 7, b"k", b"v", tuple(headers), 1000, "CreateTime", 0)
    result = parse_letter(record)
    assert result is not None
    return result


def test_the_headers_of_a_worker_are_fields_and_no_content() -> None:
    letter = parsed(by_worker(5, own=(("a", b"1"),)))
    assert letter.headers == (("a", b"1"),)
    assert (letter.attempt, letter.worker, letter.exception) == (4, "host-1", "ValueError")
    assert letter.traceback == "Traceback …\n  in pack"


def test_letters_of_a_worker_are_counted_by_the_type_of_the_exception() -> None:
    queue = QueueSummary("dlq", 1, ())
    for offset in range(3):
        letter = parsed(by_worker(offset))
        queue.add(letter._replace(message=f"ValueError: {offset}"), {0: QueuePosition(1)})
        queue.add(letter._replace(exception=None, message="rejected"), None)
    counts = {reason: count.letters for (_, _, reason), count in queue.counts.items()}
    assert counts == {"ValueError": 3, "rejected": 3}


def test_a_brokers_letter_about_a_workers_letter_keeps_that_one_whole() -> None:
    inner = by_worker(5, own=(("a", b"1"),))
    outer = [(name, b"7") for name in dead_letters.HEADERS]
    letter = parsed([*inner, *outer])
    assert letter.headers == tuple(inner)
    assert (letter.source_offset, letter.attempt, letter.traceback) == (7, None, None)
    again = parsed([*inner, *by_worker(8)])
    assert again.headers == tuple(inner)
    assert (again.source_offset, again.attempt) == (8, 4)


def test_a_redriven_record_begins_anew() -> None:
    own = (("a", b"1"), ("headrace-attempts", b"9"), ("headrace-due", b"123"))
    assert parsed(by_worker(5, own=own)).redriven_headers() == [
        ("a", b"1"),
        (dead_letters.REDRIVE_COUNT, b"1"),
    ]
