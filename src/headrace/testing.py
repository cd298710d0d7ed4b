"""The pytest fixture ``headrace_broker``, registered by the installed package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from . import Broker


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """Yield an empty broker for one test. Clients connect to ``headrace_broker.bootstrap_servers``.

    New groups do not wait for further members: ``group.initial.rebalance.delay.ms`` is 0. A share
    group starts at the end of its topics unless its ``share.auto.offset.reset`` is ``earliest``.
    """
    import headrace

    with headrace.Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker
