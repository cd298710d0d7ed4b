"""The attributes of a client that subscriptions of client metrics match (KIP-714)."""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.config import client_metrics
from headrace.broker.limits import MAX_CLIENT_LABEL_LENGTH

from .context import RequestContext


def client_attributes(broker: Broker, context: RequestContext) -> dict[str, str]:
    """Return the attributes of the client of a request, without its instance id. A long client id
    is cut.
    """
    software = broker.client_software.of(context.connection_id)
    attributes = {
        client_metrics.SOFTWARE_NAME: software.name,
        client_metrics.SOFTWARE_VERSION: software.version,
        client_metrics.SOURCE_ADDRESS: context.host,
        client_metrics.SOURCE_PORT: str(context.client_port),
    }
    if context.client_id is not None:
        attributes[client_metrics.CLIENT_ID] = context.client_id[:MAX_CLIENT_LABEL_LENGTH]
    return attributes
