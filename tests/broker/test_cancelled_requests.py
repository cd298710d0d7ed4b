"""Requests whose connection ends, or whose broker stops, while they wait."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable

import pytest

from headrace.net import call as calls
from tests.fuzz.ground import Ground, Wire
from tests.wire_client import encode, request_message

DELETE_TOPICS = 20


async def no_pause(call: calls.Call) -> None:
    pass


def cut(ground: Ground, wire: Wire) -> None:
    wire.cut()


def stop_serving(ground: Ground, wire: Wire) -> None:
    for connection in list(ground.server.connections):
        connection.stop_serving()


@pytest.mark.parametrize("end", [cut, stop_serving])
@pytest.mark.parametrize("is_charged", [False, True])
def test_a_request_that_ends_while_its_change_goes_on_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[Ground, Wire], None], is_charged: bool
) -> None:
    # No slice is left when the change begins: else it is made at once.
    monkeypatch.setattr(calls, "SLICE_S", 0.0)
    monkeypatch.setattr(calls.Call, "pause", no_pause)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with Ground() as ground:
            wire = Wire(ground)
            if is_charged:
                for connection in ground.server.connections:
                    connection.session.charge_to(ground.broker.quotas)
            topic = {"name": "t0", "topic_id": None}
            wire.send(encode(request_message(DELETE_TOPICS, 6, topics=[topic], timeout=1000), 1))
            assert wire.is_waiting
            assert "t0" in ground.broker.catalog.topics
            end(ground, wire)
            ground.loop.settle()
            ground.check_log()
            assert "t0" not in ground.broker.catalog.topics
        del wire, ground
        gc.collect()
    assert [str(one.message) for one in warned if one.category is RuntimeWarning] == []
