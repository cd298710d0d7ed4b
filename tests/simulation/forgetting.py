"""A mistake of many kinds: a start that does not replay some of its coordinator records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def forget(
    patch: pytest.MonkeyPatch, coordinator: type[Any], is_forgotten: Callable[[Any], bool]
) -> None:
    """Have a coordinator take the records that are forgotten for ones of an unknown type."""
    decode = coordinator.decode

    def forgetful(self: Any, *record: Any) -> Any:
        decoded = decode(self, *record)
        return None if is_forgotten(decoded) else decoded

    patch.setattr(coordinator, "decode", forgetful)
