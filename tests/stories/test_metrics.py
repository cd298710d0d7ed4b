"""The metrics page after events whose counts are known."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.broker.metrics import page as metrics_walk
from headrace.broker.metrics.page import metrics_page
from headrace.groups.offsets.service import NO_MEMBER
from headrace.groups.share.group import ShareGroup
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.time_slices import run_now
from headrace.share.acknowledgement import ACCEPT, GAP, REJECT, RELEASE, RENEW
from headrace.topics.fetch_sessions import FETCH_SESSION_EVICTION_MS
from tests.offset_commits import NO_RETENTION, commit_record
from tests.stories.share_stage import GROUP, Stage, on_stage, stage
from tests.support import story

OK = (ErrorCode.NONE, None)
HERE = {"group": GROUP, "topic": "t", "partition": "0"}
SHARE_GROUP, SHARE_PARTITION = (
    "kafka_server_sharegroupmetrics_",
    "kafka_server_sharepartitionmetrics_",
)
BROKER_TOPIC, SESSIONS = "kafka_server_brokertopicmetrics_", "kafka_server_sharesessioncache_"
FETCH_SESSIONS = "kafka_server_fetchsessioncache_"


class Metrics:
    """A page, parsed by Prometheus's own client."""

    def __init__(self, text: bytes) -> None:
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.families: list[str] = []
        for family in text_string_to_metric_families(text.decode()):
            assert family.documentation
            assert family.type != "unknown"
            self.families.append(family.name)
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, key
                self.samples[key] = sample.value
        assert len(self.families) == len(set(self.families))

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))


async def look(s: Stage) -> Metrics:
    return Metrics(await metrics_page(s.broker))


async def join(s: Stage, group_id: str = GROUP, topic: str = "t") -> None:
    """Join the share group, so that the group coordinator knows the group and its topics."""
    response = await s.ask(
        76, group_id=group_id, member_id="member", subscribed_topic_names=[topic]
    )
    assert response.error_code == ErrorCode.NONE


@on_stage()
async def test_lag_offsets_and_what_is_in_flight(s):
    await join(s)
    s.produce(4, 6)
    m = s.member()
    await m.fetch(max_records=10, batch_size=4)
    assert await m.ack((0, 4, (ACCEPT, REJECT, RELEASE, ACCEPT, ACCEPT))) == OK
    now = await look(s)
    assert now("headrace_share_group_start_offset", **HERE) == 2
    assert now("headrace_share_group_end_offset", **HERE) == 10
    assert now("headrace_share_group_lag", **HERE) == 6 == s.lag()
    assert now(f"{SHARE_PARTITION}inflightmessagecount", **HERE) == 8
    assert now(f"{SHARE_PARTITION}inflightbatchcount", **HERE) == 2
    assert now("kafka_log_log_logendoffset", topic="t", partition="0") == 10
    assert now("kafka_log_log_logstartoffset", topic="t", partition="0") == 0
    log = s.log()
    assert now("kafka_log_log_size", topic="t", partition="0") == log.size_bytes() > 0


@on_stage()
async def test_a_share_group_at_rest_still_has_a_lag_and_nothing_in_flight(s):
    await join(s)
    m = await s.holder(10)
    assert await m.ack((0, 3, ACCEPT), epoch=-1) == OK
    now = await look(s)
    assert now("headrace_share_group_lag", **HERE) == 6
    assert now(f"{SHARE_PARTITION}inflightmessagecount", **HERE) is None
    assert now("headrace_group_members", group=GROUP, type="share") == 1


@on_stage()
async def test_acknowledgements_are_counted_by_record_and_type(s):
    m = await s.holder(10)
    assert await m.ack((0, 3, ACCEPT), (4, 8, (REJECT, GAP, RELEASE, RELEASE, ACCEPT))) == OK
    assert await m.ack((9, 9, RENEW), renew=True) == OK
    # before the start offset: nothing to do
    assert (await m.ack((0, 3, REJECT)))[0] == ErrorCode.NONE
    assert (await m.ack((6, 6, REJECT)))[0] == ErrorCode.INVALID_RECORD_STATE
    now = await look(s)
    counted = {
        kind: now(f"{SHARE_GROUP}recordacknowledgements_total", ackType=kind) for kind in _TYPES
    }
    assert counted == {"Accept": 5, "Release": 2, "Reject": 1 + 4, "Renew": 1}
    assert now(f"{BROKER_TOPIC}totalshareacknowledgementrequests_total") == 4
    assert now(f"{BROKER_TOPIC}totalshareacknowledgementrequests_total", topic="t") == 4
    assert now(f"{BROKER_TOPIC}failedshareacknowledgementrequests_total") == 1
    assert now(f"{BROKER_TOPIC}failedshareacknowledgementrequests_total", topic="t") == 1


