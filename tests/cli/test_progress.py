"""Progress bars, on terminals only."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Sequence

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

    async def doubled(piece: Sequence[int]) -> dict[int, int]:
        assert 1 <= len(piece) <= 2
        return {number: 2 * number for number in piece}

    answers = asyncio.run(in_steps(range(count), 2, "describing groups", doubled))
    assert answers == {number: 2 * number for number in range(count)}
    assert ("describing groups" in stderr.getvalue()) is shown
