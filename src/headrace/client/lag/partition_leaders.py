"""The offsets of many partitions. A partition that fails does not affect the others."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.coordinators import Leaders
from headrace.client.errors import ClientError, UnknownTopic
from headrace.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from headrace.protocol.partitions import TopicPartition


class PartitionLeaders:
    """A cache of partition leaders. A topic is looked up once, and again if its leader has moved.

    :ivar problems: what could not be determined, one line each; an ordered set
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.problems: dict[str, None] = {}
        self._leaders = Leaders(cluster)

    async def learn(self, topics: Iterable[str]) -> None:
        """Look up those of the topics that are not cached.

        :raises ClientError: no broker answers
        """
        names = set(topics)
        await self._leaders.learn(names)
        for name in sorted(names):
            self._add_problem(self._leaders.topics[name])

    def _add_problem(self, answer: object) -> None:
        if isinstance(answer, ClientError) and not isinstance(answer, UnknownTopic):
            self.problems[str(answer)] = None

    def _topic(self, name: str) -> TopicMetadata | None:
        topic = self._leaders.topics.get(name)
        return topic if isinstance(topic, TopicMetadata) else None

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """Topic name → id, of the topics that exist."""
        topics = map(self._topic, self._leaders.topics)
        return {topic.name: topic.topic_id for topic in topics if topic is not None}

    def may_exist(self, partition: TopicPartition) -> bool:
        """Return False if the topic is known not to have the partition."""
        topic = self._topic(partition[0])
        return topic is None or partition[1] in topic.leaders

    def partitions(self, topic: str) -> list[int] | None:
        """Return the partitions of a topic that was looked up; None if it is missing."""
        metadata = self._topic(topic)
        return None if metadata is None else sorted(metadata.leaders)

    def by_broker(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader; leave out those that are missing or have none.

        :returns: node id → partitions
        """
        led: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            topic = self._topic(partition[0])
            leader = -1 if topic is None else topic.leaders.get(partition[1], -1)
            if leader >= 0:
                led.setdefault(leader, []).append(partition)
        return led

    async def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Look up offsets of the partitions that exist and whose leader answers.

        :param timestamp: in ms, or a special timestamp of :mod:`headrace.client.offsets`
        :param read_committed: take the last stable offset as the end
        :raises ClientError: no broker answers a look-up of topics
        """
        wanted = set(partitions)
        await self.learn(topic for topic, _ in wanted)
        answers = await list_offsets(
            self.cluster,
            {key: timestamp for led in self.by_broker(wanted).values() for key in led},
            isolation_level=READ_COMMITTED if read_committed else READ_UNCOMMITTED,
            leaders=self._leaders,
            attempts=2,
        )
        offsets = {}
        for key, answer in answers.items():
            if isinstance(answer, ClientError):
                self._add_problem(answer)
            elif answer.offset is not None:
                offsets[key] = answer.offset
        return offsets
