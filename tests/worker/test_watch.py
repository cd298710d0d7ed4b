"""Functions that block the event loop are named, once."""

from __future__ import annotations

import asyncio
import time
from threading import Event
from types import FrameType

import pytest

from headrace.worker import watch as watch_module
from headrace.worker.backends import LoopBackend
from headrace.worker.watch import watched_loop
from tests.support import story


async def pack(told: Event) -> None:
    await asyncio.sleep(0)
    _deeper(told)


def _deeper(told: Event) -> None:
    told.wait(60)  # in another module


def noted(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Return an event that is set when the watch has looked at a frame."""
    event, tell = Event(), watch_module._tell

    def note(frame: FrameType, told: set[str]) -> None:
        tell(frame, told)
        event.set()

    monkeypatch.setattr(watch_module, "_tell", note)
    return event


def test_a_function_that_blocks_is_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @story
    async def run() -> None:
        told = noted(monkeypatch)
        with watched_loop(0.05):
            for _ in range(2):
                told.clear()
                await LoopBackend(pack, "pack", 1, {}).run(((told,), {}))
                await asyncio.sleep(0)
            told.clear()
            _deeper(told)  # no task's

    run()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("task 'pack' blocks the event loop at test_watch.py:")
    assert " in _deeper: the functions, locks and heartbeats" in lines[0]
    assert lines[1].startswith("code blocks the event loop at threading.py:")


def test_a_loop_that_works_is_not_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "_BEAT_S", 0.01)

    @story
    async def run() -> None:
        with watched_loop(60):
            for _ in range(10):
                await asyncio.sleep(0.02)
                time.sleep(0.005)  # noqa: ASYNC251  # a moment

    run()
    assert not caplog.records
