"""ApiVersions (18), versions 0-5: list the served APIs and the features (KIP-35).

The list comes from the registry: only served APIs are advertised, and only served versions except
Produce 0-2, which are refused. A request of an unsupported version is answered in version 0 with
UNSUPPORTED_VERSION (KIP-511).

Version notes:

* Version 3 is flexible. It adds the client's software name and version (KIP-511), and features
  (KIP-584).
* Version 4 adds features whose lowest supported level is 0.
* Version 5 adds the cluster and the broker that the client means to be connected to (KIP-1242).
"""

from __future__ import annotations

import re

from kio.schema.api_versions.v4.response import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey

from headrace.broker.broker import Broker
from headrace.broker.features import FEATURES
from headrace.errors import ErrorCode
from headrace.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages import NO_THROTTLE

from . import APIS
from .context import RequestContext

_ANY_NODE = -1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    broker: Broker, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """List the served APIs and the features, unless the client means another broker."""
    response = list_apis(broker, request, context)
    this_broker = (broker.catalog.cluster_id, broker.node_id)
    means_another = request.cluster_id is not None and (
        (request.cluster_id, request.node_id) != this_broker
    )
    if means_another and not response.error_code:
        return _refused(ErrorCode.REBOOTSTRAP_REQUIRED)
    return response


def list_apis(
    broker: Broker, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """List the served APIs and the features, also to a client that means another broker: before a
    login, as in Kafka, clients are not told which broker this is.
    """
    software = (request.client_software_name, request.client_software_version)
    names_both = (request.cluster_id is None) == (request.node_id == _ANY_NODE)
    if context.api_version >= 3 and not (names_both and all(map(_SOFTWARE.fullmatch, software))):
        return _refused(ErrorCode.INVALID_REQUEST)
    return supported(ErrorCode.NONE, broker, zero_levels=context.api_version >= 4)


def _refused(error_code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error_code, api_keys=(), throttle_time=NO_THROTTLE)


def supported(
    error_code: ErrorCode, broker: Broker, *, zero_levels: bool = False
) -> ApiVersionsResponse:
    """Return the response with this error code.

    :param zero_levels: also list features whose lowest supported level is 0
    """
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=tuple(
            ApiVersion(
                api_key=api.key,
                min_version=api.lowest if api.advertised_from is None else api.advertised_from,
                max_version=api.served_to(broker.config),
            )
            for api in APIS.values()
        ),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=one.lowest, max_version=one.highest)
            for name, one in FEATURES.items()
            if one.lowest > 0 or zero_levels
        ),
        finalized_features_epoch=broker.features.epoch,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in broker.features.finalized()
        ),
    )
