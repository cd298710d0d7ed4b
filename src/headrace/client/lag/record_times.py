"""The timestamps of records at positions of many partitions, from few Fetch requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, error_name
from headrace.client.fetch import FetchLimits, FetchPosition, fetch
from headrace.client.list_offsets import EARLIEST
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import NO_TIMESTAMP

from .partition_leaders import PartitionLeaders
from .record_search import MOST_BYTES, PartitionSearch

Times = Mapping[TopicPartition, Mapping[int, int | None]]
"""Partition → position → :attr:`PartitionSearch.found`."""


class _Search(NamedTuple):
    """The result of an earlier search, and its end offset and time."""

    timestamp_ms: int | None
    end_offset: int
    time_ms: int


_Searches = dict[TopicPartition, dict[int, _Search]]

_ANSWER_BYTES = 16 * 1024 * 1024
"""The limit of one response, over all partitions."""
_PARTITIONS_AT_ONCE = 2_000
_SIZE_FACTOR = 2
"""The factor from the size of a received batch to the size of later requests."""


@dataclass(slots=True)
class RepeatedTimes:
    """The timestamps that earlier searches have found, for a caller that takes repeated snapshots.
    A position that does not move is read rarely.

    :param max_requests: the limit of Fetch requests to one broker in one search; positions beyond
        it stay unknown until a later search
    :param kept_ms: the time after which a timestamp is read again, as compaction may have deleted
        its record. That no record follows up to an end offset is true for ever
    """

    max_requests: int
    kept_ms: int
    _earlier: dict[bool, _Searches] = field(default_factory=dict)
    _found: dict[bool, _Searches] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a snapshot: forget positions that the last snapshot did not have."""
        self._earlier, self._found = self._found, {}

    async def search(
        self,
        cluster: Cluster,
        leaders: PartitionLeaders,
        positions: Mapping[TopicPartition, Collection[int]],
        end_offsets: Mapping[TopicPartition, int],
        *,
        read_committed: bool,
        now_ms: int,
    ) -> Times:
        """Find timestamps like :func:`record_times`; read only those that are not known yet.

        :param now_ms: time since the epoch
        """
        known: dict[TopicPartition, dict[int, int | None]] = {}
        kept = self._found.setdefault(read_committed, {})
        missing: dict[TopicPartition, list[int]] = {}
        earlier = self._earlier.get(read_committed, {})
        for one, wanted in positions.items():
            of_partition = earlier.get(one, {})
            for position in wanted:
                entry = of_partition.get(position)
                if entry is not None and self._holds(entry, end_offsets[one], now_ms):
                    kept.setdefault(one, {})[position] = entry
                    known.setdefault(one, {})[position] = entry.timestamp_ms
                else:
                    missing.setdefault(one, []).append(position)
        found = await record_times(
            cluster,
            leaders,
            missing,
            end_offsets,
            read_committed=read_committed,
            max_requests=self.max_requests,
        )
        for one, times in found.items():
            known.setdefault(one, {}).update(times)
            for position, timestamp_ms in times.items():
                search = _Search(timestamp_ms, end_offsets[one], now_ms)
                kept.setdefault(one, {})[position] = search
        return known

    def _holds(self, search: _Search, end_offset: int, now_ms: int) -> bool:
        """Return whether the result of an earlier search is still right."""
        if search.timestamp_ms in (None, NO_TIMESTAMP) and search.end_offset == end_offset:
            return True
        return search.timestamp_ms is not None and 0 <= now_ms - search.time_ms < self.kept_ms


async def record_times(
    cluster: Cluster,
    leaders: PartitionLeaders,
    positions: Mapping[TopicPartition, Collection[int]],
    end_offsets: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    max_requests: int | None = None,
) -> Times:
    """Find the timestamps of the records at ``positions``.

    A request to a broker names all partitions with open positions, within a limit of size. It asks
    for few bytes of each; for more after a response with a larger batch, or with several results.

    :param end_offsets: partition → exclusive end of the search
    :param read_committed: ignore records of aborted transactions
    :param max_requests: the limit of requests to one broker; other positions stay unknown
    """
    searches = {one: PartitionSearch(wanted, end_offsets[one]) for one, wanted in positions.items()}
    brokers = [
        _BrokerSearch(cluster, leaders, node_id, read_committed).search(
            {one: searches[one] for one in partitions}, max_requests
        )
        for node_id, partitions in leaders.by_broker(searches).items()
    ]
    await asyncio.gather(*brokers)
    return {one: search.found for one, search in searches.items()}


class _BrokerSearch:
    """The searches in the partitions that one broker leads."""

    def __init__(
        self, cluster: Cluster, leaders: PartitionLeaders, node_id: int, read_committed: bool
    ) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._node_id = node_id
        self._read_committed = read_committed
        self._least_bytes = 0
        """The minimum size of a request, learned from a broker that sends only whole batches."""

    async def search(
        self, searches: Mapping[TopicPartition, PartitionSearch], max_requests: int | None
    ) -> None:
        """Run the searches to their ends. An error goes to ``PartitionLeaders.problems``.

        :param max_requests: end after this many requests; None for no limit
        """
        under_way = {one: search for one, search in searches.items() if not search.done}
        requests = 0
        try:
            while under_way and (max_requests is None or requests < max_requests):
                requests += 1
                chosen = self._choose(under_way)
                beyond = await self._fetch(chosen)
                if beyond:  # their logs start after the position
                    starts = await self._leaders.offsets(beyond, EARLIEST)
                    for one in beyond:
                        under_way[one].start_at(starts.get(one, -1))
                for one, search in chosen.items():
                    # Searches stay in front until they end: a broker sends the first batch whole.
                    if search.done:
                        del under_way[one]
        except ClientError as error:
            self._leaders.problems[str(error)] = None

    def _choose(
        self, under_way: Mapping[TopicPartition, PartitionSearch]
    ) -> dict[TopicPartition, PartitionSearch]:
        """Return the first searches that fit into one response."""
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
        """Send one request for all searches.

        :returns: the partitions whose log starts after the position
        """
        positions = {
            one: FetchPosition(search.offset, search.max_bytes) for one, search in searches.items()
        }
        all_bytes = sum(search.max_bytes for search in searches.values())
        answers = await fetch(
            await self._cluster.connection(self._node_id, "fetch"),
            positions,
            self._leaders.topic_ids,
            FetchLimits(0, 0, max(_ANSWER_BYTES, all_bytes), int(self._read_committed)),
            timeout_ms=self._cluster.timeout_ms,
        )
        beyond = []
        unanswered = dict(searches)
        for one, answer in answers.items():
            search = unanswered.pop(one)
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                beyond.append(one)
            elif answer.error_code:
                problem = f"reading {one[0]}-{one[1]}: {error_name(answer.error_code)}"
                self._leaders.problems[problem] = None
                search.give_up()
            else:
                self._feed(search, answer)
        for search in unanswered.values():
            search.give_up()
        return beyond

    def _feed(self, search: PartitionSearch, answer: Any) -> None:
        data = answer.records or b""
        if data and search.held_back and search.max_bytes <= MOST_BYTES:
            self._least_bytes = max(
                self._least_bytes, min(search.max_bytes, _SIZE_FACTOR * len(data))
            )
        search.feed(
            data, [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
        )
