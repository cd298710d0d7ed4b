"""UpdateFeatures (57), versions 0-2: change finalized levels of features (KIP-584).

The updates of a request are carried out together, or not at all.

Version notes:

* Version 0 can only raise levels.
* Version 1 adds the upgrade type, which allows downgrades, and ``validate_only``.
* Version 2 omits the results of features from the response, which earlier ones have for success.
"""

from __future__ import annotations

from kio.schema.update_features.v2.request import UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError
from headrace.broker.features import FeatureUpdate
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext

_FAILED = "The update failed for all features since the following feature had an error: "


def handle(
    broker: Broker, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    """Change the levels of features, or validate the changes."""
    updates = [
        FeatureUpdate(one.feature, one.max_version_level, one.upgrade_type)
        for one in request.feature_updates
    ]
    refusal = broker.features.check(updates)
    if refusal is not None:
        return _response(Refusal(refusal.code, f"{_FAILED}{refusal.message}"))
    if not request.validate_only:
        try:
            broker.features.apply(updates)
        except CatalogError as error:
            return _response(Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
    return _response(Refusal(ErrorCode.NONE))


def _response(result: Refusal) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        throttle_time=NO_THROTTLE, error_code=result.code, error_message=result.message
    )
