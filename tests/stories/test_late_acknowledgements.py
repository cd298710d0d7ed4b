"""Acknowledgements that come after the end of their locks: they are counted, and told."""

from __future__ import annotations

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.share.acknowledgement import ACCEPT, RELEASE, RENEW
from headrace.share.records import SharePartitionKey
from tests.stories.share_stage import GROUP, Stage, on_stage

OK = (ErrorCode.NONE, None)
SHORT = on_stage(share_record_lock_duration_ms="1000")


def late(s: Stage) -> int:
    return s.broker.metrics.share.of_group(GROUP).late[SharePartitionKey(GROUP, s.topic_id, 0)]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "end of their acquisition lock" in line]


@SHORT
async def test_they_are_counted_and_logged_once_a_minute(
    s: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    s.clock.stop()
    m = await s.holder(6)
    s.pass_ms(1000)
    s.pass_ms(500)
    code, _ = await m.ack((0, 3, ACCEPT))
    assert code == ErrorCode.INVALID_RECORD_STATE
    (line,) = lines(caplog)
    assert line.startswith(
        f"share group {GROUP}: an acknowledgement of 4 records of t-0 came 0.5 s"
    )
    assert "which lasts 1.0 s" in line
    assert "raise share.record.lock.duration.ms of the group" in line
    await m.ack((0, 1, ACCEPT))  # a part of the request, to learn which of them are refused
    assert late(s) == 4
    await m.ack((4, 5, RELEASE))
    assert late(s) == 6
    assert len(lines(caplog)) == 1
    await m.fetch()
    s.pass_ms(60_000)
    await m.ack((0, 0, ACCEPT))
    assert "7 records since the broker started" in lines(caplog)[1]


@SHORT
async def test_late_ones_of_what_another_member_has_finished_count(s: Stage) -> None:
    s.clock.stop()
    m, n = await s.holder(2), s.member("n")
    s.pass_ms(1000)
    await n.fetch()
    assert await n.ack((0, 1, ACCEPT)) == OK
    assert await m.ack((0, 1, ACCEPT)) == OK  # ignored, as in Kafka
    assert late(s) == 2


@SHORT
async def test_those_of_records_that_were_acquired_again_are_not_late(s: Stage) -> None:
    s.clock.stop()
    m = await s.holder(3)
    s.pass_ms(1000)
    await m.fetch()
    assert await m.ack((0, 2, ACCEPT)) == OK
    assert await m.ack((0, 2, ACCEPT)) == OK
    assert late(s) == 0


@SHORT
async def test_a_refusal_for_another_reason_is_not_late(s: Stage) -> None:
    m, n = await s.holder(3), s.member("n")
    await n.fetch()
    code, _ = await n.ack((0, 2, ACCEPT))
    assert code == ErrorCode.INVALID_RECORD_STATE
    assert await m.ack((0, 2, RENEW), renew=True) == OK
    assert late(s) == 0
