"""UpdateFeatures (57), versions 0-2: change finalized levels of features (KIP-584).

The updates of a request are carried out together, or not at all.

Version notes:

* Version 0 can only raise levels. Its flag for downgrades is ignored, as in Kafka.
* Version 1 adds the upgrade type, which allows downgrades, and ``validate_only``.
* Version 2 omits the results of features from the response, which earlier ones have for success.
"""

from __future__ import annotations

from headrace.net.api import ALTER, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import UpdateFeaturesRequest, UpdateFeaturesResponse
from headrace.protocol.errors import ErrorCode, Refusal, failure_of

API = Api(57, on_cluster(ALTER), has_one_error=True)

_FAILED = "The update failed for all features since the following feature had an error: "


async def handle(call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Change the levels of features, or validate the changes."""
    features, updates = call.features, request.feature_updates
    if refusal := features.check(updates):
        refusal = Refusal(refusal.code, f"{_FAILED}{refusal.message}")
    elif not request.validate_only:
        refusal = failure_of(features.apply, updates)
    if refusal is not None:
        return UpdateFeaturesResponse().refused(refusal)
    results = [  # of the versions that have them
        UpdateFeaturesResponse.UpdatableFeatureResult(update.feature, ErrorCode.NONE, "NONE")
        for update in updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)
