"""The pytest fixtures ``headrace_broker`` and ``headrace_secure_broker``, registered by the
installed package; and :class:`HeadraceContainer` for tests that use testcontainers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from . import Broker
    from .secure_broker import SecureBroker


class _AsTheyAre(MetaPathFinder):
    """Imports this package as any other program does.

    pytest rewrites the asserts of packages with plugins. A test and its broker import modules on
    first use, each in its thread, and Python 3.11 cannot parse in two threads: *AST constructor
    recursion depth mismatch*.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, path) if fullname.startswith("headrace.") else None


sys.meta_path.insert(0, _AsTheyAre())


class HeadraceContainer:
    """A broker with the methods of testcontainers' ``KafkaContainer``, in this process and without
    Docker: ``with HeadraceContainer() as kafka: kafka.get_bootstrap_server()``.

    :param image: ignored, as are further arguments
    """

    def __init__(self, image: str = "", **_: object) -> None:
        self._broker: Broker | None = None

    def with_kraft(self) -> HeadraceContainer:
        """Change nothing."""
        return self

    def get_bootstrap_server(self) -> str:
        """Return ``host:port`` for any Kafka client.

        :raises RuntimeError: the broker is not running
        """
        if self._broker is None:
            raise RuntimeError("the broker is not running: call start()")
        return self._broker.bootstrap_servers

    def start(self, timeout: float = 30) -> HeadraceContainer:
        """Start, and return when clients can connect."""
        self._broker = _broker().start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stop, and delete all records."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def __enter__(self) -> HeadraceContainer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _broker() -> Broker:
    """Return a broker whose new groups do not wait for further members."""
    import headrace

    return headrace.Broker(config={"group.initial.rebalance.delay.ms": 0})


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """Yield an empty broker for one test. Clients connect to ``headrace_broker.bootstrap_servers``.

    New groups do not wait for further members: ``group.initial.rebalance.delay.ms`` is 0. A share
    group starts at the end of its topics unless its ``share.auto.offset.reset`` is ``earliest``.
    """
    with _broker() as broker:
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
