"""DescribeConfigs (32), versions 1-4: describe configs of topics, brokers, loggers, client
metrics and groups (KIP-133).

Version notes:

* Version 1 adds synonyms: all sources of the value, by precedence (KIP-226).
* Version 3 adds types and documentation (KIP-569).
* Version 4 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from headrace.net.api import DESCRIBE_CONFIGS, Api, each_config
from headrace.net.call import Call
from headrace.protocol.api import DescribeConfigsRequest, DescribeConfigsResponse
from headrace.protocol.configs import ConfigType
from headrace.protocol.errors import Refusal

Resource = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult
Config = DescribeConfigsResponse.DescribeConfigsResourceResult

API = Api(32, each_config(DESCRIBE_CONFIGS), has_message=True)


async def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe the configs of each resource of a request."""
    allowed, refused = await call.allowed_items(request.resources, Result)
    listeners = call.listeners or (call.client.listener,)
    facts = {
        "advertised.listeners": ",".join(listener.advertised for listener in listeners),
        "log.dirs": call.log_dir,
    }
    results = await call.each(partial(_describe, call, request, facts), allowed)
    return DescribeConfigsResponse(results=results + refused)


def _describe(
    call: Call, request: DescribeConfigsRequest, facts: Mapping[str, str], resource: Resource
) -> Result:
    """Describe a resource. Its configs are bytes, so that many resources take little memory, and
    are made once for topics that have equal ones.

    :param facts: configs of this broker that hold whatever was configured
    """
    resource_type, name = resource.resource_type, resource.resource_name
    result = Result(resource_type=resource_type, resource_name=name)
    described = call.configs.describe(resource_type, name, facts)
    if isinstance(described, Refusal):
        result.error_code, result.error_message = described.code, described.message or ""
        return result
    names = resource.configuration_keys
    result.configs = call.encode_once(
        _shared_key(call, resource),
        lambda: [
            _requested(config, request) for config in described if not names or config.name in names
        ],
    )
    return result


def _shared_key(call: Call, resource: Resource) -> object:
    """Return what is equal for topics whose configs are equal; None for other resources."""
    topic = call.catalog.topics.get(resource.resource_name)
    if resource.resource_type != ConfigType.TOPIC or topic is None or topic.internal:
        return None
    names = resource.configuration_keys
    return None if names is None else tuple(names), tuple(sorted(topic.configs.items()))


def _requested(config: Config, request: DescribeConfigsRequest) -> Config:
    """Leave out what a request does not ask for."""
    if not request.include_synonyms:
        config.synonyms = []
    if not request.include_documentation and config.documentation:  # empty for a logger
        config.documentation = None
    return config
