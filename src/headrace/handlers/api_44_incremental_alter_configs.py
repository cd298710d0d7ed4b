"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from configs
(KIP-339).

Version notes:

* Version 1 is flexible (KIP-482).
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
from headrace.broker.config.changes import ConfigChange, Plan, increment

from .alter_configs import alter_resources
from .context import RequestContext


def handle(broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext) -> Any:
    """Change the named configs of each resource of a request."""

    def plan(configs: Iterable[AlterableConfig]) -> Plan:
        return increment(
            broker, [ConfigChange(one.name, one.config_operation, one.value) for one in configs]
        )

    return alter_resources(
        broker, request, plan, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
    )
