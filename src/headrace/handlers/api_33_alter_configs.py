"""AlterConfigs (33), versions 0-2: replace all configs of topics, of the broker or of groups
(KIP-133).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.alter_configs.v2.request import AlterableConfig, AlterConfigsRequest
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from headrace.broker.broker import Broker
from headrace.broker.config.changes import Change, Operation, Plan, replacement

from . import RequestContext
from .config_requests import alter_each


def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> Any:
    return alter_each(broker, request, _plan, AlterConfigsResponse, AlterConfigsResourceResponse)


def _plan(configs: Iterable[AlterableConfig]) -> Plan:
    return replacement([Change(one.name, Operation.SET, one.value) for one in configs])
