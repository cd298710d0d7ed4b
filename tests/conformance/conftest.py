"""The broker under test, and the expectations of cases in which the targets differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.classic import ClassicGroup
from tests.conformance.world import Topic, World
from tests.conftest import headrace_process, target_of
from tests.peer import KafkaPeer
from tests.support import COMMON_CONFIGS, ROOT, HeadraceProcess

SMALL_CONFIGS = {
    **COMMON_CONFIGS,
    "group.max.size": "2",
    "group.share.max.size": "2",
    "group.share.max.share.sessions": "3",
    "max.incremental.fetch.session.cache.slots": "8",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "offsets.retention.check.interval.ms": "1000",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.ms": "3000",
    "producer.id.expiration.check.interval.ms": "500",
    "unstable.api.versions.enable": "true",
}
"""Small limits and times that only a whole broker can have, for cases that reach them; and unstable
versions of APIs.
"""


@pytest.fixture(scope="session")
def world_of_this_run(bootstrap_servers: str, target: str) -> Iterator[World]:
    world = World(bootstrap_servers, target)
    world.warm_up()
    yield world
    world.close()


@pytest.fixture
def world(world_of_this_run: World) -> Iterator[World]:
    """The broker under test, for one case; its connections close with the case."""
    world = World(world_of_this_run.bootstrap_servers, world_of_this_run.target)
    yield world
    world.close()


@pytest.fixture(scope="session")
def headrace_beside() -> Iterator[HeadraceProcess]:
    """A headrace beside the broker under test, for conversations with both."""
    with HeadraceProcess(configs=COMMON_CONFIGS) as server:
        yield server


@pytest.fixture
def beside(headrace_beside: HeadraceProcess) -> Iterator[World]:
    """headrace beside the broker under test, for one conversation."""
    world = World(headrace_beside.bootstrap_servers, "headrace")
    yield world
    world.close()


@pytest.fixture(scope="session")
def small_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceProcess | KafkaPeer]:
    """A second broker, which starts when a case first asks for it."""
    directory = tmp_path_factory.mktemp("small")
    made: HeadraceProcess | KafkaPeer
    if target_of(request.config) == "kafka":
        made = KafkaPeer(directory, SMALL_CONFIGS)
    else:
        made = headrace_process(request.config, directory / "data", SMALL_CONFIGS)
    with made as server:
        world = World(server.bootstrap_servers, target_of(request.config))
        world.warm_up()
        world.close()
        yield server


@pytest.fixture
def small_world(small_server: HeadraceProcess | KafkaPeer, target: str) -> Iterator[World]:
    """A broker with small limits (`SMALL_CONFIGS`). Each case leaves its group and closes its
    sessions.
    """
    world = World(small_server.bootstrap_servers, target)
    yield world
    world.close()


@pytest.fixture(scope="session")
def differs(target: str) -> Callable[..., Any]:
    """Return the expectation for the target where the two differ on purpose: `differs("a waiting
    ShareFetch", kafka=…, headrace=…)`.

    The first argument begins a row of docs/differences.md; a difference that is not listed there
    fails the case.
    """
    lines = (ROOT / "docs/differences.md").read_text().splitlines()
    listed = [line.split("|")[1].strip() for line in lines if line.startswith("|")]

    def expected(where: str, *, kafka: Any, headrace: Any) -> Any:
        assert any(row.startswith(where) for row in listed), (
            f"docs/differences.md does not list: {where}"
        )
        return {"kafka": kafka, "headrace": headrace}[target]

    return expected


@pytest.fixture
def group(world: World) -> ClassicGroup:
    """A group without committed offsets; modules about other kinds of groups have their own
    fixture.
    """
    return ClassicGroup(world)


@pytest.fixture
def topic(world: World) -> Topic:
    """A topic with three partitions; modules may have their own fixture."""
    return world.topic(partitions=3)
