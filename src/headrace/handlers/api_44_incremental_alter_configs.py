"""IncrementalAlterConfigs (44), versions 0-1: change some configs of topics, of the broker or of
groups (KIP-339).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from headrace.broker.broker import Broker
from headrace.broker.config.changes import Change, Plan, increment

from . import RequestContext
from .config_requests import alter_each


def handle(broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext) -> Any:
    def plan(configs: Iterable[AlterableConfig]) -> Plan:
        return increment(
            broker, [Change(one.name, one.config_operation, one.value) for one in configs]
        )

    return alter_each(
        broker, request, plan, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
    )
