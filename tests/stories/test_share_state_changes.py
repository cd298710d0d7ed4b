"""Changes of share state by requests while the share-partition is being consumed."""

from __future__ import annotations

from tests.stories.share_stage import GROUP, on_stage


async def ask(s, api_key, **fields):
    """Send InitializeShareGroupState (83) or DeleteShareGroupState (86) for the only
    share-partition.
    """
    topic = {"topic_id": s.topic_id, "partitions": [fields]}
    response = await s.ask(api_key, connection_id=99, group_id=GROUP, topics=[topic])
    return response.results[0].partitions[0].error_code


@on_stage()
async def test_an_initialised_share_partition_is_loaded_anew(s):
    s.produce(10)
    m = s.member()
    assert await m.fetch() == [(0, 9, 1)]
    assert await ask(s, 83, state_epoch=0, start_offset=4) == 124
    assert (await m.ack((0, 0, 1)))[0] == 0
    assert await ask(s, 83, state_epoch=2, start_offset=4) == 0
    assert s.lag() == 6
    assert (await m.ack((1, 1, 1)))[0] != 0
    assert await m.fetch() == [(4, 9, 1)]
    assert (await m.ack((4, 9, 1)))[0] == 0
    assert s.lag() == 0


@on_stage()
async def test_nothing_is_delivered_of_a_deleted_share_partition_until_it_is_initialised(s):
    s.produce(2)
    m = s.member()
    assert await m.fetch() == [(0, 1, 1)]
    assert await ask(s, 86) == 0
    refused = await m.share_fetch()
    assert [p.error_code for t in refused.responses for p in t.partitions] != [0]
    s.initialize(1)
    assert await m.fetch(epoch=m.epoch) == [(1, 1, 1)]