_TYPES = ("Accept", "Release", "Reject", "Renew")


@on_stage(partitions=2)
async def test_share_fetches_their_times_and_their_batches(s):
    await join(s)
    s.produce(3, 4)
    m = s.member()
    await m.share_fetch(partitions=(0, 1), batch_size=3)
    await m.share_fetch()
    now = await look(s)
    assert now(f"{BROKER_TOPIC}totalsharefetchrequests_total") == 2
    assert now(f"{BROKER_TOPIC}totalsharefetchrequests_total", topic="t") == 2
    assert now(f"{BROKER_TOPIC}failedsharefetchrequests_total") == 0
    times, ratio = (
        f"{SHARE_GROUP}topicpartitionsacquiretimems",
        f"{SHARE_GROUP}requesttopicpartitionsfetchratio",
    )
    assert now(f"{times}_count", group=GROUP) == 1
    assert now(f"{times}_bucket", group=GROUP, le="+Inf") == 1
    assert now(f"{ratio}_sum", group=GROUP) == 50  # one of two partitions
    assert now(f"{ratio}_bucket", group=GROUP, le="25.0") == 0
    assert now(f"{ratio}_bucket", group=GROUP, le="50.0") == 1
    batches = f"{SHARE_PARTITION}inflightbatchmessagecount"
    assert now(f"{batches}_count", group=GROUP) == 2
    assert now(f"{batches}_sum", group=GROUP) == 7
    assert now(f"{SHARE_GROUP}partitionloadtimems_count") == 2


@on_stage()
async def test_a_share_fetch_of_what_there_is_not_is_counted_and_leaves_no_name_behind(s):
    m = s.member()
    await m.share_fetch(topic_id=UUID(int=7))
    now = await look(s)
    assert now(f"{BROKER_TOPIC}failedsharefetchrequests_total") == 1
    assert s.broker.metrics.share.topics == {}
    assert s.broker.metrics.share.groups == {}


@on_stage()
async def test_share_fetches_that_wait(s):
    m = s.member()
    waiting = asyncio.create_task(m.share_fetch(wait_ms=10_000))
    await asyncio.sleep(0.01)
    delayed = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
    expired = "kafka_server_delayedsharefetchmetrics_expires_total"
    now = await look(s)
    assert (now(delayed, delayedOperation="ShareFetch"), now(expired)) == (1, 0)
    s.produce(1)
    await waiting
    now = await look(s)
    assert (now(delayed, delayedOperation="ShareFetch"), now(expired)) == (0, 0)
    await m.share_fetch(wait_ms=1)
    now = await look(s)
    assert (now(delayed, delayedOperation="ShareFetch"), now(expired)) == (0, 1)


@on_stage(partitions=3)
async def test_share_sessions_and_their_eviction(s):
    m, n = s.member("m"), s.member("n")
    await m.share_fetch(partitions=(0, 1))
    await n.share_fetch(partitions=(1, 2))
    now = await look(s)
    assert now(f"{SESSIONS}sharesessionscount") == 2
    assert now(f"{SESSIONS}sharepartitionscount") == 4
    await m.share_fetch(epoch=-1)
    n.vanish()
    now = await look(s)
    assert now(f"{SESSIONS}sharesessionscount") == 0
    assert now(f"{SESSIONS}sharesessionevictions_total") == 1  # closing is none


@on_stage(configs={"max.incremental.fetch.session.cache.slots": "1"})
async def test_fetch_sessions_and_their_eviction(s):
    sessions = s.broker.fetch_sessions
    assert sessions.open(3, 0, uses_names=False, isolation_level=0) is not None
    assert (
        sessions.open(2, FETCH_SESSION_EVICTION_MS + 1, uses_names=False, isolation_level=0)
        is not None
    )
    now = await look(s)
    assert now(f"{FETCH_SESSIONS}numincrementalfetchsessions") == 1
    assert now(f"{FETCH_SESSIONS}numincrementalfetchpartitionscached") == 2
    assert now(f"{FETCH_SESSIONS}incrementalfetchsessionevictions_total") == 1


