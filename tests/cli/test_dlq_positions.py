"""The progress of redrives in a committed offset."""

from __future__ import annotations

import base64
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.main import main
from headrace.client.dead_letters import reading
from headrace.client.dead_letters.letters import (
    MAX_METADATA_CHARS,
    InvalidMetadata,
    QueuePosition,
)
from headrace.client.errors import ConnectionFailed
from headrace.client.groups import GroupList


def packed(text: str) -> str:
    return "redrive1:" + base64.b64encode(zlib.compress(text.encode())).decode()


SPANS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), max_size=30)


@given(start=st.integers(0, 300), parts=SPANS)
def test_a_position_is_what_was_added(start: int, parts: list[tuple[int, int]]) -> None:
    position = QueuePosition(start)
    done = set(range(start))
    for first, more in parts:
        position = position.with_done([(first, first + more)])
        done.update(range(first, first + more + 1))
    for offset in range(420):
        assert position.is_done(offset) == (offset in done), offset
    assert position.start not in done
    assert QueuePosition.read(position.start, position.metadata()) == position


def test_thousands_of_places_fit() -> None:
    every_other = QueuePosition(0, tuple((n, n) for n in range(1, 20_000, 2)))
    assert len(every_other.metadata()) < 200
    random = Random(1)
    offsets = sorted(random.sample(range(1, 150_000), 1500))
    scattered = QueuePosition(0).with_done((offset, offset) for offset in offsets)
    assert len(scattered.metadata()) < MAX_METADATA_CHARS


@pytest.mark.parametrize(
    "metadata",
    [
        "other",
        "redrive1:",
        "redrive1:AAAA",
        "redrive1:" + "A" * 9000,
        "redrive1:é",
        packed("[1.5, 1]"),
        packed("[1]"),
        packed("{}"),
        packed("[" * 100_000),
    ],
)
def test_metadata_of_others_is_refused(metadata: str) -> None:
    with pytest.raises(InvalidMetadata):
        QueuePosition.read(0, metadata)


def test_a_list_that_may_lack_queues_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = GroupList((), (ConnectionFailed("broker 2 is away"),), "the user needs DESCRIBE")
    monkeypatch.setattr(reading, "find_queues", lambda *arguments: ({}, listed))
    assert main(["dlq", "list"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "the user needs DESCRIBE",
        "headrace dlq list: not all brokers answered: broker 2 is away",
    ]
