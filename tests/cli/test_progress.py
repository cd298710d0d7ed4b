"""Progress bars, on terminals only."""

from __future__ import annotations

import io
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.console.produce import Sender, Source
from headrace.cli.console.record_input import LineReader
from headrace.cli.progress import in_steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("count", "terminal", "shown"),
    [(0, True, False), (2, True, False), (7, True, True), (7, False, False)],
)
def test_all_comes_in_pieces_and_many_pieces_with_a_bar_on_a_terminal(
    count: int, terminal: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    pieces = list(in_steps(range(count), 2, "describing groups"))
    assert [one for piece in pieces for one in piece] == list(range(count))
    assert all(1 <= len(piece) <= 2 for piece in pieces)
    assert ("describing groups" in stderr.getvalue()) is shown


class Keyboard(io.BytesIO):
    def isatty(self) -> bool:
        return True


class StoringProducer:
    """A producer whose broker has stored each record at once."""

    def produce(self, *_: object, on_delivery: Callable[[None, None], None], **__: object) -> None:
        on_delivery(None, None)

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float = 0) -> int:
        return 0


@pytest.mark.parametrize("source", ["keyboard", "pipe", "file"])
def test_produce_draws_a_bar_for_files_and_none_into_the_prompt(
    source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")
    options = Namespace(
        topic="t",
        files=[path] if source == "file" else [],
        key=None,
        header=[],
        partition=None,
        timestamp=None,
        sync=False,
        request_required_acks="all",
    )
    file = {"keyboard": Keyboard, "pipe": io.BytesIO, "file": io.BytesIO}[source](b"a\nb\n")
    sender = Sender(options, StoringProducer())
    assert sender.run([Source(source, file, whole=False)], LineReader({}).record) == 0
    assert stderr.getvalue().endswith("Produced a total of 2 messages\n")
    assert ("producing to t" in stderr.getvalue()) is (source == "file")
    assert stderr.getvalue().startswith(">>>Produced") is (source == "keyboard")
