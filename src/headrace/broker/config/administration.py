"""What administrators ask of configs."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from headrace.protocol.api import IncrementalAlterConfigsRequest
from headrace.protocol.configs import ConfigType
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.topics.settings import ConfiguredTopic
from headrace.topics.topic_rules import check_topic_name

from .changes import ConfiguredBroker, alter
from .described import (
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_broker_loggers,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from .keys import broker_id


class ConfigAdministration:
    """Describes and alters the configs of topics, of this broker and its loggers, of groups, and of
    subscriptions of client metrics.
    """

    def __init__(self, broker: ConfiguredBroker) -> None:
        self._broker = broker

    def alter(
        self,
        resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource],
        *,
        replaces: bool,
        validate_only: bool,
    ) -> Generator[None, None, list[Refusal]]:
        """Alter configs, see :func:`.changes.alter`."""
        return alter(self._broker, resources, replaces=replaces, validate_only=validate_only)

    def of_new_topic(self, topic: ConfiguredTopic) -> list[DescribedConfig]:
        """Describe the configs of a topic with all their synonyms."""
        return describe_topic(self._broker.config, topic, all_synonyms=True)

    def describe(
        self, resource_type: int, name: str, facts: Mapping[str, str]
    ) -> list[DescribedConfig] | Refusal:
        """Describe the configs of a resource, or return its error.

        :param facts: configs of this broker that hold whatever was configured
        """
        config, catalog = self._broker.config, self._broker.catalog
        node = str(config.node_id)
        message = f"Unknown resource type {resource_type}"
        if resource_type == ConfigType.TOPIC:
            topic = catalog.topics.get(name)
            if topic is not None:
                return describe_topic(config, topic)
            return check_topic_name(name) or Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if resource_type == ConfigType.BROKER:
            if name == "":
                return describe_all_brokers(config.cluster_configs())
            if name == node:
                return describe_broker(config, facts)
            message = _wrong_broker(name, f"{node} or empty string, but")
        elif resource_type == ConfigType.BROKER_LOGGER:
            if name == node:
                return describe_broker_loggers()
            message = "Broker id must not be empty"
            if name:
                message = _wrong_broker(name, f"{node} but")
        elif resource_type == ConfigType.CLIENT_METRICS:
            if name:
                return describe_client_metrics(
                    catalog.configs(ConfigType.CLIENT_METRICS.kind, name)
                )
            message = "Client metrics subscription name must not be empty"
        elif resource_type == ConfigType.GROUP:
            if name:
                return describe_group(config, catalog.configs(ConfigType.GROUP.kind, name))
            message = "Group name must not be empty"
        return Refusal(ErrorCode.INVALID_REQUEST, message)


def _wrong_broker(name: str, expected: str) -> str:
    if broker_id(name) is None:
        return f"Broker id must be an integer, but it is: {name}"
    return f"Unexpected broker id, expected {expected} received {name}"
