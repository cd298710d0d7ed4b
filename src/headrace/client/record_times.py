"""The timestamps of the records at many positions of many partitions, in few Fetch requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.errors import ErrorCode

from .errors import ClientError, error_name
from .list_offsets import EARLIEST
from .partition_leaders import PartitionLeaders
from .record_search import PartitionSearch
from .share_session import TopicPartition

if TYPE_CHECKING:
    from .cluster import Cluster

Times = Mapping[TopicPartition, Mapping[int, int | None]]
"""Partition → position → timestamp of the first record from there on that counts, None where none does; what is
missing is unknown."""

_ANSWER_BYTES = 16 * 1024 * 1024
"""What one request asks for at most, over all partitions."""
_PARTITIONS_AT_ONCE = 2_000


async def record_times(
    cluster: Cluster,
    leaders: PartitionLeaders,
    positions: Mapping[TopicPartition, Collection[int]],
    end_offsets: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
) -> Times:
    """Find the times of the records at ``positions``.

    Each request is about all partitions of one broker in which something is still to be found, as far as they fit. It
    asks for little of each, and for more where an answer shows that a batch is larger, or was of use for several
    positions.

    :param end_offsets: where the search in a partition ends
    :param read_committed: records of aborted transactions do not count
    """
    searches = {one: PartitionSearch(wanted, end_offsets[one]) for one, wanted in positions.items()}

    async def search(node_id: int, partitions: Collection[TopicPartition]) -> None:
        under_way = {one: searches[one] for one in partitions if not searches[one].done}
        try:
            while under_way:
                beyond = await _fetch(cluster, leaders, node_id, under_way, read_committed)
                if beyond:  # their logs begin later
                    starts = await leaders.offsets(beyond, EARLIEST)
                    for one in beyond:
                        under_way[one].start_at(starts.get(one, -1))
                # what did not get its share of the last answer comes first in the next
                under_way = {one: search for one, search in under_way.items() if not search.done}
        except ClientError as error:
            leaders.problems[str(error)] = None

    led = leaders.by_broker(searches)
    await asyncio.gather(*(search(node_id, partitions) for node_id, partitions in led.items()))
    return {one: search.found for one, search in searches.items()}


async def _fetch(
    cluster: Cluster,
    leaders: PartitionLeaders,
    node_id: int,
    under_way: dict[TopicPartition, PartitionSearch],
    read_committed: bool,
) -> list[TopicPartition]:
    """One request; returns the partitions whose log does not reach back that far."""
    connection = await cluster.connection(node_id, "fetch")
    messages = connection.messages("fetch")
    asked: dict[str, list[Any]] = {}
    room = _ANSWER_BYTES
    chosen: list[TopicPartition] = []
    for one, search in under_way.items():
        if chosen and (search.max_bytes > room or len(chosen) == _PARTITIONS_AT_ONCE):
            break
        chosen.append(one)
        room -= search.max_bytes
        asked.setdefault(one[0], []).append(
            messages.FetchPartition(partition=one[1], fetch_offset=search.offset, partition_max_bytes=search.max_bytes)
        )
    request = messages.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=max(_ANSWER_BYTES, _ANSWER_BYTES - room),
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,
        topics=tuple(messages.FetchTopic(topic=name, partitions=tuple(ps)) for name, ps in asked.items()),
        forgotten_topics_data=(),
        rack_id="",
    )
    response = await connection.request(request, timeout_ms=cluster.timeout_ms)
    beyond = []
    answered = set()
    for topic in response.responses:
        for p in topic.partitions:
            one = (topic.topic, p.partition_index)
            answered.add(one)
            search = under_way[one]
            if p.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                beyond.append(one)
            elif p.error_code:
                leaders.problems[f"reading {one[0]}-{one[1]}: {error_name(p.error_code)}"] = None
                search.give_up()
            else:
                aborted = [(t.producer_id, t.first_offset) for t in p.aborted_transactions or ()]
                search.feed(p.records or b"", aborted)
    for one in chosen:
        if one not in answered:
            under_way[one].give_up()
        under_way[one] = under_way.pop(one)  # behind those that have not had their turn
    return beyond
