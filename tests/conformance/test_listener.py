"""The listener that the cases of this folder use is the one that the options ask for."""

from __future__ import annotations

import ssl

import pytest

from headrace.protocol.authorized_operations import Operation
from tests.conformance.world import World
from tests.conftest import is_secured


def test_connections_log_in_where_they_shall(world: World, request: pytest.FixtureRequest) -> None:
    has_tls = isinstance(world.connection.socket, ssl.SSLSocket)
    assert has_tls == is_secured(request.config)


def test_permissions_are_checked_where_they_shall(
    world: World, request: pytest.FixtureRequest
) -> None:
    """The user of `--listener sasl_ssl` needs no CREATE on the cluster, and does not have it."""
    answer = world.connection.ask(60, 0, include_cluster_authorized_operations=True)
    may_create = bool(answer.cluster_authorized_operations & 1 << Operation.CREATE)
    assert may_create != is_secured(request.config)
