"""Regular expressions of clients: matched off the event loop, each topic name once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.groups.consumer.regex import InvalidRegex, Regex
from headrace.handlers import api_68_consumer_group_heartbeat
from headrace.protocol.errors import ErrorCode
from headrace.protocol.time_slices import run_now
from headrace.topics import regex_matcher
from tests.handler_client import ask
from tests.support import HANG_S, story_in

LIST_GROUPS, CONSUMER_GROUP_HEARTBEAT = 16, 68


class Thread:
    """What the threads match.

    :ivar may_match: cleared while a match takes long
    :ivar texts: those that were matched
    """

    def __init__(self) -> None:
        self.may_match = threading.Event()
        self.may_match.set()
        self.texts: list[str] = []


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[Thread]:
    made, matches = Thread(), Regex.matches

    def observed(regex: Regex, text: str) -> bool:
        made.may_match.wait(HANG_S)
        made.texts.append(text)
        return matches(regex, text)

    monkeypatch.setattr(Regex, "matches", observed)
    yield made
    made.may_match.set()


@asynccontextmanager
async def broker_with_topics() -> AsyncIterator[Broker]:
    broker = Broker(Config({"group.consumer.assignment.interval.ms": "0"}))
    broker.start()
    for name in ("a", "b"):
        broker.catalog.create_topic(name, 1)
    try:
        yield broker
    finally:
        broker.close()


def on_broker() -> Any:
    return story_in(broker_with_topics)


async def matching(broker: Broker, pattern: str, wait_s: float = HANG_S) -> tuple[str, ...] | None:
    match = await broker.regex_matcher.match_topics(pattern, wait_s)
    return None if match is None else match.topics


@on_broker()
async def test_each_name_is_matched_once(broker, thread):
    assert await matching(broker, "a|c") == ("a",)
    broker.catalog.create_topic("c", 1)
    assert await matching(broker, "a|c") == ("a", "c")
    run_now(broker.topic_deletions.delete([broker.catalog.topics["a"]]))
    assert await matching(broker, "a|c") == ("c",)
    assert thread.texts == ["a", "b", "c"]
    broker.catalog.create_topic("a", 1)
    assert await matching(broker, "a|c") == ("a", "c")


@on_broker()
async def test_a_match_that_takes_long_is_continued(broker, thread, monkeypatch):
    monkeypatch.setattr(regex_matcher, "REGEX_SLICE_S", 0)
    thread.may_match.clear()
    assert await matching(broker, ".", 0.001) is None
    thread.may_match.set()
    assert await matching(broker, ".") == ("a", "b")
    assert thread.texts == ["a", "b"]


@on_broker()
async def test_requests_with_one_expression_share_the_work(broker, thread):
    assert await asyncio.gather(matching(broker, "."), matching(broker, ".")) == [("a", "b")] * 2
    assert thread.texts == ["a", "b"]


@on_broker()
async def test_expressions_take_turns(broker, thread, monkeypatch):
    monkeypatch.setattr(regex_matcher, "REGEX_SLICE_S", 0)
    await asyncio.gather(matching(broker, "."), matching(broker, "a|b"))
    assert thread.texts == ["a", "a", "b", "b"]


@on_broker()
async def test_topics_that_come_while_a_match_runs_are_matched_with_the_next_call(broker, thread):
    thread.may_match.clear()
    version = broker.catalog.version
    match = asyncio.create_task(broker.regex_matcher.match_topics(".", HANG_S))
    await asyncio.sleep(0)
    broker.catalog.create_topic("c", 1)
    thread.may_match.set()
    assert (await match)[1:3] == (version, ("a", "b"))
    assert await matching(broker, ".") == ("a", "b", "c")
    assert thread.texts == ["a", "b", "c"]


@on_broker()
async def test_expressions_that_were_not_used_for_long_are_forgotten(broker, thread, monkeypatch):
    monkeypatch.setattr(regex_matcher, "MAX_REMEMBERED_MATCHES", 80)
    for pattern in ("a", "b", "a", "c", "a"):
        await matching(broker, pattern)
    assert len(thread.texts) == 3 * 2
    await matching(broker, "b")
    assert len(thread.texts) == 4 * 2


@on_broker()
async def test_an_expression_is_refused_even_without_topics(broker):
    for topic in list(broker.catalog.topics.values()):
        run_now(broker.topic_deletions.delete([topic]))
    match = await broker.regex_matcher.match_topics("(", HANG_S)
    assert match.error == "missing closing )"
    with pytest.raises(InvalidRegex):
        await broker.regex_matcher.matching("(", [])


@on_broker()
async def test_texts_are_matched_in_slices(broker, thread, monkeypatch):
    monkeypatch.setattr(regex_matcher, "REGEX_SLICE_S", 0)
    texts = [str(number) for number in range(20)]
    assert await broker.regex_matcher.matching("1.", texts) == set(texts[10:])
    assert thread.texts == texts


def heartbeat(broker: Broker, member_epoch: int, **fields: Any) -> Any:
    """ConsumerGroupHeartbeat of a member; with epoch 0 it joins, with an expression."""
    joins = member_epoch == 0
    subscription = {"subscribed_topic_regex": "."} if joins else {}
    return ask(
        broker,
        CONSUMER_GROUP_HEARTBEAT,
        **{
            "group_id": "g",
            "member_id": "m",
            "member_epoch": member_epoch,
            "rebalance_timeout_ms": 60_000 if joins else -1,
            "subscribed_topic_names": None,
            "topic_partitions": [] if joins else None,
            **subscription,
            **fields,
        },
    )


@on_broker()
async def test_a_heartbeat_does_not_wait_long_for_its_expression(broker, thread, monkeypatch):
    monkeypatch.setattr(api_68_consumer_group_heartbeat, "REGEX_WAIT_S", 0.001)
    thread.may_match.clear()
    joining = asyncio.create_task(heartbeat(broker, 0))
    await asyncio.sleep(0)
    # the event loop serves others meanwhile
    assert (await ask(broker, LIST_GROUPS)).error_code == ErrorCode.NONE
    joined = await joining
    assert joined.error_code == ErrorCode.NONE
    assert not joined.assignment.topic_partitions
    assert (await heartbeat(broker, joined.member_epoch)).assignment is None
    monkeypatch.setattr(api_68_consumer_group_heartbeat, "REGEX_WAIT_S", HANG_S)
    thread.may_match.set()
    later = await heartbeat(broker, joined.member_epoch)
    assert len(later.assignment.topic_partitions) == 2
    assert later.member_epoch == joined.member_epoch + 1
    await heartbeat(broker, later.member_epoch)
    assert thread.texts == ["a", "b", "__consumer_offsets"]


@on_broker()
async def test_clients_and_groups_that_go_while_a_match_runs(broker, thread):
    joined = await heartbeat(broker, 0, member_id="other", subscribed_topic_regex="x")
    thread.may_match.clear()
    gone = asyncio.create_task(heartbeat(broker, 0, member_id="gone"))
    joining = asyncio.create_task(heartbeat(broker, 0))
    await asyncio.sleep(0)
    gone.cancel()
    left = await heartbeat(broker, -1, member_id="other")
    assert (joined.error_code, left.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    thread.may_match.set()
    assert len((await joining).assignment.topic_partitions) == 2
    assert list(broker.coordinators.groups.groups["g"].state.members) == ["m"]


@on_broker()
async def test_a_broker_that_stops_while_a_match_runs(broker, thread, monkeypatch):
    monkeypatch.setattr(regex_matcher, "REGEX_SLICE_S", 0)
    thread.may_match.clear()
    running = asyncio.create_task(matching(broker, "."))
    waiting = asyncio.create_task(matching(broker, "a|b"))
    await asyncio.sleep(0.01)
    thread.may_match.set()
    broker.regex_matcher.close()
    assert (await running, await waiting) == (None, None)
    assert thread.texts == ["a"]