@on_stage(share_delivery_count_limit="2", share_record_lock_duration_ms="1000")
async def test_locks_that_run_out(s):
    await join(s)
    m = await s.holder(5)
    assert await m.ack((0, 0, ACCEPT), (1, 1, RELEASE)) == OK
    await m.fetch()  # offset 1 again, for the last time
    s.broker.coordinators.share.expire(s.broker.clock.now_ms() + 1000)
    now = await look(s)
    assert now(f"{SHARE_PARTITION}acquisitionlocktimeout_total", **HERE) == 4


@on_stage(errors_deadletterqueue_topic_name="dlq.t")
async def test_dead_letters(s: Stage, monkeypatch: pytest.MonkeyPatch):
    s.broker.catalog.create_topic("dlq.t", 1, {"errors.deadletterqueue.group.enable": "true"})
    m = await s.holder(5)
    assert await m.ack((0, 2, REJECT)) == OK
    append = PartitionLog.append
    refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    with monkeypatch.context() as disk:
        disk.setattr(
            PartitionLog,
            "append",
            lambda log, *a, **k: refusal if log.topic == "dlq.t" else append(log, *a, **k),
        )
        assert (await m.ack((3, 3, REJECT)))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    now = await look(s)
    prefix = f"{SHARE_GROUP}deadletterqueue"
    assert now(f"{prefix}recordcount_total", group=GROUP) == 3
    assert now(f"{prefix}totalproducerequests_total", group=GROUP) == 2
    assert now(f"{prefix}failedproducerequests_total", group=GROUP) == 1


@on_stage()
async def test_coordinators_and_groups(s):
    prefix = "kafka_server_group_coordinator_metrics_"
    before = await look(s)
    await join(s)
    await join(s, "h")
    m = await s.holder(1)
    written = (await look(s))("kafka_server_share_coordinator_metrics_write_total")
    assert await m.ack((0, 0, ACCEPT)) == OK
    now = await look(s)
    assert before(f"{prefix}group_count", protocol="share") == 0
    assert now(f"{prefix}group_count", protocol="share") == 2
    assert now(f"{prefix}share_group_count", state="Stable") == 2
    assert now(f"{prefix}share_group_count", state="Empty") == 0
    assert now(f"{prefix}share_group_rebalance_total") == sum(
        group.state.epoch - 1
        for group in s.broker.coordinators.groups.groups.values()
        if isinstance(group, ShareGroup)
    )
    assert now("kafka_server_share_coordinator_metrics_write_total") == written + 1
    assert now("kafka_server_share_coordinator_metrics_num_partitions", state="active") == 2
    flushes = now("kafka_server_share_coordinator_metrics_batch_flush_time_ms_count")
    assert flushes is not None and flushes >= 2


def test_a_scrape_loads_no_coordinator(tmp_path: Path) -> None:
    broker = Broker(Config(), tmp_path)
    coordinators = broker.coordinators
    try:
        now = Metrics(asyncio.run(metrics_page(broker)))
        assert now("kafka_coordinator_group_groupmetadatamanager_numgroups") == 0
        assert now("kafka_server_sharesessioncache_sharesessionscount") == 0
        assert coordinators.loaded_groups is None
        assert coordinators.loaded_share_state is None
        assert coordinators.loaded_share is None
        assert coordinators.loaded_transactions is None
    finally:
        broker.close()


@on_stage()
async def test_names_are_escaped(s):
    await join(s, 'a "quoted" \\ name\nof two lines')
    now = await look(s)
    assert (
        now("headrace_group_members", group='a "quoted" \\ name\nof two lines', type="share") == 1
    )


