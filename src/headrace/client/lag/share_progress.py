"""The progress of share groups in all their partitions: start offsets, lags and delivery-complete
counts (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.group_requests import asking_for_share_offsets
from headrace.client.list_offsets import LATEST
from headrace.protocol.partitions import TopicPartition

from .partition_leaders import PartitionLeaders

_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class SharePosition:
    """The progress of a share group in one partition; None for an unknown value.

    :param start_offset: share-partition start offset; None if the group has no state there
    :param leader_epoch: stored with the start offset
    :param lag: computed by the broker: end - start - delivery-complete count
    :param delivery_complete_count: records after the start that are accepted, rejected or
        archived
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    delivery_complete_count: int | None = None


ShareProgress = Mapping[TopicPartition, SharePosition]


async def share_positions(
    cluster: Cluster, group_ids: Sequence[str]
) -> dict[str, ShareProgress | ClientError]:
    """Return the progress of share groups in all partitions with a state, without the
    delivery-complete counts.

    :returns: group id → progress, or the error that stands in its place
    """
    answers = await cluster.coordinators.ask(
        group_ids, asking_for_share_offsets({}), cluster.timeout_ms
    )
    return {
        group_id: answer if isinstance(answer, ClientError) else _positions(answer)
        for group_id, answer in answers.items()
    }


async def share_progress(
    cluster: Cluster,
    leaders: PartitionLeaders,
    group_ids: Sequence[str],
    assigned: Collection[TopicPartition],
) -> dict[str, ShareProgress | ClientError]:
    """Return the progress of share groups in all partitions with a state.

    A broker reports the lag but not the delivery-complete count, which follows from the end offset
    that it used. So the end offsets are read before and after the lag: if they are equal, the
    broker used that one. A group with an end that was unknown or has moved is asked once more;
    if the end moves again, the count is unknown.

    :param assigned: the partitions of the members, whose ends are read first
    :returns: group id → progress, or the error that stands in its place
    """
    before = dict(await leaders.offsets(assigned, LATEST)) if assigned else {}
    found: dict[str, ShareProgress | ClientError] = {}
    open_ids: Sequence[str] = group_ids
    for _ in range(2):
        if not open_ids:
            break
        positions: dict[str, ShareProgress] = {}
        for group_id, answer in (await share_positions(cluster, open_ids)).items():
            if isinstance(answer, ClientError):
                found.setdefault(group_id, answer)
            else:
                positions[group_id] = answer
        with_lag = {
            key
            for of_group in positions.values()
            for key, at in of_group.items()
            if at.lag is not None
        }
        after = await leaders.offsets(with_lag, LATEST)
        open_ids = []
        for group_id, of_group in positions.items():
            found[group_id] = {
                key: _with_count(at, before.get(key), after.get(key))
                for key, at in of_group.items()
            }
            if any(
                at.lag is not None and before.get(key) != after.get(key)
                for key, at in of_group.items()
            ):
                open_ids.append(group_id)
        before.update(after)
    return found


def _with_count(at: SharePosition, before: int | None, after: int | None) -> SharePosition:
    """Add the delivery-complete count, if the end offset has not moved."""
    if at.lag is None or at.start_offset is None or after is None or before != after:
        return at
    return replace(at, delivery_complete_count=max(0, after - at.start_offset - at.lag))


def _positions(group: Any) -> dict[TopicPartition, SharePosition]:
    """Convert a group of DescribeShareGroupOffsets."""
    found = {}
    for topic in group.topics:
        for p in topic.partitions:
            has_state = not p.error_code and p.start_offset != _UNKNOWN
            lag = getattr(p, "lag", _UNKNOWN)  # version 0 has no lag
            found[str(topic.topic_name), int(p.partition_index)] = SharePosition(
                start_offset=p.start_offset if has_state else None,
                leader_epoch=p.leader_epoch if has_state else None,
                lag=lag if has_state and lag != _UNKNOWN else None,
            )
    return found
