"""DescribeConfigs (32), versions 1-4: describe configs of topics, brokers, loggers, client
metrics and groups (KIP-133).

Version notes:

* Version 1 adds synonyms: all sources of the value, by precedence (KIP-226).
* Version 3 adds types and documentation (KIP-569).
* Version 4 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from headrace.broker.broker import Broker
from headrace.broker.config import client_metrics
from headrace.broker.config.changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from headrace.broker.config.described import (
    TYPES,
    UNKNOWN_TYPE,
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_broker_loggers,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from headrace.broker.config.keys import ConfigKey, broker_id
from headrace.broker.config.topic_rules import check_topic_name
from headrace.broker.limits import SLICED_ABOVE
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.large_responses import LazyArray, Sliced
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import SharedDescriptions, sliced


def handle(
    broker: Broker, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse | Sliced:
    """Describe the configs of each resource of a request."""
    descriptions = SharedDescriptions()
    count = len(request.resources)
    results = (
        _describe(broker, asked, request, context, descriptions) for asked in request.resources
    )
    response = DescribeConfigsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(results) if count <= SLICED_ABOVE else LazyArray(count, results),
    )
    return sliced(response, count)


def _describe(
    broker: Broker,
    asked: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    context: RequestContext,
    descriptions: SharedDescriptions,
) -> DescribeConfigsResult:
    topic = broker.catalog.topics.get(asked.resource_name)
    if asked.resource_type == TOPIC and topic is not None and not topic.internal:
        config_names = None if asked.configuration_keys is None else (*asked.configuration_keys,)
        key = tuple(sorted(topic.configs.items())), config_names
        return DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message="",
            resource_type=TOPIC,
            resource_name=topic.name,
            configs=descriptions.get(
                key, lambda: _wanted(describe_topic(broker.config, topic), asked, request)
            ),
        )
    found = _configs(broker, asked.resource_type, asked.resource_name, context)
    refusal = found if isinstance(found, Refusal) else Refusal(ErrorCode.NONE)
    return DescribeConfigsResult(
        error_code=refusal.code,
        error_message=refusal.message or "",
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=() if isinstance(found, Refusal) else _wanted(found, asked, request),
    )


def _wanted(
    found: Sequence[DescribedConfig],
    asked: DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> tuple[DescribeConfigsResourceResult, ...]:
    wanted = asked.configuration_keys
    return tuple(
        _packed(config, request) for config in found if not wanted or config.key.name in wanted
    )


def _configs(
    broker: Broker, resource_type: int, name: str, context: RequestContext
) -> list[DescribedConfig] | Refusal:
    config, catalog = broker.config, broker.catalog
    if resource_type == TOPIC:
        refusal = check_topic_name(name)
        topic = catalog.topics.get(name)
        if refusal is not None:
            return refusal
        return (
            Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if topic is None
            else describe_topic(config, topic)
        )
    if resource_type == BROKER:
        if name == "":
            return describe_all_brokers(config.cluster_configs())
        if name == str(broker.node_id):
            asked = f"{context.listener_name}://{context.listener_host}:{context.listener_port}"
            addresses = ",".join(one.advertised for one in broker.listeners) or asked
            facts = {
                "advertised.listeners": addresses,
                "log.dirs": str(broker.data_dir.absolute()),
            }
            return describe_broker(config, facts)
        return _wrong_broker(name, f"{broker.node_id} or empty string, but")
    if resource_type == BROKER_LOGGER:
        if name == "":
            return Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        return (
            describe_broker_loggers()
            if name == str(broker.node_id)
            else _wrong_broker(name, f"{broker.node_id} but")
        )
    if resource_type == CLIENT_METRICS:
        if name == "":
            message = "Client metrics subscription name must not be empty"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        return describe_client_metrics(catalog.configs(client_metrics.KIND, name))
    if resource_type == GROUP:
        if name == "":
            return Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(config, catalog.configs("group", name))
    return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _wrong_broker(name: str, expected: str) -> Refusal:
    message = f"Unexpected broker id, expected {expected} received {name}"
    if broker_id(name) is None:
        message = f"Broker id must be an integer, but it is: {name}"
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _packed(
    config: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    key = config.key
    return DescribeConfigsResourceResult(
        name=key.name,
        value=config.value,
        read_only=not key.dynamic,
        config_source=config.source,
        is_sensitive=config.sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in config.synonyms
        )
        if request.include_synonyms
        else (),
        config_type=TYPES[key.type],
        documentation=_documentation(key, request),
    )


def _documentation(key: ConfigKey, request: DescribeConfigsRequest) -> str | None:
    if key.type == UNKNOWN_TYPE:
        return ""
    return (key.documentation or "Has no effect here.") if request.include_documentation else None
