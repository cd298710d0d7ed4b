"""The work that groups have in topics, for autoscalers, from few requests.

It takes one request to each coordinator for the positions, and one to each leader for the ends, for
all groups together. Records that members of a share group hold are work, too: they count until they
are accepted, rejected or archived (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigType, describe_configs
from headrace.client.errors import (
    ClientError,
    RequestRefused,
    UnknownTopic,
    is_missing_group,
    raised,
)
from headrace.client.group_requests import (
    Describe,
    asking_for_commits,
    describe_classic_groups,
    describe_consumer_groups,
    describe_share_groups,
)
from headrace.client.list_offsets import EARLIEST, LATEST
from headrace.protocol.partitions import TopicPartition

from .partition_leaders import PartitionLeaders
from .record_times import Times, record_times
from .rows import records_left
from .share_progress import ShareProgress, share_positions

GROUPS_AT_ONCE = 200
"""The number of groups in one request."""

MAX_TAIL_OFFSETS = 10_000
"""The largest number of offsets at the end of a partition that are looked at for records."""
MAX_TAIL_FETCHES = 20
"""The limit of requests to one broker for that, in one call."""

_RESET = "share.auto.offset.reset"


@dataclass(frozen=True, slots=True)
class BacklogQuery:
    """A group and its topics.

    :param topics: empty for those in which the group has a position
    :param from_earliest: True if the group begins with the oldest record of a partition in which
        it has no position, False if with the newest; None to use the config of a share group, and
        the newest record for other groups
    """

    group_id: str
    is_share: bool
    topics: tuple[str, ...] = ()
    from_earliest: bool | None = None


@dataclass(frozen=True, slots=True)
class Tail:
    """What a look at the offsets from a position to the end of a partition has shown.

    :param has_records: False if there are only transaction markers, or aborted records of a group
        that is no share group
    """

    position: int
    end: int
    has_records: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work of a group.

    :param records: those that it still has to finish. A partition in which it has no position, and
        begins with the newest record, counts as one if it has records: a member must come to set
        the position
    :param partitions: number of partitions of its topics
    :param tails: the partitions of which only the end is left. Pass them on to the next call, which
        looks only at what is new
    """

    records: int
    partitions: int
    tails: Mapping[TopicPartition, Tail] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of a group in a partition.

    :param lag: as the broker reports it; None if it does not
    """

    offset: int
    lag: int | None


Positions = Mapping[TopicPartition, _Position]


async def backlogs(
    cluster: Cluster,
    leaders: PartitionLeaders,
    queries: Iterable[BacklogQuery],
    earlier: Mapping[BacklogQuery, Backlog] | None = None,
) -> dict[BacklogQuery, Backlog | ClientError]:
    """Return the work of each group, or the reason why it is unknown.

    :param leaders: a cache, maybe of an earlier call
    :param earlier: results of earlier calls
    :raises ClientError: no broker answers
    """
    wanted = list(dict.fromkeys(queries))
    positions: dict[tuple[str, bool], Positions | ClientError] = {}
    for is_share in (False, True):
        group_ids = sorted({one.group_id for one in wanted if one.is_share == is_share})
        for start in range(0, len(group_ids), GROUPS_AT_ONCE):
            some = group_ids[start : start + GROUPS_AT_ONCE]
            found = await (_share_positions if is_share else _commits)(cluster, some)
            positions.update({(group_id, is_share): one for group_id, one in found.items()})
    topics_of = {one: _topics(one, positions[one.group_id, one.is_share]) for one in wanted}
    await leaders.learn({topic for topics in topics_of.values() for topic in topics})
    places: dict[BacklogQuery, list[TopicPartition]] = {}
    for one, topics in topics_of.items():
        numbers = {topic: leaders.partitions(topic) or () for topic in topics}
        places[one] = [(topic, number) for topic in topics for number in numbers[topic]]
    without: set[TopicPartition] = set()
    unread: set[TopicPartition] = set()
    for one, of_query in places.items():
        known = positions[one.group_id, one.is_share]
        if isinstance(known, ClientError):
            continue
        without.update(place for place in of_query if place not in known)
        unread.update(place for place in of_query if place in known and known[place].lag != 0)
    new_groups = {
        one.group_id
        for one, of_query in places.items()
        if one.is_share and one.from_earliest is None and not without.isdisjoint(of_query)
    }
    earliest = await _starting_early(cluster, sorted(new_groups))
    ends = await leaders.offsets(without | unread, LATEST) if without | unread else {}
    starts = await leaders.offsets(ends, EARLIEST) if ends else {}
    rests = {
        one: _rests(one, positions[one.group_id, one.is_share], of_query, leaders, starts, ends)
        for one, of_query in places.items()
    }
    tails = await _look_at_tails(cluster, leaders, rests, earlier or {})
    return {
        one: rest
        if isinstance(rest, ClientError)
        else _backlog(_resolved(one, earliest), rest, tails[one])
        for one, rest in rests.items()
    }


def _resolved(query: BacklogQuery, earliest: Collection[str]) -> BacklogQuery:
    if query.is_share and query.from_earliest is None and query.group_id in earliest:
        return replace(query, from_earliest=True)
    return query


async def _starting_early(cluster: Cluster, group_ids: Sequence[str]) -> frozenset[str]:
    """Return the share groups that begin before the newest record, as far as their configs are
    known.
    """
    if not group_ids:
        return frozenset()
    try:
        configs = raised(
            await describe_configs(cluster, ConfigType.GROUP, group_ids, keys=[_RESET])
        )
    except RequestRefused:
        return frozenset()
    return frozenset(
        group_id
        for group_id, of_group in configs.items()
        if any(one.name == _RESET and one.value not in (None, "latest") for one in of_group)
    )


def _topics(query: BacklogQuery, positions: Positions | ClientError) -> Sequence[str]:
    if query.topics or isinstance(positions, ClientError):
        return query.topics
    return sorted({topic for topic, _ in positions})


async def _commits(
    cluster: Cluster, group_ids: Sequence[str]
) -> dict[str, Positions | ClientError]:
    def read(answer: Any) -> Positions:
        return {
            (str(topic.name), int(p.partition_index)): _Position(int(p.committed_offset), None)
            for topic in answer.topics
            for p in topic.partitions
            if p.committed_offset >= 0 and not p.error_code
        }

    answers = await cluster.coordinators.ask(group_ids, asking_for_commits({}), cluster.timeout_ms)
    return {
        group_id: answer if isinstance(answer, ClientError) else read(answer)
        for group_id, answer in answers.items()
    }


async def _share_positions(
    cluster: Cluster, group_ids: Sequence[str]
) -> dict[str, Positions | ClientError]:
    def read(progress: ShareProgress) -> Positions:
        return {
            place: _Position(at.start_offset, at.lag)
            for place, at in progress.items()
            if at.start_offset is not None
        }

    return {
        group_id: answer if isinstance(answer, ClientError) else read(answer)
        for group_id, answer in (await share_positions(cluster, group_ids)).items()
    }


class _Rest(NamedTuple):
    """What is left to a group in a partition.

    :param position: where the group reads on: after what retention has deleted
    """

    position: int
    end: int
    records: int
    has_position: bool


_Rests = Mapping[TopicPartition, _Rest]


def _rests(
    query: BacklogQuery,
    positions: Positions | ClientError,
    places: Sequence[TopicPartition],
    leaders: PartitionLeaders,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> _Rests | ClientError:
    """Return what is left in the partitions of a query."""
    if isinstance(positions, ClientError):
        return positions
    for topic in query.topics:
        if leaders.partitions(topic) is None:
            return UnknownTopic(topic)
    if not places:
        return ClientError(
            f"group '{query.group_id}' has no position in any topic: name its topics"
        )
    rests = {}
    for place in places:
        position, start, end = positions.get(place), starts.get(place), ends.get(place)
        if position is not None and position.lag == 0:
            rests[place] = _Rest(position.offset, position.offset, 0, has_position=True)
            continue
        offset = start if position is None else max(position.offset, start or 0)
        records = records_left(offset, start, end)
        if offset is None or end is None or records is None:
            return ClientError(f"the end of {place[0]}-{place[1]} is unknown")
        if position is not None and position.lag is not None:
            records = min(records, max(0, position.lag))
        rests[place] = _Rest(offset, end, records, position is not None)
    return rests


async def _look_at_tails(
    cluster: Cluster,
    leaders: PartitionLeaders,
    rests: Mapping[BacklogQuery, _Rests | ClientError],
    earlier: Mapping[BacklogQuery, Backlog],
) -> dict[BacklogQuery, dict[TopicPartition, Tail]]:
    """Look for records in short tails of partitions.

    Markers of transactions are no records, and neither are aborted records, except for share
    groups, which get them unless configured otherwise. Without this, a group that has read
    everything would have work for ever: no member commits an offset after such a tail.

    :returns: also what earlier looks have shown. A tail that could not be read is missing
    """
    tails: dict[BacklogQuery, dict[TopicPartition, Tail]] = {query: {} for query in rests}
    unread: dict[bool, dict[TopicPartition, set[int]]] = {True: {}, False: {}}
    short: list[tuple[BacklogQuery, TopicPartition, _Rest]] = []
    for query, of_query in rests.items():
        if isinstance(of_query, ClientError):
            continue
        looks = earlier[query].tails if query in earlier else {}
        for place, rest in of_query.items():
            tail = looks.get(place)
            if tail is not None and (tail.position, tail.end) == (rest.position, rest.end):
                tails[query][place] = tail
            elif rest.records and rest.end - rest.position <= MAX_TAIL_OFFSETS:
                short.append((query, place, rest))
                unread[not query.is_share].setdefault(place, set()).add(rest.position)
    times: dict[bool, Times] = {}
    ends: dict[bool, Mapping[TopicPartition, int]] = {}
    for committed_only, positions in unread.items():
        ends[committed_only] = (
            await leaders.offsets(positions, LATEST, read_committed=committed_only)
            if positions
            else {}
        )
        times[committed_only] = await record_times(
            cluster,
            leaders,
            {
                place: of_place
                for place, of_place in positions.items()
                if place in ends[committed_only]
            },
            ends[committed_only],
            read_committed=committed_only,
            max_requests=MAX_TAIL_FETCHES,
        )
    for query, place, rest in short:
        committed_only = not query.is_share
        # Records of an open transaction count: they may be committed.
        if ends[committed_only].get(place, -1) < rest.end:
            continue
        of_place = times[committed_only].get(place, {})
        if rest.position in of_place:
            has_records = of_place[rest.position] is not None
            tails[query][place] = Tail(rest.position, rest.end, has_records)
    return tails


def _backlog(query: BacklogQuery, rests: _Rests, tails: Mapping[TopicPartition, Tail]) -> Backlog:
    records = 0
    for place, rest in rests.items():
        if not rest.records or (place in tails and not tails[place].has_records):
            continue
        records += rest.records if rest.has_position or query.from_earliest else 1
    return Backlog(records, len(rests), tails)


async def has_members(cluster: Cluster, query: BacklogQuery) -> bool:
    """Return whether a group has members, and so may hold records.

    :raises ClientError: the coordinator refuses or does not answer
    """
    kinds: tuple[Describe, ...] = (describe_consumer_groups, describe_classic_groups)
    if query.is_share:
        kinds = (describe_share_groups,)
    for describe in kinds:
        answers = await cluster.coordinators.ask([query.group_id], describe, cluster.timeout_ms)
        answer = answers[query.group_id]
        if not isinstance(answer, ClientError):
            return bool(answer.members)
        if not is_missing_group(answer):
            raise answer
    return False