@on_stage(partitions=5)
async def test_what_goes_over_the_limit_is_left_out_and_said(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    await join(s)
    for partition in range(5):
        s.produce(1, partition=partition)
    monkeypatch.setattr(metrics_walk, "MAX_METRIC_PARTITIONS", 3)
    now = await look(s)
    assert now("headrace_scrape_left_out", what="share_partitions") == 2
    assert sum(name == "headrace_share_group_lag" for name, _ in now.samples) <= 3


@story
async def test_a_page_of_thousands_lets_others_work(monkeypatch: pytest.MonkeyPatch):
    # whatever else the machine has to do
    monkeypatch.setattr(metrics_walk, "SCRAPE_LOADING_MS", 60_000)
    async with stage(partitions=1) as s:
        topic = s.broker.catalog.create_topic("wide", 3000)
        await join(s, "w", "wide")
        turns = 0
        made = asyncio.create_task(metrics_page(s.broker))
        while not made.done():
            turns += 1
            await asyncio.sleep(0)
        now = Metrics(made.result())
        assert (
            now("headrace_share_group_end_offset", group="w", topic="wide", partition="2999") == 0
        )
        assert turns > 30
        assert topic.partitions == 3000


@on_stage()
async def test_what_was_counted_of_a_topic_is_forgotten_with_it_without_a_scrape(s):
    await join(s)
    await s.holder(1)
    s.broker.coordinators.share.expire(s.broker.clock.now_ms() + 60_000)
    assert isinstance(s.broker.topic_logs.append(s.log(), bytes(100)), Refusal)
    refused = s.broker.metrics.refused_produces
    assert refused == {"t": 1}
    counted = s.broker.metrics.share
    assert set(counted.topics) == {s.topic_id}
    assert counted.groups[GROUP].lock_timeouts == {(GROUP, s.topic_id, 0): 1}
    run_now(s.broker.topic_deletions.delete([s.broker.catalog.topics["t"]]))
    assert refused == counted.topics == counted.groups[GROUP].lock_timeouts == {}


@on_stage(errors_deadletterqueue_topic_name="dlq.t")
async def test_what_was_counted_of_a_group_is_forgotten_with_it_without_a_scrape(s):
    s.broker.catalog.create_topic("dlq.t", 1, {"errors.deadletterqueue.group.enable": "true"})
    await join(s)
    m = await s.holder(4)
    assert await m.ack((0, 1, REJECT)) == OK
    s.broker.coordinators.share.expire(s.broker.clock.now_ms() + 60_000)
    await m.share_fetch(epoch=-1)
    counted, letters = s.broker.metrics.share, s.broker.coordinators.share.dead_letters
    assert counted.groups[GROUP].lock_timeouts == {(GROUP, s.topic_id, 0): 2}
    assert letters.counts[GROUP].records == 2
    await s.ask(76, group_id=GROUP, member_id="member", member_epoch=-1)
    assert (await s.ask(42, groups_names=[GROUP])).results[0].error_code == ErrorCode.NONE
    assert counted.groups == {}
    assert letters.counts == {}
    # a group of the same name counts from zero
    await join(s)
    assert await m.fetch() == [(0, 3, 1)]
    now = await look(s)
    assert now(f"{SHARE_PARTITION}acquisitionlocktimeout_total", **HERE) == 0
    assert now(f"{SHARE_GROUP}topicpartitionsacquiretimems_count", group=GROUP) == 1


@on_stage()
async def test_what_happens_to_committed_offsets_is_counted(s):
    groups, meters = s.broker.coordinators.groups, "kafka_server_group_coordinator_metrics_"

    def commit(group_id: str, *partitions: int, retention_ms: int = NO_RETENTION) -> None:
        times = {"wall_ms": s.broker.clock.wall_ms(), "retention_ms": retention_ms}
        commits = [
            commit_record(group_id, "t", None, partition, 1, **times) for partition in partitions
        ]
        outcome = groups.offsets.commit(group_id, NO_MEMBER, -1, commits, times["wall_ms"])
        s.broker.coordinators.group_runtime.write_now(group_id, outcome)

    commit("kept", 0, 1)
    commit("deleted", 0)
    for group_id in ("over", "over too"):
        commit(group_id, 0, 1, 2, retention_ms=0)
    partitions = [{"partition_index": index} for index in (0, 9)]
    response = await s.ask(47, group_id="kept", topics=[{"name": "t", "partitions": partitions}])
    assert response.error_code == ErrorCode.NONE
    s.broker.coordinators.group_runtime.write_now("deleted", groups.delete("deleted"))
    later_ms = s.broker.clock.wall_ms() + 600_000
    for group_id, outcome in groups.expire(later_ms, later_ms):
        s.broker.coordinators.group_runtime.write_now(group_id, outcome)
    now = await look(s)
    assert now(f"{meters}offset_commit_total") == 9
    assert now(f"{meters}offset_expiration_total") == 6
    assert now(f"{meters}offset_deletion_total") == 1
    assert now(f"{meters}group_completed_rebalance_total") == 0
    assert now("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1


@story
async def test_a_scrape_creates_no_coordinator():
    broker = Broker(Config({}))
    broker.start()
    await metrics_page(broker)
    coordinators = broker.coordinators
    assert coordinators.loaded_groups is None
    assert coordinators.loaded_share is None
    assert coordinators.loaded_share_state is None
    assert coordinators.loaded_transactions is None
    assert not broker.catalog.topics
    broker.close()
