"""A mistake of many kinds: a start that does not replay some of its coordinator records."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from headrace.groups.offsets.commit_batches import CommitBatches


def forget(
    patch: pytest.MonkeyPatch, coordinator: type[Any], is_forgotten: Callable[[Any], bool]
) -> None:
    """Have a coordinator take the records that are forgotten for ones of an unknown type."""
    decode: Any = coordinator.decode
    is_static = isinstance(inspect.getattr_static(coordinator, "decode"), staticmethod)

    def forgetful(*arguments: Any) -> Any:
        decoded = decode(*arguments)
        return None if is_forgotten(decoded) else decoded

    patch.setattr(coordinator, "decode", staticmethod(forgetful) if is_static else forgetful)
    # A start decodes whole batches of commits beside the coordinator, if it can.
    patch.setattr(CommitBatches, "decode", lambda *arguments: None)
