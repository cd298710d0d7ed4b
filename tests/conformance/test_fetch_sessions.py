"""Incremental fetch sessions (KIP-227): opening, moving and ending them, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.fetching import (
    FIRST_WITH_IDS,
    FIRST_WITH_SESSIONS,
    LAST_WITH_NAMES,
    LATEST_VERSION,
    Fetcher,
)
from tests.conformance.producers import Transactional
from tests.conformance.world import OK, PATIENCE_S, Topic, World
from tests.support import wait_until
from tests.wire_client import Connection

VERSIONS = [FIRST_WITH_SESSIONS, LAST_WITH_NAMES, FIRST_WITH_IDS, LATEST_VERSION]
LONG_MS = 20_000
"""A maximum wait that never passes: the event comes sooner."""

NOT_FOUND, INVALID_EPOCH = "FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(3)


@pytest.fixture
def fetcher(world: World) -> Fetcher:
    return Fetcher(world)


@pytest.fixture
def other_connection(world: World) -> Iterator[Connection]:
    connection = Connection(world.bootstrap_servers)
    yield connection
    connection.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_asks_for_changes_and_is_told_of_news(
    world: World, topic: Topic, version: int
) -> None:
    fetcher = Fetcher(world, version)
    assert fetcher.open({(topic, 0): 0, (topic, 1): 0}) == {(topic, 0): "of 0", (topic, 1): "of 0"}
    assert fetcher.go_on() == {}
    topic.produce(2, partition=1)
    assert fetcher.go_on() == {(topic, 1): "0-1 of 2"}
    # for the client has not asked for another offset
    assert fetcher.go_on() == {(topic, 1): "0-1 of 2"}
    assert fetcher.go_on({(topic, 1): 2}) == {}
    assert fetcher.go_on({(topic, 1): 1}) == {(topic, 1): "0-1 of 2"}
    assert fetcher.go_on({(topic, 1): 2, (topic, 2): 0}) == {(topic, 2): "of 0"}
    topic.produce(1, partition=1)
    topic.produce(1, partition=2)
    assert fetcher.go_on(forget=[(topic, 1)]) == {(topic, 2): "0-0 of 1"}
    assert fetcher.go_on({(topic, 2): 1}) == {}
    # what is new in the session is told of
    assert fetcher.go_on({(topic, 1): 3}) == {(topic, 1): "of 3"}


def test_full_fetches_open_a_session_or_none(topic: Topic, fetcher: Fetcher) -> None:
    everything = {(topic, 0): 0}
    sessionless = fetcher.fetch(everything, epoch=-1)
    assert (sessionless.error, sessionless.session_id, sessionless.told) == (
        OK,
        0,
        {(topic, 0): "of 0"},
    )
    fetcher.open(everything)
    first = fetcher.session_id
    fetcher.open(everything)
    assert fetcher.session_id != first
    assert fetcher.fetch({}, epoch=1, session_id=first).error == OK  # a client may have several


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_that_it_names(
    topic: Topic, fetcher: Fetcher, epoch: int
) -> None:
    fetcher.open({(topic, 0): 0})
    named = fetcher.session_id
    answer = fetcher.fetch({(topic, 0): 0}, epoch=epoch)
    assert (answer.error, answer.told) == (OK, {(topic, 0): "of 0"})
    assert (answer.session_id == 0) == (epoch == -1)
    assert answer.session_id != named
    assert fetcher.fetch({}, session_id=named, epoch=1).error == NOT_FOUND


def test_a_session_goes_on_with_the_right_epoch_only(topic: Topic, fetcher: Fetcher) -> None:
    fetcher.open({(topic, 0): 0})
    session_id = fetcher.session_id
    for epoch in (2, -2):
        wrong = fetcher.fetch({}, epoch=epoch)
        assert (wrong.error, wrong.session_id, wrong.told) == (INVALID_EPOCH, 0, {})
    fetcher.epoch = 1
    assert fetcher.go_on() == {}
    assert fetcher.fetch({}, epoch=1).error == INVALID_EPOCH
    assert fetcher.fetch({}, epoch=2, session_id=session_id ^ 1).error == NOT_FOUND
    assert fetcher.fetch({(topic, 0): 0}, epoch=1, session_id=0).error == NOT_FOUND
    assert fetcher.fetch({}, epoch=2, session_id=session_id).error == OK


@pytest.mark.parametrize("version", [LAST_WITH_NAMES, FIRST_WITH_IDS])
def test_a_session_keeps_to_names_or_to_ids(world: World, topic: Topic, version: int) -> None:
    fetcher, other = (
        Fetcher(world, version),
        Fetcher(world, LAST_WITH_NAMES + FIRST_WITH_IDS - version),
    )
    fetcher.open({(topic, 0): 0})
    refused = other.fetch({}, session_id=fetcher.session_id, epoch=1)
    assert (refused.error, refused.session_id) == ("FETCH_SESSION_TOPIC_ID_ERROR", 0)
    assert fetcher.go_on() == {}


def test_versions_before_sessions_open_none(world: World, topic: Topic) -> None:
    topic.produce(1)
    sent = world.connection.send_fetch(topic.name, 0, 0)
    assert world.connection.receive_message(sent).responses[0].partitions[0].high_watermark == 1


def test_a_session_without_partitions_is_over(topic: Topic, fetcher: Fetcher) -> None:
    fetcher.open({(topic, 0): 0, (topic, 1): 0})
    session_id = fetcher.session_id
    last = fetcher.fetch({}, forget=[(topic, 0), (topic, 1)], max_wait=LONG_MS)
    assert (last.error, last.session_id, last.told) == (OK, 0, {})
    assert fetcher.fetch({}, session_id=session_id, epoch=2).error == NOT_FOUND


def test_a_session_may_begin_without_partitions(topic: Topic, fetcher: Fetcher) -> None:
    assert fetcher.open({}, max_wait=LONG_MS) == {}
    assert fetcher.go_on({(topic, 0): 0}) == {(topic, 0): "of 0"}


def test_a_session_outlives_its_connection(
    topic: Topic, fetcher: Fetcher, other_connection: Connection
) -> None:
    sent = fetcher.send({(topic, 0): 0}, connection=other_connection)
    assert fetcher.receive(sent, other_connection).error == OK
    other_connection.close()
    topic.produce(1)
    assert fetcher.go_on() == {(topic, 0): "0-0 of 1"}


# Waiting ------------------------------------------------------------------------------------------


def test_a_fetch_wakes_for_any_partition_of_its_session(
    topic: Topic, fetcher: Fetcher, other_connection: Connection
) -> None:
    fetcher.open({(topic, 0): 0, (topic, 1): 0, (topic, 2): 0})
    for partition in (2, 0, 2):
        sent = fetcher.send({}, max_wait=LONG_MS, connection=other_connection)
        assert not other_connection.has_response(within_s=0.1)
        topic.produce(1, partition=partition)
        assert other_connection.has_response(within_s=PATIENCE_S)
        ((told, read),) = fetcher.receive(sent, other_connection).told.items()
        assert told == (topic, partition)
        next_offset = int(read.split()[-1])
        assert fetcher.go_on({told: next_offset}) == {}


def test_a_fetch_waits_for_enough_of_all_partitions_together(
    topic: Topic, fetcher: Fetcher, other_connection: Connection
) -> None:
    fetcher.open({(topic, 0): 0, (topic, 1): 0})
    sent = fetcher.send({}, max_wait=LONG_MS, min_bytes=200, connection=other_connection)
    topic.produce(1, partition=0)  # 69 bytes each
    topic.produce(1, partition=1)
    assert not other_connection.has_response(within_s=0.2)
    topic.produce(1, partition=0)
    assert other_connection.has_response(within_s=PATIENCE_S)
    told = fetcher.receive(sent, other_connection).told
    assert told == {(topic, 0): "0-1 of 2", (topic, 1): "0-0 of 1"}


def test_a_wait_in_vain_tells_of_what_has_changed(
    topic: Topic, fetcher: Fetcher, other_connection: Connection
) -> None:
    topic.produce(3)
    fetcher.open({(topic, 0): 3})
    sent = fetcher.send({}, max_wait=1_000, connection=other_connection)
    topic.delete_records_before(2)
    assert fetcher.receive(sent, other_connection).told == {(topic, 0): "of 3, from 2"}
    assert fetcher.go_on() == {}


def test_a_request_that_was_overtaken_in_its_session_is_refused(
    topic: Topic, fetcher: Fetcher, other_connection: Connection
) -> None:
    fetcher.open({(topic, 0): 0})
    sent = fetcher.send({}, max_wait=LONG_MS, connection=other_connection)
    fetcher.epoch += 1
    wait_until(lambda: fetcher.fetch({}).error == OK, PATIENCE_S, "the first request")
    topic.produce(1)
    overtaken = fetcher.receive(sent, other_connection)
    assert (overtaken.error, overtaken.told) == (INVALID_EPOCH, {})


def test_a_request_whose_session_is_ended_by_another(
    topic: Topic, fetcher: Fetcher, other_connection: Connection, differs: Callable[..., Any]
) -> None:
    where = "a waiting Fetch whose session is ended"
    fetcher.open({(topic, 0): 0})
    session_id = fetcher.session_id
    sent = fetcher.send(
        {}, max_wait=differs(where, kafka=1_000, headrace=LONG_MS), connection=other_connection
    )
    assert not other_connection.has_response(within_s=0.2)
    fetcher.fetch({}, epoch=-1)
    assert fetcher.receive(sent, other_connection).error == differs(
        where, kafka=OK, headrace=NOT_FOUND
    )
    assert fetcher.fetch({}, session_id=session_id, epoch=2).error == NOT_FOUND


# What is told -------------------------------------------------------------------------------------


def test_each_partition_has_its_turn(topic: Topic, fetcher: Fetcher) -> None:
    offsets = {(topic, partition): 0 for partition in range(3)}
    fetcher.open(offsets)
    for partition in range(3):
        topic.produce(1, 1, partition=partition)
    turns = []
    for _ in range(6):
        read = {key: told for key, told in fetcher.go_on(max_bytes=1).items() if "-" in told}
        (((_, partition), told),) = read.items()
        turns.append(partition)
        assert told == "0-0 of 2"
    assert sorted(turns[:3]) == [0, 1, 2]
    assert turns[:3] == turns[3:]


@pytest.mark.parametrize("version", [LAST_WITH_NAMES, LATEST_VERSION])
def test_errors_are_told_until_they_are_gone(world: World, topic: Topic, version: int) -> None:
    fetcher = Fetcher(world, version)
    fetcher.open({(topic, 0): 0, (topic, 1): 0})
    out_of_range = {(topic, 0): "OFFSET_OUT_OF_RANGE"}
    assert fetcher.go_on({(topic, 0): 9}, max_wait=LONG_MS) == out_of_range
    assert fetcher.go_on(max_wait=LONG_MS) == out_of_range
    # told again, though it is as before
    assert fetcher.go_on({(topic, 0): 0}) == {(topic, 0): "of 0"}
    unknown = {(topic, 3): "UNKNOWN_TOPIC_OR_PARTITION"}
    assert fetcher.go_on({(topic, 3): 0}) == unknown
    assert fetcher.go_on() == unknown
    topic.grow(4)
    wait_until(lambda: fetcher.go_on() == {(topic, 3): "of 0"}, PATIENCE_S, "the new partition")
    assert fetcher.go_on() == {}


@pytest.mark.parametrize("in_session", [True, False])
def test_what_does_not_exist_keeps_nobody_from_waiting(
    topic: Topic, fetcher: Fetcher, other_connection: Connection, in_session: bool
) -> None:
    unknown = {(topic, 7): "UNKNOWN_TOPIC_OR_PARTITION"}
    assert fetcher.open({(topic, 7): 0}, max_wait=LONG_MS) == unknown  # there is nothing else
    if in_session:
        fetcher.go_on({(topic, 0): 0})
        sent = fetcher.send({}, max_wait=LONG_MS, connection=other_connection)
    else:
        everything = {(topic, 0): 0, (topic, 7): 0}
        sent = fetcher.send(everything, epoch=-1, max_wait=LONG_MS, connection=other_connection)
    assert not other_connection.has_response(within_s=0.2)
    topic.produce(1)
    assert other_connection.has_response(within_s=PATIENCE_S)
    assert fetcher.receive(sent, other_connection).told == {(topic, 0): "0-0 of 1", **unknown}


def test_the_log_start_is_told_when_it_moves(topic: Topic, fetcher: Fetcher) -> None:
    topic.produce(5)
    assert fetcher.open({(topic, 0): 5}) == {(topic, 0): "of 5"}
    topic.delete_records_before(2)
    assert fetcher.go_on() == {(topic, 0): "of 5, from 2"}
    assert fetcher.go_on() == {}
    assert fetcher.go_on({(topic, 0): 1}) == {(topic, 0): "OFFSET_OUT_OF_RANGE"}


def test_a_reader_of_committed_records_is_told_when_they_are(
    world: World, topic: Topic, fetcher: Fetcher
) -> None:
    producer = Transactional(world)
    producer.init()
    producer.add(topic)
    producer.write(topic, 2)
    assert fetcher.open({(topic, 0): 0}, committed=True) == {(topic, 0): "of 2"}
    assert fetcher.go_on(committed=True) == {}
    assert fetcher.go_on(committed=False) == {(topic, 0): "0-1 of 2"}
    assert fetcher.go_on(committed=True) == {}
    producer.end(commit=True)
    wait_until(lambda: topic.end_offset(committed=True) == 3, PATIENCE_S, "the marker")
    assert fetcher.go_on(committed=True) == {(topic, 0): "0-2 of 3"}


# Topics that go -----------------------------------------------------------------------------------


def test_a_topic_that_is_deleted_and_made_again_by_name(world: World, topic: Topic) -> None:
    fetcher = Fetcher(world, LAST_WITH_NAMES)
    goes = world.topic(records=3)
    fetcher.open({(topic, 0): 0, (goes, 0): 3})
    goes.delete()
    wait_until(
        lambda: fetcher.go_on() == {(goes, 0): "UNKNOWN_TOPIC_OR_PARTITION"},
        PATIENCE_S,
        "the deletion",
    )
    again = world.topic(name=goes.name)
    wait_until(
        lambda: fetcher.go_on() == {(goes, 0): "OFFSET_OUT_OF_RANGE"}, PATIENCE_S, "the new topic"
    )
    again.produce(2)
    assert fetcher.go_on({(goes, 0): 0}) == {(goes, 0): "0-1 of 2"}


def test_a_topic_that_is_deleted_and_made_again_by_id(
    world: World, topic: Topic, fetcher: Fetcher, differs: Callable[..., Any]
) -> None:
    where = "a deleted topic in a fetch session"
    goes = world.topic(records=3)
    fetcher.open({(topic, 0): 0, (goes, 0): 3})
    goes.delete()
    gone = differs(where, kafka="UNKNOWN_TOPIC_OR_PARTITION", headrace="UNKNOWN_TOPIC_ID")
    wait_until(lambda: fetcher.go_on() == {(goes, 0): gone}, PATIENCE_S, "the deletion")
    again = world.topic(name=goes.name)
    gone = differs(where, kafka="INCONSISTENT_TOPIC_ID", headrace="UNKNOWN_TOPIC_ID")
    wait_until(lambda: fetcher.go_on() == {(goes, 0): gone}, PATIENCE_S, "the new topic")
    assert fetcher.go_on({(again, 0): 0}, forget=[(goes, 0)]) == {(again, 0): "of 0"}
    again.produce(2)
    assert fetcher.go_on() == {(again, 0): "0-1 of 2"}


def test_a_fetch_that_waits_is_told_of_a_deletion(
    world: World, topic: Topic, fetcher: Fetcher, other_connection: Connection
) -> None:
    goes = world.topic()
    fetcher.open({(topic, 0): 0, (goes, 0): 0})
    sent = fetcher.send({}, max_wait=LONG_MS, connection=other_connection)
    goes.delete()
    assert other_connection.has_response(within_s=PATIENCE_S)
    assert list(fetcher.receive(sent, other_connection).told) == [(goes, 0)]


# Limits -------------------------------------------------------------------------------------------


def test_no_more_sessions_than_slots(small_world: World) -> None:
    topic = small_world.topic(2)
    fetchers = [Fetcher(small_world) for _ in range(8)]
    for fetcher in fetchers:
        fetcher.open({(topic, 0): 0})
    late = Fetcher(small_world)
    for _ in range(8):  # also with more partitions: the others are too young to make place
        declined = late.fetch({(topic, 0): 0, (topic, 1): 0}, epoch=0)
        assert (declined.error, declined.session_id, len(declined.told)) == (OK, 0, 2)
    fetchers[0].fetch({}, epoch=-1)
    opened = [late.fetch({(topic, 0): 0}, epoch=0, session_id=0).session_id for _ in range(8)]
    assert len([session_id for session_id in opened if session_id]) == 1
    for session_id in [*opened, *(fetcher.session_id for fetcher in fetchers)]:
        late.fetch({}, epoch=-1, session_id=session_id)
