"""The pytest fixtures ``headrace_broker`` and ``headrace_secure_broker``, registered by the
installed package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from . import Broker
    from .secure_broker import SecureBroker


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """Yield an empty broker for one test. Clients connect to ``headrace_broker.bootstrap_servers``.

    New groups do not wait for further members: ``group.initial.rebalance.delay.ms`` is 0. A share
    group starts at the end of its topics unless its ``share.auto.offset.reset`` is ``earliest``.
    """
    import headrace

    with headrace.Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture
def headrace_secure_broker() -> Iterator[SecureBroker]:
    """Yield an empty broker with TLS, an authorizer, and the users ``admin``, ``alice``, ``bob``.

    A client connects as a user with ``headrace_secure_broker.client_config("alice")``. The user
    ``admin`` may do everything, the others what ``headrace_secure_broker.allow("alice", "READ",
    "TOPIC", "orders")`` allows.
    """
    from headrace.imports import require

    require("cryptography", "security")
    from headrace.secure_broker import SecureBroker

    with SecureBroker() as broker:
        yield broker
