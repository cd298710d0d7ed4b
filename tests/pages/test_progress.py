"""The commands of pages about progress: the page, the exporter, the scaler, metrics of clients; and
about the dead-letter queue.
"""

from __future__ import annotations

import shutil

import grpc
import pytest

from .reader import Block, Reader

pytestmark = pytest.mark.broker

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
TOPIC = "headrace topics create orders && seq 3 | headrace produce orders"


@needs_curl
@pytest.mark.follows("docs/ui.md")
def test_page(reader: Reader, page: list[Block]) -> None:
    alone, beside, shown, acted = page
    reader.follow(beside)
    assert reader.run(TOPIC).returncode == 0
    grouped = reader.run(
        "headrace groups reset packers --type share --topic orders --to latest --yes"
    )
    assert grouped.returncode == 0, grouped.stderr
    reader.close()

    reader.serve("headrace serve")
    reader.follow(alone)
    (before,) = reader.follow(shown)
    assert '"start_offset":3' in before, before
    (reader.folder / "token.txt").write_text("a-token-of-the-page\n")
    (changed,) = reader.follow(acted)
    assert '"executed":true' in changed, changed


@needs_curl
@pytest.mark.follows("docs/exporter.md")
def test_exporter(reader: Reader, page: list[Block]) -> None:
    reader.serve("headrace serve")
    scraped, config = page
    (printed,) = reader.follow(scraped)
    assert "headrace_exporter_up 1" in printed
    assert config.is_quoted


@pytest.mark.follows("docs/keda.md")
def test_scaler(reader: Reader, page: list[Block]) -> None:
    reader.serve("headrace serve")
    reader.follow(*page)
    with grpc.insecure_channel(f"127.0.0.1:{reader.port('6000')}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=60) == b"\x08\x01", "serving"


@pytest.mark.follows("docs/behaviour/dead-letter-queue.md")
def test_dead_letter_queue(reader: Reader, page: list[Block]) -> None:
    reader.serve("headrace serve")
    reader.follow(*page)
