"""Offsets of many partitions at once, as far as they can be had: what one partition lacks does not
fail the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, RequestRefused, error_name
from headrace.client.list_offsets import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListedOffset,
    leader_answers,
)
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

_PARTITIONS_AT_ONCE = 10_000
"""How many partitions one request names: a broker is not held up for long, and no answer is large.
"""


class PartitionLeaders:
    """Who leads which partition; each topic is asked for once, and again when a broker turns out
    not to lead it.

    :ivar problems: why offsets are missing that should be there, for people; a dict for their order
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leaders: dict[str, Mapping[int, int] | None] = {}
        self.problems: dict[str, None] = {}

    async def learn(self, topics: Iterable[str]) -> None:
        """Ask for those of the topics that are not known yet."""
        missing = sorted(set(topics) - self._leaders.keys())
        if not missing:
            return
        self._leaders.update(dict.fromkeys(missing))
        for name, topic in (await self._cluster.metadata(missing)).items():
            if not isinstance(topic, ErrorCode):
                self._leaders[name] = topic.leaders
            elif topic is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.problems[f"looking up topic '{name}': {error_name(topic)}"] = None

    def may_exist(self, partition: TopicPartition) -> bool:
        """False for a partition that a topic, which has been asked for and is there, does not
        have."""
        leaders = self._leaders.get(partition[0])
        return leaders is None or partition[1] in leaders

    def by_broker(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Node id → the partitions that it leads, without those that do not exist or have no
        leader.
        """
        led: dict[int, list[TopicPartition]] = {}
        for one in partitions:
            leader = (self._leaders.get(one[0]) or {}).get(one[1], -1)
            if leader >= 0:
                led.setdefault(leader, []).append(one)
        return led

    async def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The offsets of those partitions that exist and have a leader that answers, in few
        requests to each broker.

        :param timestamp: in ms, or one of the special ones of :mod:`headrace.client.list_offsets`
        :param read_committed: the end is the last stable offset
        """
        wanted = set(partitions)
        isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        found: dict[TopicPartition, int] = {}
        problems: dict[TopicPartition, ClientError] = {}

        async def ask(node_id: int, asked: Sequence[TopicPartition]) -> None:
            for start in range(0, len(asked), _PARTITIONS_AT_ONCE):
                some = dict.fromkeys(asked[start : start + _PARTITIONS_AT_ONCE], timestamp)
                answers: Mapping[TopicPartition, ListedOffset | ClientError]
                try:
                    answers = await leader_answers(
                        self._cluster, node_id, some, isolation_level, self._cluster.timeout_ms
                    )
                except ClientError as error:
                    answers = dict.fromkeys(some, error)
                for key, answer in answers.items():
                    if isinstance(answer, ClientError):
                        problems[key] = answer
                    elif answer.offset is not None:
                        found[key] = answer.offset

        for again in (False, True):
            if again:  # leaders may have moved
                wanted = set(problems)
                for topic in {topic for topic, _ in wanted}:
                    del self._leaders[topic]
                problems.clear()
            await self.learn({topic for topic, _ in wanted})
            await asyncio.gather(
                *(ask(node_id, asked) for node_id, asked in self.by_broker(wanted).items())
            )
            if not problems:
                break
        for problem in problems.values():
            if (
                not isinstance(problem, RequestRefused)
                or problem.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ):
                self.problems[str(problem)] = None
        return found
