"""The offsets of many partitions. A partition that fails does not affect the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, RequestRefused, error_name
from headrace.client.list_offsets import READ_COMMITTED, READ_UNCOMMITTED, ask_leaders
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition


class PartitionLeaders:
    """A cache of partition leaders. A topic is looked up once, and again if its leader has moved.

    :ivar topic_ids: topic name → id, of the topics that exist
    :ivar problems: reasons for missing offsets, one line each; an ordered set
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leaders: dict[str, Mapping[int, int] | None] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.problems: dict[str, None] = {}

    async def learn(self, topics: Iterable[str]) -> None:
        """Look up those of the topics that are not cached.

        :raises ClientError: no broker answers
        """
        missing = sorted(set(topics) - self._leaders.keys())
        if not missing:
            return
        found = await self._cluster.metadata(missing)
        self._leaders.update(dict.fromkeys(missing))
        for name, topic in found.items():
            if not isinstance(topic, ErrorCode):
                self._leaders[name] = topic.leaders
                self.topic_ids[name] = topic.topic_id
            elif topic is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.problems[f"looking up topic '{name}': {error_name(topic)}"] = None

    def may_exist(self, partition: TopicPartition) -> bool:
        """Return False if the topic is known not to have the partition."""
        leaders = self._leaders.get(partition[0])
        return leaders is None or partition[1] in leaders

    def partitions(self, topic: str) -> list[int] | None:
        """Return the partitions of a topic that was looked up; None if it is missing."""
        leaders = self._leaders.get(topic)
        return None if leaders is None else sorted(leaders)

    def by_broker(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader; leave out those that are missing or have none.

        :returns: node id → partitions
        """
        led: dict[int, list[TopicPartition]] = {}
        for one, leader in self._leaders_of(partitions).items():
            led.setdefault(leader, []).append(one)
        return led

    def _leaders_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        leaders = {one: (self._leaders.get(one[0]) or {}).get(one[1], -1) for one in partitions}
        return {one: leader for one, leader in leaders.items() if leader >= 0}

    async def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Look up offsets of the partitions that exist and whose leader answers.

        Reasons for missing offsets are added to :attr:`problems`.

        :param timestamp: in ms, or a special timestamp of :mod:`headrace.client.list_offsets`
        :param read_committed: take the last stable offset as the end
        :raises ClientError: no broker answers a look-up of topics
        """
        wanted = set(partitions)
        isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        found: dict[TopicPartition, int] = {}
        problems: dict[TopicPartition, ClientError] = {}

        for is_retry in (False, True):
            if is_retry:  # leaders may have moved
                wanted = set(problems)
                for topic in {topic for topic, _ in wanted}:
                    self._leaders.pop(topic, None)
                problems.clear()
            await self.learn({topic for topic, _ in wanted})
            answers = await ask_leaders(
                self._cluster,
                dict.fromkeys(wanted, timestamp),
                self._leaders_of(wanted),
                isolation_level=isolation_level,
                timeout_ms=self._cluster.timeout_ms,
            )
            for key, answer in answers.items():
                if isinstance(answer, ClientError):
                    problems[key] = answer
                elif answer.offset is not None:
                    found[key] = answer.offset
            if not problems:
                break
        for problem in problems.values():
            is_missing = (
                isinstance(problem, RequestRefused)
                and problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if not is_missing:
                self.problems[str(problem)] = None
        return found
