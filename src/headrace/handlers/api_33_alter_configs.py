"""AlterConfigs (33), versions 0-2: replace all configs of topics, the broker or groups (KIP-133).

A config that the request does not name is removed.

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.alter_configs.v2.request import AlterableConfig, AlterConfigsRequest
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from headrace.broker.broker import Broker
from headrace.broker.config.changes import ConfigChange, ConfigOperation, Plan, replacement

from .alter_configs import alter_resources
from .context import RequestContext


def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> Any:
    """Replace the configs of each resource of a request."""
    return alter_resources(
        broker, request, _plan, AlterConfigsResponse, AlterConfigsResourceResponse
    )


def _plan(configs: Iterable[AlterableConfig]) -> Plan:
    return replacement([ConfigChange(one.name, ConfigOperation.SET, one.value) for one in configs])
