"""A reader for each test, and the blocks of pages that it has to follow."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from .marks import blocks_of, left
from .reader import Block, Reader


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test fail that has not followed all blocks of its marks."""
    result = yield
    assert left(blocks_of(item.iter_markers("follows")), followed(item)) == []
    return result


def followed(item: pytest.Item) -> list[Block]:
    """Return the blocks that the readers of a test have followed."""
    fixtures: dict[str, object] = getattr(item, "funcargs", {})
    return [
        block
        for name in ("reader", "notebook")
        for block in getattr(fixtures.get(name), "followed", ())
    ]


@pytest.fixture
def page(request: pytest.FixtureRequest) -> list[Block]:
    """Return the blocks that the test has to follow."""
    return blocks_of(request.node.iter_markers("follows"))


@pytest.fixture
def typed() -> dict[str, str]:
    """Return what the reader types: by the start of the command that asks."""
    return {}


@pytest.fixture
def changes() -> dict[str, str]:
    """Return what the reader types in the place of texts of the page."""
    return {}


@pytest.fixture
def port() -> str | None:
    """Return the port of the reader's broker if it runs already."""
    return None


@pytest.fixture
def reader(
    tmp_path: Path, typed: dict[str, str], port: str | None, changes: dict[str, str]
) -> Iterator[Reader]:
    made = Reader(tmp_path, typed, port, changes)
    yield made
    made.close()
