"""What commands use of :mod:`headrace.client`. A module is imported when it is used: all take
0.2 s, which a help and bad usage should not take.
"""
# mypy: implicit-reexport
# ruff: noqa: F401

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client import (
        Cluster,
        TopicMetadata,
        config,
        configs,
        errors,
        groups,
        offsets,
        security,
        share_state,
        topics,
        workers,
    )
    from headrace.client.dead_letters import letters, reading, redrive
    from headrace.client.lag import model, snapshot, watch, work

else:
    from .nouns import Lazy

    _PACKAGES = {
        **dict.fromkeys(("letters", "reading", "redrive"), "dead_letters."),
        **dict.fromkeys(("model", "snapshot", "watch", "work"), "lag."),
    }

    def __getattr__(name: str) -> Lazy:
        return Lazy(f"headrace.client.{_PACKAGES.get(name, '')}{name}")
