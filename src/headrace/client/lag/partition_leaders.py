"""The offsets of many partitions. A partition that fails does not affect the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.coordinators import Leaders
from headrace.client.errors import ClientError, UnknownTopic
from headrace.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from headrace.protocol.partitions import TopicPartition


class PartitionLeaders(Leaders):
    """A cache of partition leaders. A topic is looked up once, and again if its leader has moved.

    :ivar problems: what could not be determined, one line each; an ordered set
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster
        self.problems: dict[str, None] = {}

    async def learn(self, topics: Iterable[str]) -> None:
        """Look up those of the topics that are not cached.

        :raises ClientError: no broker answers
        """
        names = set(topics)
        await super().learn(names)
        for name in sorted(names):
            self._add_problem(self.topics.get(name))

    def _add_problem(self, answer: object) -> None:
        if isinstance(answer, ClientError) and not isinstance(answer, UnknownTopic):
            self.problems[str(answer)] = None

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """Topic name → id, of the topics that exist."""
        topics = self.topics.values()
        return {topic.name: topic.topic_id for topic in topics if isinstance(topic, TopicMetadata)}

    def _leaders(self, topic: str) -> Mapping[int, int] | None:
        """Return partition → node id; None if the topic is missing, or cannot be described."""
        metadata = self.topics.get(topic)
        return metadata.leaders if isinstance(metadata, TopicMetadata) else None

    def may_exist(self, partition: TopicPartition) -> bool:
        """Return False if the topic is known not to have the partition."""
        leaders = self._leaders(partition[0])
        return leaders is None or partition[1] in leaders

    def partitions(self, topic: str) -> list[int] | None:
        """Return the partitions of a topic that was looked up; None if it is missing."""
        leaders = self._leaders(topic)
        return None if leaders is None else sorted(leaders)

    def by_broker(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader; leave out those that are missing or have none.

        :returns: node id → partitions
        """
        led: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._leader(*partition)
            if isinstance(leader, int):
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
        keys = set(partitions)
        await self.learn(topic for topic, _ in keys)
        answers = await list_offsets(
            self.cluster,
            {key: timestamp for key in keys if isinstance(self._leader(*key), int)},
            isolation_level=READ_COMMITTED if read_committed else READ_UNCOMMITTED,
            leaders=self,
            attempts=2,
        )
        offsets = {}
        for key, answer in answers.items():
            if isinstance(answer, ClientError):
                self._add_problem(answer)
            elif answer.offset is not None:
                offsets[key] = answer.offset
        return offsets
