"""The timestamps of the records at many positions of many partitions, in few Fetch requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, error_name
from headrace.client.list_offsets import EARLIEST
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .partition_leaders import PartitionLeaders
from .record_search import MOST_BYTES, PartitionSearch

Times = Mapping[TopicPartition, Mapping[int, int | None]]
"""Partition → position → timestamp of the first record from there on that counts, None where none
does; what is missing is unknown."""

_ANSWER_BYTES = 16 * 1024 * 1024
"""What one request asks for at most, over all partitions."""
_PARTITIONS_AT_ONCE = 2_000
_WITH_ROOM = 2
"""What is asked for of other partitions: so many times the batches that one has sent."""


async def record_times(
    cluster: Cluster,
    leaders: PartitionLeaders,
    positions: Mapping[TopicPartition, Collection[int]],
    end_offsets: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
) -> Times:
    """Find the times of the records at ``positions``.

    Each request is about all partitions of one broker in which something is still to be found, as
    far as they fit. It asks for little of each, and for more where an answer shows that a batch is
    larger, or was of use for several positions.

    :param end_offsets: where the search in a partition ends
    :param read_committed: records of aborted transactions do not count
    """
    searches = {one: PartitionSearch(wanted, end_offsets[one]) for one, wanted in positions.items()}
    brokers = [
        _Broker(cluster, leaders, node_id, read_committed).search(
            {one: searches[one] for one in partitions}
        )
        for node_id, partitions in leaders.by_broker(searches).items()
    ]
    await asyncio.gather(*brokers)
    return {one: search.found for one, search in searches.items()}


class _Broker:
    """The searches in the partitions that one broker leads."""

    def __init__(
        self, cluster: Cluster, leaders: PartitionLeaders, node_id: int, read_committed: bool
    ) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._node_id = node_id
        self._read_committed = read_committed
        self._least_bytes = 0
        """What is asked for at least: the size of batches, once the broker has turned out to send
        only whole ones.
        """

    async def search(self, searches: Mapping[TopicPartition, PartitionSearch]) -> None:
        """Go on until everything is found, or given up."""
        under_way = {one: search for one, search in searches.items() if not search.done}
        try:
            while under_way:
                chosen = self._choose(under_way)
                beyond = await self._fetch(chosen)
                if beyond:  # their logs begin later
                    starts = await self._leaders.offsets(beyond, EARLIEST)
                    for one in beyond:
                        under_way[one].start_at(starts.get(one, -1))
                for one, search in chosen.items():
                    # what is not comes first again: a broker sends at least the first batch whole
                    if search.done:
                        del under_way[one]
        except ClientError as error:
            self._leaders.problems[str(error)] = None

    def _choose(
        self, under_way: Mapping[TopicPartition, PartitionSearch]
    ) -> dict[TopicPartition, PartitionSearch]:
        """The first of them, as many as one answer has room for."""
        chosen: dict[TopicPartition, PartitionSearch] = {}
        room = _ANSWER_BYTES
        for one, search in under_way.items():
            search.max_bytes = max(search.max_bytes, self._least_bytes)
            if chosen and (search.max_bytes > room or len(chosen) == _PARTITIONS_AT_ONCE):
                break
            chosen[one] = search
            room -= search.max_bytes
        return chosen

    async def _fetch(
        self, searches: Mapping[TopicPartition, PartitionSearch]
    ) -> list[TopicPartition]:
        """One request about all of them; returns the partitions whose log does not reach back that
        far.
        """
        connection = await self._cluster.connection(self._node_id, "fetch")
        request = self._request(connection.messages("fetch"), searches)
        response = await connection.request(request, timeout_ms=self._cluster.timeout_ms)
        beyond = []
        unanswered = dict(searches)
        for topic in response.responses:
            for p in topic.partitions:
                one = (topic.topic, p.partition_index)
                search = unanswered.pop(one)
                if p.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    beyond.append(one)
                elif p.error_code:
                    self._leaders.problems[
                        f"reading {one[0]}-{one[1]}: {error_name(p.error_code)}"
                    ] = None
                    search.give_up()
                else:
                    self._feed(search, p)
        for search in unanswered.values():
            search.give_up()
        return beyond

    def _feed(self, search: PartitionSearch, answer: Any) -> None:
        data = answer.records or b""
        if data and search.held_back and search.max_bytes <= MOST_BYTES:
            self._least_bytes = max(
                self._least_bytes, min(search.max_bytes, _WITH_ROOM * len(data))
            )
        search.feed(
            data, [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
        )

    def _request(self, messages: Any, searches: Mapping[TopicPartition, PartitionSearch]) -> Any:
        asked: dict[str, list[Any]] = {}
        for (topic, partition), search in searches.items():
            asked.setdefault(topic, []).append(
                messages.FetchPartition(
                    partition=partition,
                    fetch_offset=search.offset,
                    partition_max_bytes=search.max_bytes,
                )
            )
        return messages.FetchRequest(
            max_wait=timedelta(0),
            min_bytes=0,
            max_bytes=max(_ANSWER_BYTES, sum(search.max_bytes for search in searches.values())),
            isolation_level=int(self._read_committed),
            topics=tuple(
                messages.FetchTopic(topic=name, partitions=tuple(ps)) for name, ps in asked.items()
            ),
            forgotten_topics_data=(),
        )
