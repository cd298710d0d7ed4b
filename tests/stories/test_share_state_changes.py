"""Changes of share state by requests while the share-partition is being consumed."""

from __future__ import annotations

import importlib

from kio.index import load_request_schema

from headrace.handlers import handler
from headrace.handlers.context import RequestContext
from tests.stories.share_stage import GROUP, stage, story


async def ask(s, api_key, holder, **fields):
    """Send InitializeShareGroupState (83) or DeleteShareGroupState (86) for the only
    share-partition.
    """
    cls = load_request_schema(api_key, 0)
    schema = importlib.import_module(cls.__module__)
    partition = schema.PartitionData(partition=0, **fields)
    request = cls(
        group_id=GROUP,
        topics=(getattr(schema, holder)(topic_id=s.topic_id, partitions=(partition,)),),
    )
    response = handler(api_key)(
        s.broker, request, RequestContext(0, "client", "/127.0.0.1", 99, "broker.test", 9092)
    )
    return response.results[0].partitions[0].error_code


@story
async def test_an_initialised_share_partition_is_loaded_anew():
    async with stage() as s:
        s.produce(10)
        m = s.member()
        assert await m.fetch() == [(0, 9, 1)]
        assert await ask(s, 83, "InitializeStateData", state_epoch=0, start_offset=4) == 124
        assert (await m.ack((0, 0, 1)))[0] == 0
        assert await ask(s, 83, "InitializeStateData", state_epoch=2, start_offset=4) == 0
        assert s.lag() == 6
        assert (await m.ack((1, 1, 1)))[0] != 0
        assert await m.fetch() == [(4, 9, 1)]
        assert (await m.ack((4, 9, 1)))[0] == 0
        assert s.lag() == 0


@story
async def test_nothing_is_delivered_of_a_deleted_share_partition_until_it_is_initialised():
    async with stage() as s:
        s.produce(2)
        m = s.member()
        assert await m.fetch() == [(0, 1, 1)]
        assert await ask(s, 86, "DeleteStateData") == 0
        refused = await m.share_fetch()
        assert [p.error_code for t in refused.responses for p in t.partitions] != [0]
        s.initialize(1)
        assert await m.fetch(epoch=m.epoch) == [(1, 1, 1)]
