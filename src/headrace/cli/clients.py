"""What commands use of :mod:`headrace.client`. A module is imported when it is used: all take
0.2 s, which a help and bad usage should not take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client import (
        Cluster,
        TopicMetadata,
        acls,
        config,
        configs,
        errors,
        groups,
        offsets,
        quotas,
        share_state,
        topics,
        users,
    )

    __all__ = [
        "Cluster",
        "TopicMetadata",
        "acls",
        "config",
        "configs",
        "errors",
        "groups",
        "offsets",
        "quotas",
        "share_state",
        "topics",
        "users",
    ]
else:
    from .nouns import Lazy

    def __getattr__(name: str) -> Lazy:
        return Lazy(f"headrace.client.{name}")
