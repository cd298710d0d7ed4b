"""The small examples do what their first lines say."""

from __future__ import annotations

import asyncio
import importlib
import re
import subprocess
import sys

import httpx
import pytest

from tests.support import ROOT, HeadraceProcess, story

pytestmark = pytest.mark.broker


def run(example: str) -> list[str]:
    """Return what an example prints on its standard output."""
    command = [sys.executable, "-m", f"examples.{example}"]
    done = subprocess.run(
        command, cwd=ROOT, env=HeadraceProcess.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_coroutines_share_a_queue() -> None:
    *packed, left = run("asyncio_queue")
    assert {re.findall(r"order (\d+)", line)[0] for line in packed} == set(map(str, range(40)))
    assert left == "0 records are left"


def test_slow_calls_are_made_at_once() -> None:
    (line,) = run("slow_http_calls")
    assert re.fullmatch(r"300 calls of about a second took \d+\.\d s", line)


def test_poison_records_hold_nobody_up() -> None:
    lines = run("poison_records")
    assert {line for line in lines if line.startswith("order")} == {
        "order 1: 6 in each box",
        "order 4: 4 in each box",
    }
    assert sorted(line.split("attempts: ")[1] for line in lines if line.startswith("dead")) == [
        "1, a negative number of boxes",
        "3, ZeroDivisionError: integer division or modulo by zero",
    ]


@story
async def test_an_order_is_taken_packed_and_shipped(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP_SERVERS", bootstrap_servers)
    shop = importlib.reload(importlib.import_module("examples.order_service"))
    transport = httpx.ASGITransport(shop.api)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        refused = await client.post("/orders", json={"item": "chair", "count": 0})
        assert refused.status_code == 422
        for item in ("chair", "table"):
            taken = await client.post("/orders", json={"item": item, "count": 2})
            assert (taken.status_code, set(taken.json())) == (202, {"order"})
    worker = shop.app.worker()
    work = asyncio.create_task(worker.run())
    pack, ship = worker.runners
    while not (ship.counts["accepted"] and pack.counts["dead_letters"]):
        assert not work.done(), work.exception()
        await asyncio.sleep(0.05)
    worker.stop()
    await work
    shop.app.close()
    assert "shipping 2 of chair" in capfd.readouterr().out
    assert shop.STOCK["chair"] == 10
