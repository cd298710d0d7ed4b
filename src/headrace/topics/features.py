"""Features of the cluster and their finalized levels (KIP-584), which UpdateFeatures changes.

Levels that differ from the default are kept in the catalog. At level 0 of a group protocol its
requests are refused with UNSUPPORTED_VERSION, as in Apache Kafka. ``transaction.version`` decides
which protocol clients use; ``metadata.version`` says which release this broker is like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.protocol.errors import ErrorCode, Refusal

from .catalog import Catalog

if TYPE_CHECKING:
    from headrace.protocol.api import UpdateFeaturesRequest

    FeatureUpdate = UpdateFeaturesRequest.FeatureUpdateKey

METADATA_VERSION, SHARE_VERSION = "metadata.version", "share.version"

_FIRST_SHARE_VERSION_WITH_DEAD_LETTERS = 2

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""The upgrade types of UpdateFeatures."""

_KIND = "feature"
_LEVEL, _EPOCH = "level", "epoch"
_FIRST_EPOCH = 1


class Feature(NamedTuple):
    """A feature.

    :param lowest: the lowest supported level
    :param highest: the highest supported level
    :param level: the finalized level of a new cluster
    :param apis: the APIs that are refused at level 0
    """

    lowest: int
    highest: int
    level: int
    apis: frozenset[int] = frozenset()


FEATURES: Mapping[str, Feature] = {
    "group.version": Feature(0, 1, 1, frozenset((68, 69))),
    METADATA_VERSION: Feature(7, 33, 33),
    SHARE_VERSION: Feature(0, 2, 2, frozenset((76, 77, 78, 79, 90, 91, 92))),
    "streams.version": Feature(0, 1, 1, frozenset((88, 89, 93))),
    "transaction.version": Feature(0, 2, 2),
}
"""The features by name, in order."""


class Features:
    """The finalized levels of a broker.

    :ivar levels: the finalized levels by name, in the order of :data:`FEATURES`
    :ivar epoch: rises with each change of a level; clients ignore levels of an older epoch
    :ivar refused_apis: the APIs that are refused because their feature is at level 0
    :ivar on_change: called after a change
    """

    def __init__(self, catalog: Catalog, node_id: int) -> None:
        self._catalog = catalog
        self._node_id = node_id
        self.epoch = _FIRST_EPOCH
        self.refused_apis: frozenset[int] = frozenset()
        self.on_change: Callable[[], object] = lambda: None
        self.levels = {name: feature.level for name, feature in FEATURES.items()}
        for name in FEATURES:
            stored = catalog.configs(_KIND, name)
            if stored:
                self.levels[name] = int(stored[_LEVEL])
                self.epoch = max(self.epoch, int(stored[_EPOCH]))
        self._find_refused()

    @property
    def has_dead_letters(self) -> bool:
        """True if share groups have dead-letter queues (KIP-1191)."""
        return self.levels[SHARE_VERSION] >= _FIRST_SHARE_VERSION_WITH_DEAD_LETTERS

    def check(self, updates: Sequence[FeatureUpdate]) -> Refusal | None:
        """Return the error for the first update that is not possible, None if all are."""
        return next(filter(None, map(self._check, updates)), None)

    def apply(self, updates: Sequence[FeatureUpdate]) -> None:
        """Store checked updates, all of them or none.

        :raises CatalogError: when the database fails
        """
        changed = {
            update.feature: update.max_version_level
            for update in updates
            if self.levels[update.feature] != update.max_version_level
        }
        if not changed:
            return
        epoch = self.epoch + 1
        self._catalog.alter_configs(
            {
                (_KIND, name): {_LEVEL: str(level), _EPOCH: str(epoch)}
                for name, level in changed.items()
            }
        )
        self.epoch = epoch
        self.levels |= changed
        self._find_refused()
        self.on_change()

    def _find_refused(self) -> None:
        disabled = (feature for name, feature in FEATURES.items() if self.levels[name] == 0)
        self.refused_apis = frozenset().union(*(feature.apis for feature in disabled))

    def _check(self, update: FeatureUpdate) -> Refusal | None:
        name, level = update.feature, update.max_version_level
        upgrade_type = update.upgrade_type
        problem, why = f"Invalid update version {level} for feature {name}.", None
        if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            why = "The controller does not support the given upgrade type."
        elif level < 0:
            why = "A feature version cannot be less than 0."
        elif name not in FEATURES and level == 0:
            why = f"Feature {name} not found."
        elif name not in FEATURES:
            why = f"Local controller {self._node_id} does not support this feature."
        elif not FEATURES[name].lowest <= level <= FEATURES[name].highest:
            lowest, highest, *_ = FEATURES[name]
            why = f"Local controller {self._node_id} only supports versions {lowest}-{highest}"
        elif level < self.levels[name] and upgrade_type == UPGRADE:
            why = (
                "Can't downgrade the version of this feature without setting the upgrade type to "
                "either safe or unsafe downgrade."
            )
        elif level > self.levels[name] and upgrade_type != UPGRADE:
            why = "Can't downgrade to a newer version."
        elif name == METADATA_VERSION and level < self.levels[name]:
            problem = f"Unsupported metadata.version downgrade from {self.levels[name]} to {level}."
            why = (
                "Unsafe metadata downgrade is not supported in this version."
                if upgrade_type == UNSAFE_DOWNGRADE
                else "Refusing to perform the requested downgrade because it might delete metadata "
                "information."
            )
        return Refusal(ErrorCode.INVALID_UPDATE_VERSION, f"{problem} {why}") if why else None
