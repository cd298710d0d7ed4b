"""How far share groups are: start offsets, lag and delivery-complete counts of all their partitions
(KIP-1226).
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
    """Where a share group is in one partition; None for what the broker does not tell.

    :param start_offset: the first offset that is not done with; None before the group's first state
        there
    :param leader_epoch: stored with it
    :param lag: what the broker has worked out: end, less start, less delivery-complete count
    :param delivery_complete_count: offsets from the start on that are done with
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    delivery_complete_count: int | None = None


ShareProgress = Mapping[TopicPartition, SharePosition]


async def share_progress(
    cluster: Cluster,
    leaders: PartitionLeaders,
    group_ids: Sequence[str],
    assigned: Collection[TopicPartition],
) -> dict[str, ShareProgress | ClientError]:
    """The positions of share groups in all partitions in which they have a state.

    The broker tells the lag but not the count, which follows from the end offset that the broker
    has used. So the ends are asked for before and after the lag: where they agree, it was that.
    Where the end before was not known, or has moved, the group is asked once more; where it moves
    all the time, the count stays unknown.

    :param assigned: partitions of which they may be expected to tell
    """
    before = dict(await leaders.offsets(assigned, LATEST)) if assigned else {}
    told: dict[str, ShareProgress | ClientError] = {}
    unsettled: Sequence[str] = group_ids
    for _ in range(2):
        if not unsettled:
            break
        asked = await cluster.coordinators.ask(
            unsettled, asking_for_share_offsets({}), cluster.timeout_ms
        )
        answers = {
            one: answer if isinstance(answer, ClientError) else _told(answer)
            for one, answer in asked.items()
        }
        known = {
            one: answer for one, answer in answers.items() if not isinstance(answer, ClientError)
        }
        after = await leaders.offsets(
            {
                key
                for of_group in known.values()
                for key, at in of_group.items()
                if at.lag is not None
            },
            LATEST,
        )
        for group_id, error in answers.items():
            if isinstance(error, ClientError):
                told.setdefault(group_id, error)
        unsettled = []
        for group_id, of_group in known.items():
            told[group_id] = {
                key: _counted(at, before.get(key), after.get(key)) for key, at in of_group.items()
            }
            if any(
                at.lag is not None and before.get(key) != after.get(key)
                for key, at in of_group.items()
            ):
                unsettled.append(group_id)
        before.update(after)
    return told


def _counted(at: SharePosition, before: int | None, after: int | None) -> SharePosition:
    if at.lag is None or at.start_offset is None or after is None or before != after:
        return at
    return replace(at, delivery_complete_count=max(0, after - at.start_offset - at.lag))


def _told(group: Any) -> dict[TopicPartition, SharePosition]:
    found = {}
    for topic in group.topics:
        for p in topic.partitions:
            begun = not p.error_code and p.start_offset != _UNKNOWN
            lag = getattr(p, "lag", _UNKNOWN)  # version 0 does not tell it
            found[str(topic.topic_name), int(p.partition_index)] = SharePosition(
                start_offset=p.start_offset if begun else None,
                leader_epoch=p.leader_epoch if begun else None,
                lag=lag if begun and lag != _UNKNOWN else None,
            )
    return found
