"""Worlds on both brokers, the page of each, and one browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import wait_until
from tests.web.serving import Page, World, browsing, client, served, world

BOTH = ["headrace", pytest.param("kafka", marks=pytest.mark.java)]


@pytest.fixture(scope="module", params=BOTH)
def seen_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world on headrace, then one on Apache Kafka."""
    server = request.getfixturevalue(f"{request.param}_server")
    with world(server.bootstrap_servers) as made:
        yield made


@pytest.fixture
def is_kafka(request: pytest.FixtureRequest, seen_world: World) -> bool:
    """True if the world is on Apache Kafka, which does not tell what is in flight."""
    return bool(request.node.callspec.params["seen_world"] == "kafka")


@pytest.fixture(scope="module")
def page(seen_world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of the world, which has seen it."""
    folder = tmp_path_factory.mktemp("page")
    with served(folder, "--bootstrap-server", seen_world.bootstrap_servers) as found:
        with client(found) as api:
            wait_until(
                lambda: api.get("/api/overview").status_code == 200, 60, "the first look", 0.1
            )
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser."""
    with browsing() as driver:
        yield driver
