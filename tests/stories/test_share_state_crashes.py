"""Changes of share state write to two internal topics: a crash between any two appends leaves
nothing half done.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid

import pytest

from headrace.broker.broker import Broker, StorageError
from headrace.broker.config.broker_config import Config
from headrace.log.partition_log import PartitionLog
from headrace.protocol.time_slices import run_now
from headrace.share.records import SharePartitionKey
from tests.handler_client import ask
from tests.support import story

CONFIG = {"offsets.topic.num.partitions": "2", "share.coordinator.state.topic.num.partitions": "7"}
ALTERED = {0: 11, 1: 12, 2: 13, 3: 14}


class Crash(Exception):
    pass


async def join(broker, epoch=0):
    names = ["t"] if epoch >= 0 else None
    fields = {"group_id": "g", "member_id": "m", "member_epoch": epoch}
    return await ask(broker, 76, **fields, subscribed_topic_names=names)


async def alter(broker):
    partitions = [
        {"partition_index": partition, "start_offset": offset}
        for partition, offset in ALTERED.items()
    ]
    topic = {"topic_name": "t", "partitions": partitions}
    return await ask(broker, 91, group_id="g", topics=[topic])


async def delete_offsets(broker):
    return await ask(broker, 92, group_id="g", topics=[{"topic_name": "t"}])


async def delete_group(broker):
    return await ask(broker, 42, groups_names=["g"])


async def delete_topic(broker):
    run_now(broker.topic_deletions.delete([broker.catalog.topics["t"]]))


async def nothing(broker):
    pass


async def joined_and_left(broker):
    await join(broker)
    await join(broker, -1)


async def altered_after_leaving(broker):
    await joined_and_left(broker)
    await alter(broker)


def begun(data_dir):
    broker = Broker(Config(CONFIG), data_dir)
    broker.start()
    if "t" not in broker.catalog.topics:
        broker.catalog.create_topic("t", 4, {})
    return broker


def starts(broker):
    """Return the start offsets that the share coordinator knows, by partition."""
    topic = broker.catalog.topics.get("t")
    if topic is None:
        return None
    state = broker.coordinators.share_state
    keys = {p: SharePartitionKey("g", topic.topic_id, p) for p in range(4)}
    known = set(state.known_keys())
    return {p: state.summary(key).start_offset for p, key in keys.items() if key in known}


def check_settled(broker):
    """Check that group coordinator and share coordinator agree on each partition, and nothing is
    under way.
    """
    group = broker.coordinators.groups.groups.get("g")
    topic = broker.catalog.topics.get("t")
    if topic is None:
        assert not broker.coordinators.share_state.known_keys()
    if group is None:
        return
    assert not group.state.partitions.initializing
    assert not group.state.partitions.deleting
    ready = {p for topic in group.state.partitions.initialized.values() for p in topic.partitions}
    assert ready == set(starts(broker) or {})


@pytest.fixture
def crash(monkeypatch):
    """Have the n-th append to an internal topic from now on fail, as if the process had ended
    there; 0 for none.
    """
    real, left = PartitionLog.append, [0, Crash]

    def append(self, *args, **kwargs):
        if self.topic.startswith("__") and left[0]:
            left[0] -= 1
            if left[0] == 0:
                raise left[1]
        return real(self, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "append", append)

    def arm(appends, error=Crash):
        left[:] = appends, error

    return arm


@pytest.mark.parametrize(
    ("before", "change", "whole"),
    [
        (nothing, join, [{}, dict.fromkeys(range(4), -1)]),
        (nothing, alter, [{}, ALTERED]),
        (joined_and_left, alter, [dict.fromkeys(range(4), -1), ALTERED]),
        (altered_after_leaving, delete_offsets, [ALTERED, {}]),
        (altered_after_leaving, delete_group, [ALTERED, {}]),
        (altered_after_leaving, join, [ALTERED]),
        (altered_after_leaving, delete_topic, [None]),
    ],
)
@story
async def test_a_crash_between_any_two_appends(tmp_path, crash, before, change, whole):
    async def tried(appends):
        """Return whether the change completed although the append of this number failed."""
        data_dir = tmp_path / str(uuid.uuid4())
        broker = begun(data_dir)
        await before(broker)
        crash(appends)
        try:
            await change(broker)
        except Crash:
            finished = False
        else:
            finished = True
        crash(0)
        shutil.copytree(data_dir, found := data_dir.with_suffix(".found"))  # as the process left it
        broker.close()
        (found / "lock").unlink(missing_ok=True)
        after = begun(found)
        check_settled(after)
        if change is not delete_topic:  # made anew by begun(), with another id
            assert all(
                value in [part.get(p) for part in whole] for p, value in starts(after).items()
            )
        if finished and change is not delete_topic:
            assert starts(after) == whole[-1]
        again = delete_topic_if_there if change is delete_topic else change
        await again(after)
        check_settled(after)
        assert (starts(after) or None) == (whole[-1] or None)
        durable = (
            after.coordinators.groups.groups.get("g")
            and after.coordinators.groups.groups["g"].state.partitions
        )
        after.close()
        crash(1)
        last = begun(found)  # and writes nothing, for there is nothing to settle
        crash(0)
        check_settled(last)
        assert (
            last.coordinators.groups.groups.get("g")
            and last.coordinators.groups.groups["g"].state.partitions
        ) == durable
        last.close()
        return finished

    appends = 1
    while not await tried(appends):
        appends += 1
    assert appends > 1  # at least one append was hit


@story
async def test_a_disk_that_is_still_full_at_the_start_does_not_keep_the_broker_from_serving(
    tmp_path, crash, caplog
):
    broker = begun(tmp_path)
    await altered_after_leaving(broker)
    crash(2, StorageError)
    with pytest.raises(StorageError):
        await delete_offsets(broker)
    broker.close()
    crash(1, StorageError)
    after = begun(tmp_path)
    assert "cannot complete interrupted changes" in caplog.text
    assert starts(after) == ALTERED
    await delete_offsets(after)
    check_settled(after)
    assert starts(after) == {}
    after.close()


async def delete_topic_if_there(broker):
    if "t" in broker.catalog.topics:
        await delete_topic(broker)


def test_a_deletion_of_which_a_power_cut_has_kept_only_the_end_has_not_happened(tmp_path):
    """The group says that nothing has state, and the deletion of the state is lost."""

    async def starts(broker):
        topic_id = broker.catalog.topics["t"].topic_id
        keys = [SharePartitionKey("g", topic_id, partition) for partition in range(4)]
        return {
            key.partition: broker.coordinators.share_state.summary(key).start_offset for key in keys
        }

    async def run(*, deletes_half):
        broker = Broker(Config(CONFIG), tmp_path)
        broker.start()
        if deletes_half:
            topic = broker.catalog.create_topic("t", 4)
            await alter(broker)
            group = broker.coordinators.groups.share.group("g")
            broker.coordinators.group_runtime.write_now("g", group.deleted([topic.topic_id]))
        else:
            assert await starts(broker) == ALTERED
            assert not (await join(broker)).error_code
            await asyncio.sleep(0)
        assert await starts(broker) == ALTERED
        broker.close()

    asyncio.run(run(deletes_half=True))
    asyncio.run(run(deletes_half=False))
