from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scale.broker import Broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("scale"))
    try:
        with running.honest:
            yield running
    finally:
        running.process.stop(timeout_s=60)
