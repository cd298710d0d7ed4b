"""Finalized levels of features: kept over restarts, and in force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.protocol.api import UpdateFeaturesRequest
from headrace.protocol.errors import ErrorCode
from headrace.topics.catalog import Catalog
from headrace.topics.features import (
    FEATURES,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    Features,
)
from tests.wire_client import Connection


def update(name: str, level: int, upgrade_type: int) -> UpdateFeaturesRequest.FeatureUpdateKey:
    return UpdateFeaturesRequest.FeatureUpdateKey(
        feature=name, max_version_level=level, upgrade_type=upgrade_type
    )


def test_levels_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = Catalog(path)
    features = Features(catalog, 1)
    changes: list[str] = []
    features.on_change = lambda: changes.append("changed")
    features.apply([update("share.version", 0, SAFE_DOWNGRADE)])
    features.apply([update("transaction.version", 1, SAFE_DOWNGRADE)])
    features.apply([update("transaction.version", 1, UPGRADE)])
    catalog.close()
    again = Features(Catalog(path), 1)
    assert changes == ["changed"] * 2
    assert again.levels == {**features.levels, "share.version": 0, "transaction.version": 1}
    assert (features.epoch, again.epoch) == (3, 3)
    assert again.refused_apis == FEATURES["share.version"].apis


def test_the_level_of_metadata_cannot_be_lowered() -> None:
    features = Features(Catalog(), 1)
    for upgrade_type, why in (
        (
            SAFE_DOWNGRADE,
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information.",
        ),
        (UNSAFE_DOWNGRADE, "Unsafe metadata downgrade is not supported in this version."),
    ):
        refusal = features.check([update("metadata.version", 32, upgrade_type)])
        assert refusal is not None
        assert refusal.code == ErrorCode.INVALID_UPDATE_VERSION
        assert refusal.message == f"Unsupported metadata.version downgrade from 33 to 32. {why}"


@pytest.mark.broker
def test_apis_of_a_disabled_feature_are_refused() -> None:
    with Broker() as broker:
        connection = Connection(broker.bootstrap_servers)

        def heartbeat() -> Any:
            return connection.ask(
                76, 1, group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
            ).error_code

        def set_level(level: int, upgrade_type: int) -> None:
            update = {
                "feature": "share.version",
                "max_version_level": level,
                "upgrade_type": upgrade_type,
            }
            response = connection.ask(57, 2, timeout=1000, feature_updates=[update])
            assert response.error_code == 0, response

        assert heartbeat() == ErrorCode.NONE
        set_level(0, SAFE_DOWNGRADE)
        assert heartbeat() == ErrorCode.UNSUPPORTED_VERSION
        (group,) = connection.ask(77, 1, group_ids=["g"]).groups
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
        set_level(1, UPGRADE)
        assert heartbeat() == ErrorCode.NONE
        connection.close()
