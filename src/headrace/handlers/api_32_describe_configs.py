"""DescribeConfigs (32), versions 1-4: describe configs of topics, brokers, loggers, client
metrics and groups (KIP-133).

Version notes:

* Version 1 adds synonyms: all sources of the value, by precedence (KIP-226).
* Version 3 adds types and documentation (KIP-569).
* Version 4 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.broker.config.changes import owner_of_configs
from headrace.broker.config.described import (
    MAX_SHARED_DESCRIPTIONS,
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_broker_loggers,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from headrace.broker.config.keys import broker_id
from headrace.errors import ErrorCode, Refusal
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import DESCRIBE_CONFIGS, MESSAGES, Owner, each_config
from headrace.protocol.api import DescribeConfigsRequest, DescribeConfigsResponse
from headrace.protocol.configs import ConfigType
from headrace.protocol.schema import Encoded
from headrace.topics.topic_rules import check_topic_name

Resource = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult


def _owner(resource: Resource) -> Owner:
    return owner_of_configs(resource.resource_type, resource.resource_name)


API = Api(32, each_config(DESCRIBE_CONFIGS, _owner))


async def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe the configs of each resource of a request."""
    allowed, refused = call.allowed(request.resources)
    shared: dict[object, Encoded] = {}
    results = []
    for resource in allowed:
        results.append(_describe(call, request, resource, shared))
        await call.pause()
    results += [
        Result(code, MESSAGES[code], resource.resource_type, resource.resource_name)
        for resource, code in refused
    ]
    return DescribeConfigsResponse(results=results)


def _describe(
    call: Call, request: DescribeConfigsRequest, resource: Resource, shared: dict[object, Encoded]
) -> Result:
    """Describe a resource. Its configs are bytes, so that many resources take little memory.

    :param shared: the configs of other topics: many topics have equal ones
    """
    result = Result(resource_type=resource.resource_type, resource_name=resource.resource_name)
    key = _shared_key(call, resource)
    configs = shared.get(key)
    if configs is None:
        described = _configs(call, resource.resource_type, resource.resource_name)
        if isinstance(described, Refusal):
            result.error_code, result.error_message = described.code, described.message or ""
            return result
        names = resource.configuration_keys
        configs = call.encode(
            [
                _requested(config, request)
                for config in described
                if not names or config.name in names
            ]
        )
        if key is not None and len(shared) < MAX_SHARED_DESCRIPTIONS:
            shared[key] = configs
    result.configs = configs
    return result


def _shared_key(call: Call, resource: Resource) -> object:
    """Return what is equal for topics whose configs are equal; None for other resources."""
    topic = call.broker.catalog.topics.get(resource.resource_name)
    if resource.resource_type != ConfigType.TOPIC or topic is None or topic.internal:
        return None
    names = resource.configuration_keys
    return None if names is None else tuple(names), tuple(sorted(topic.configs.items()))


def _configs(call: Call, resource_type: int, name: str) -> list[DescribedConfig] | Refusal:
    broker = call.broker
    config, catalog = broker.config, broker.catalog
    if resource_type == ConfigType.TOPIC:
        refusal = check_topic_name(name)
        topic = catalog.topics.get(name)
        if refusal is not None:
            return refusal
        return (
            Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if topic is None
            else describe_topic(config, topic)
        )
    if resource_type == ConfigType.BROKER:
        if name == "":
            return describe_all_brokers(config.cluster_configs())
        if name == str(broker.node_id):
            client = call.client
            reached = f"{client.listener_name}://{client.listener_host}:{client.listener_port}"
            addresses = ",".join(listener.advertised for listener in broker.listeners) or reached
            facts = {
                "advertised.listeners": addresses,
                "log.dirs": str(broker.data_dir.absolute()),
            }
            return describe_broker(config, facts)
        return _wrong_broker(name, f"{broker.node_id} or empty string, but")
    if resource_type == ConfigType.BROKER_LOGGER:
        if name == "":
            return Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        return (
            describe_broker_loggers()
            if name == str(broker.node_id)
            else _wrong_broker(name, f"{broker.node_id} but")
        )
    if resource_type == ConfigType.CLIENT_METRICS:
        if name == "":
            message = "Client metrics subscription name must not be empty"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        return describe_client_metrics(catalog.configs(ConfigType.CLIENT_METRICS.kind, name))
    if resource_type == ConfigType.GROUP:
        if name == "":
            return Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(config, catalog.configs("group", name))
    return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _wrong_broker(name: str, expected: str) -> Refusal:
    message = f"Unexpected broker id, expected {expected} received {name}"
    if broker_id(name) is None:
        message = f"Broker id must be an integer, but it is: {name}"
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _requested(config: DescribedConfig, request: DescribeConfigsRequest) -> DescribedConfig:
    """Leave out what a request does not ask for."""
    if not request.include_synonyms:
        config.synonyms = []
    if not request.include_documentation and config.documentation:  # empty for a logger
        config.documentation = None
    return config
