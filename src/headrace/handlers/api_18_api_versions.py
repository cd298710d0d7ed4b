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

from headrace.net.api import Api, served_versions
from headrace.net.call import Call
from headrace.protocol.api import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.errors import ErrorCode
from headrace.topics.features import FEATURES

from . import APIS

_ANY_NODE = -1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_PRODUCE = 0


async def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List the served APIs and the features, unless the client means another broker: before a
    login, as in Kafka, clients are not told which broker this is.
    """
    software = (request.client_software_name, request.client_software_version)
    names_both = (request.cluster_id is None) == (request.node_id == _ANY_NODE)
    if call.version >= 3 and not (names_both and all(map(_SOFTWARE.fullmatch, software))):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    this_broker = (call.catalog.cluster_id, call.node_id)
    means_another = request.cluster_id is not None and (
        (request.cluster_id, request.node_id) != this_broker
    )
    if means_another and not call.client.is_logging_in:
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return _supported(call, ErrorCode.NONE, zero_levels=call.version >= 4)


def _supported(
    call: Call, error_code: ErrorCode, *, zero_levels: bool = False
) -> ApiVersionsResponse:
    """Return the response with this error code.

    :param zero_levels: also list features whose lowest supported level is 0
    """
    served = {key: served_versions(key, call.config) for key in APIS}
    # Older librdkafka compresses only if Produce 0 is advertised (KAFKA-18659).
    served[_PRODUCE] = served[_PRODUCE]._replace(first=0)
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(key, versions.first, versions.last)
            for key, versions in served.items()
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name, feature.lowest, feature.highest)
            for name, feature in FEATURES.items()
            if feature.lowest > 0 or zero_levels
        ],
        finalized_features_epoch=call.features.epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name, level, level)
            for name, level in call.features.levels.items()
            if level
        ],
    )


API = Api(18, is_quick=True, unserved=lambda call: _supported(call, ErrorCode.UNSUPPORTED_VERSION))
"""All clients can read the response to an unknown version (KIP-511)."""
