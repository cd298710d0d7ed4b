"""A client with a fetch session learns the same as one that names all its partitions each time."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from unittest import mock
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.protocol.api import FetchRequest
from headrace.protocol.record_batch import Marker
from headrace.protocol.time_slices import run_now
from headrace.topics import catalog
from tests.handler_client import ask
from tests.log.disk import delete_records
from tests.wire_client import batch

PARTITIONS = 3
MIB = 1 << 20
MOST_TOPICS = 100
Key = tuple[UUID, int]
keys = st.tuples(st.integers(0, 1), st.integers(0, PARTITIONS))  # the last one does not exist


class Known(NamedTuple):
    """A client's knowledge of a partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int


class SessionAndFull(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        # What is drawn must not depend on random ids: they give partitions their order.
        self.ids = mock.patch.object(
            catalog, "_new_uuid", side_effect=[UUID(int=n) for n in range(1, MOST_TOPICS)]
        )
        self.ids.start()
        self.broker = Broker(Config({}))
        self.topics = [
            self.broker.catalog.create_topic(name, PARTITIONS).topic_id for name in ("a", "b")
        ]
        self.producers = 0
        self.session_id = self.epoch = self.isolation_level = 0
        self.offsets: dict[Key, int] = {}
        self.known: dict[Key, Known] = {}
        self.changed: set[Key] = set()
        self.forgotten: set[Key] = set()

    def teardown(self) -> None:
        self.broker.fetch_sessions.close(self.session_id)
        assert len(self.broker.long_polls) == self.broker.fetch_sessions.partitions == 0
        self.broker.close()
        self.loop.close()
        self.ids.stop()

    def fetch(
        self, asked: set[Key], session_id: int, epoch: int, max_bytes: int = MIB, forget: Any = ()
    ) -> Any:
        """Fetch without waiting; return the response, and the answer of each partition with its
        records.
        """
        topics = [
            FetchRequest.FetchTopic(
                topic_id=key[0],
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=key[1], fetch_offset=self.offsets[key], partition_max_bytes=MIB
                    )
                ],
            )
            for key in sorted(asked)
        ]
        forgotten = [
            FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[index])
            for topic_id, index in forget
        ]
        response = self.loop.run_until_complete(
            ask(
                self.broker,
                1,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=self.isolation_level,
                session_id=session_id,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=forgotten,
            )
        )
        assert response.error_code == 0
        told = {
            (topic.topic_id, one.partition_index): (
                Known(one.error_code, one.high_watermark, one.log_start_offset),
                one.records,
            )
            for topic in response.responses
            for one in topic.partitions
        }
        return response, told

    def go_on(self, max_bytes: int = MIB) -> Any:
        """Fetch in the session, or open one; return the records."""
        asked = self.changed if self.session_id else set(self.offsets)
        forget = self.forgotten if self.session_id else ()
        response, told = self.fetch(asked, self.session_id, self.epoch, max_bytes, forget)
        assert bool(response.session_id) == bool(self.offsets) or not self.session_id
        self.session_id = response.session_id
        self.epoch = self.epoch + 1 if self.session_id else 0
        for key in self.forgotten:  # before the session has been told so, it knows what was known
            self.known.pop(key, None)
        self.changed, self.forgotten = set(), set()
        assert told.keys() <= self.offsets.keys()
        self.known |= {key: known for key, (known, _) in told.items()}
        return {key: records for key, (_, records) in told.items() if records}

    # What clients do ------------------------------------------------------------------------------

    @rule(where=keys, offset=st.integers(0, 6))
    def ask_for(self, where: tuple[int, int], offset: int) -> None:
        key = (self.topics[where[0]], where[1])
        self.offsets[key] = offset
        self.changed.add(key)
        self.forgotten.discard(key)

    @precondition(lambda self: self.offsets)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.offsets)))
        del self.offsets[key]
        self.changed.discard(key)
        self.forgotten.add(key)

    @rule()
    def begin_anew(self) -> None:
        self.epoch = 0
        self.broker.fetch_sessions.close(self.session_id)
        self.session_id = 0

    @rule(level=st.integers(0, 1))
    def isolate(self, level: int) -> None:
        self.isolation_level = level

    @rule()
    def fetch_a_little(self) -> None:
        self.go_on(max_bytes=1)

    @rule()
    def fetch_and_move(self) -> None:
        """Fetch, and move the positions behind the records."""
        for key in self.go_on():
            self.offsets[key] = max(self.offsets[key], self.known[key].high_watermark)
            self.changed.add(key)

    # What happens to topics -----------------------------------------------------------------------

    def log(self, where: tuple[int, int]) -> Any:
        return self.broker.topic_logs.partition(self.topics[where[0]], where[1] % PARTITIONS)

    @rule(where=keys, records=st.integers(1, 2))
    def produce(self, where: tuple[int, int], records: int) -> None:
        self.broker.topic_logs.append(self.log(where), batch([b"v"] * records))

    @rule(where=keys, commit=st.booleans())
    def transact(self, where: tuple[int, int], commit: bool) -> None:
        self.producers += 1
        records = batch(
            [b"v"],
            producer_id=self.producers,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        log = self.log(where)
        self.broker.topic_logs.append(log, records)
        if commit:
            log.append_marker(self.producers, 0, Marker(True, 0), self.broker.clock.wall_ms())
            self.broker.topic_logs.appended(log)

    @rule(where=keys)
    def delete_records(self, where: tuple[int, int]) -> None:
        log = self.log(where)
        delete_records(log, min(log.log_start_offset + 1, log.end_offset))
        self.broker.long_polls.notify(("log", log.topic_id, log.partition))

    @rule(which=st.integers(0, 1))
    def delete_and_make_again(self, which: int) -> None:
        topic = self.broker.catalog.topics_by_id[self.topics[which]]
        run_now(self.broker.topic_deletions.delete([topic]))
        self.topics[which] = self.broker.catalog.create_topic(topic.name, PARTITIONS).topic_id

    # What must be so ------------------------------------------------------------------------------

    @precondition(lambda self: self.offsets)
    @invariant()
    def as_a_full_fetch(self) -> None:
        read = self.go_on()
        _, full = self.fetch(set(self.offsets), 0, -1)
        assert self.known == {key: known for key, (known, _) in full.items()}
        assert read == {key: records for key, (_, records) in full.items() if records}


SessionAndFull.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSessionAndFull = SessionAndFull.TestCase
