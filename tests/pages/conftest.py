from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .reader import Reader


@pytest.fixture
def typed() -> dict[str, str]:
    """Return what the reader types: by the start of the command that asks."""
    return {}


@pytest.fixture
def reader(tmp_path: Path, typed: dict[str, str]) -> Iterator[Reader]:
    made = Reader(tmp_path, typed)
    yield made
    made.close()
