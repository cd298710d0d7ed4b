"""The table of internal topics: the topics in which coordinators keep their state.

Every decision about an internal topic starts here. A topic with one of these names is internal,
whoever created it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

CONSUMER_OFFSETS = "__consumer_offsets"
SHARE_GROUP_STATE = "__share_group_state"
TRANSACTION_STATE = "__transaction_state"


class InternalTopic(NamedTuple):
    """An internal topic.

    :param config_prefix: the prefix of the broker configs for its partitions and segments
    :param configs: topic configs that apply unless the topic itself has others
    """

    name: str
    config_prefix: str
    configs: Mapping[str, str]


INTERNAL_TOPICS: Mapping[str, InternalTopic] = MappingProxyType(
    {
        topic.name: topic
        for topic in (
            InternalTopic(
                CONSUMER_OFFSETS,
                "offsets.topic",
                {"cleanup.policy": "compact", "compression.type": "producer"},
            ),
            InternalTopic(
                SHARE_GROUP_STATE,
                "share.coordinator.state.topic",
                {
                    "cleanup.policy": "delete",
                    "retention.ms": "-1",
                    "compression.type": "producer",
                },
            ),
            InternalTopic(
                TRANSACTION_STATE,
                "transaction.state.log",
                {
                    "cleanup.policy": "compact",
                    "unclean.leader.election.enable": "false",
                    "compression.type": "producer",
                },
            ),
        )
    }
)
"""By name."""
