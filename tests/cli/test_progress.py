"""Progress bars, on terminals only."""

from __future__ import annotations

import io
import sys

import pytest

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
