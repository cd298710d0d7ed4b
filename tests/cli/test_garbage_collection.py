"""Full collections of the cycle collector stay short."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from headrace.cli import process
from headrace.imports import never_collected


class Node:
    """A part of a cycle."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process, "LONG_COLLECTION_S", 0.0)
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    process.keep_collections_short()
    try:
        yield
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*threshold)
        if not frozen:
            gc.unfreeze()


def test_survivors_of_a_long_collection_are_exempt(
    running: None,
) -> None:
    kept = [[number] for number in range(1000)]
    gc.collect(1)
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)


def test_cycles_among_exempt_objects_are_found_later(
    running: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node()
    gone = weakref.ref(node)
    gc.collect()
    del node
    gc.collect()
    assert gone() is not None
    monkeypatch.setattr(process, "EXEMPT_FOR_S", 0.0)
    gc.collect()
    assert gone() is None


def test_short_collections_exempt_nothing(running: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LONG_COLLECTION_S", 60.0)
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() <= before, "some of the exempt objects may have ended"


def test_what_is_loaded_is_exempt(running: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LONG_COLLECTION_S", 60.0)
    before = gc.get_freeze_count()
    with never_collected():
        assert not gc.isenabled()
        kept = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(kept)
