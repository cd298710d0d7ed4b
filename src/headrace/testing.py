"""pytest fixtures. Installed with the package: a test only has to name ``headrace_broker``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from . import Broker


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """A fresh, empty broker for one test: ``headrace_broker.bootstrap_servers``.

    Share groups read from the start of their topics only when the group says so
    (``share.auto.offset.reset``), and new groups do not wait for further members:
    ``group.initial.rebalance.delay.ms`` is 0.
    """
    import headrace

    with headrace.Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker
