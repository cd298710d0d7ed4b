from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.disk import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.home.close()
