"""Looks at what members hold: who keeps a stuck partition, and which acknowledgements came late."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from headrace.amounts import count_of
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.groups import GroupMember
from headrace.client.lag.model import GroupLag
from headrace.client.share_state import SharePartitionState, Span, holds, share_states
from headrace.protocol.partitions import TopicPartition

from .limits import GROUPS_OF_TURN, LEAST_SPANS_OF_PARTITION, MAX_STUCK, PARTITIONS_OF_PAGE
from .texts import duration

LATE_FOR_MS = 300_000
"""The time after the last late acknowledgement for which a group has a note about them."""
_NAMED = 3
"""The members that a sentence names."""


class _Late(NamedTuple):
    """The late acknowledgements of a group: their count in all, what it has grown by while the page
    looked, and when it grew last.
    """

    total: int
    grown: int
    at_ms: int


class InFlightLooks:
    """Looks at what members hold of share groups: of those with stuck partitions, and of some
    others in turn, so that the number of requests does not grow with the groups.

    :ivar late: group id → records that were acknowledged after the end of their locks
    """

    def __init__(self) -> None:
        self.late: dict[str, int] = {}
        self._seen: dict[str, _Late] = {}
        self._turn = 0

    async def look(
        self,
        cluster: Cluster,
        groups: Mapping[str, GroupLag],
        partitions: Mapping[str, Sequence[TopicPartition]],
        stuck: Mapping[str, Mapping[TopicPartition, float]],
        now_ms: int,
    ) -> list[tuple[str, str]]:
        """Return a sentence about each group with stuck partitions, with its id.

        :param partitions: of the share groups with members
        :param stuck: group id → partition → seconds, the longest first
        """
        worst = {group_id: next(iter(stuck[group_id])) for group_id in islice(stuck, MAX_STUCK)}
        keys = {group_id: [key] for group_id, key in worst.items() if group_id in partitions}
        names = sorted(partitions)
        at = self._turn % max(1, len(names))
        self._turn += GROUPS_OF_TURN
        for group_id in (names[at:] + names[:at])[:GROUPS_OF_TURN]:
            keys[group_id] = list({*keys.get(group_id, ()), *partitions[group_id]})

        async def ask(group_id: str) -> Mapping[TopicPartition, SharePartitionState]:
            chosen = keys[group_id][:PARTITIONS_OF_PAGE]
            try:
                return await share_states(cluster, group_id, chosen, LEAST_SPANS_OF_PARTITION)
            except ClientError:  # the view of the group tells why
                return {}

        answers = await asyncio.gather(*map(ask, keys))
        states = dict(zip(keys, answers, strict=True))
        self._seen = {group: seen for group, seen in self._seen.items() if group in groups}
        self._note_late(states, now_ms)
        sentences = []
        for group_id, key in worst.items():
            state = states.get(group_id, {}).get(key)
            spans = None if state is None else state.spans
            members = groups[group_id].members
            sentences.append((group_id, _sentence(stuck[group_id], key, spans, members)))
        return sentences

    def _note_late(
        self, states: Mapping[str, Mapping[TopicPartition, SharePartitionState]], now_ms: int
    ) -> None:
        for group_id, of_group in states.items():
            total = sum(state.late_count or 0 for state in of_group.values())
            seen = self._seen.pop(group_id, _Late(total, 0, 0))
            if total > seen.total:
                seen = _Late(total, seen.grown + total - seen.total, now_ms)
            self._seen[group_id] = seen._replace(total=total)
        self.late = {
            group_id: seen.grown
            for group_id, seen in self._seen.items()
            if seen.grown and now_ms - seen.at_ms < LATE_FOR_MS
        }


def _sentence(
    stuck: Mapping[TopicPartition, float],
    key: TopicPartition,
    spans: Sequence[Span] | None,
    members: Sequence[GroupMember],
) -> str:
    """Return a sentence about a partition that is stuck.

    :param stuck: the partitions of the group that are, and for how many seconds
    :param spans: the records in flight, if the broker tells them
    """
    text = f"{key[0]}-{key[1]}: nothing finished for {duration(round(stuck[key] * 1000))}"
    if len(stuck) > 1:
        text += f", nor in {count_of(len(stuck) - 1, 'other partition')}"
    if spans is None:
        names = [member.client_id for member in members if key in member.assignment]
        return f"{text}; assigned to {', '.join(names[:_NAMED])}" if names else text
    held = holds(spans, members)[:_NAMED]
    holders = [f"{hold.holder} holds {count_of(hold.record_count, 'record')}" for hold in held]
    return f"{text}; {', '.join(holders) or 'no member holds its records'}"
