"""The topics to which letters of a queue may go back.

The headers of a letter name its source, and whoever may write to the queue can write any headers.
So a source must be a topic that the letter's share group consumes, and the group must use this
queue. Both are learned from the cluster, never from letters: the cost does not depend on what they
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.configs import ConfigType, config_values
from headrace.client.errors import ClientError, RequestRefused
from headrace.client.groups import GroupList, list_groups
from headrace.client.offsets import ShareOffset, share_offsets

from .letters import DeadLetter
from .originals import NO_TOPIC

TOPIC_NAME = "errors.deadletterqueue.topic.name"
"""The config of a share group that names its dead-letter queue."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a cluster says about the sources of a queue's letters.

    :param topics: all topics by name; the broker keeps its own state in internal ones
    :param consumed: share group that uses the queue → the topics in which it has offsets
    :param unknown: share group that uses the queue → why its topics are not known
    """

    topics: Mapping[str, TopicMetadata]
    consumed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def obstacle(self, letter: DeadLetter) -> str | None:
        """Return why the source of a letter gets no records; None if it may get them."""
        name, partition = letter.source
        topic = self.topics.get(name)
        if topic is None:
            return NO_TOPIC
        if topic.is_internal:
            return "an internal topic is never a source"
        if partition >= len(topic.leaders):
            return "the partition does not exist"
        if letter.group_id is None:
            return "the letter names no share group"
        if letter.group_id in self.unknown:
            return self.unknown[letter.group_id]
        if letter.group_id not in self.consumed:
            return (
                f"the letter's share group does not use this queue ({TOPIC_NAME}), was deleted, or "
                "the user may not describe the group and its configs"
            )
        if name not in self.consumed[letter.group_id]:
            return "the letter's share group does not consume the topic"
        return None


async def find_sources(cluster: Cluster, queue: str) -> Sources:
    """Look up what share groups use a queue, and which topics they consume.

    :raises ClientError: a broker does not answer
    """
    topics = await cluster.all_topics()
    # The records of a group whose coordinator is away would be skipped as if they were forged.
    queues, listed = await queues_of_groups(cluster)
    for failure in listed.errors:
        raise failure
    users = [group_id for group_id, name in queues.items() if name == queue]
    consumed: dict[str, frozenset[str]] = {}
    unknown: dict[str, str] = {}
    for group_id, offsets in (await share_offsets(cluster, users)).items():
        if isinstance(offsets, RequestRefused):
            unknown[group_id] = str(offsets)
        elif isinstance(offsets, ClientError):
            raise offsets
        else:
            consumed[group_id] = frozenset(
                topic
                for (topic, _), offset in offsets.items()
                if isinstance(offset, ShareOffset) and offset.start_offset is not None
            )
    return Sources(topics, consumed, unknown)


async def queues_of_groups(cluster: Cluster) -> tuple[dict[str, str], GroupList]:
    """Return share group → its dead-letter queue, and the list of share groups.

    :raises ClientError: no broker answers
    """
    listed = await list_groups(cluster, types=("share",))
    group_ids = [group.group_id for group in listed.groups]
    return await config_values(cluster, ConfigType.GROUP, group_ids, TOPIC_NAME), listed
