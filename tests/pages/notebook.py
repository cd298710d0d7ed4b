"""A reader who types the Python of a page into one session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .reader import Block


class Notebook:
    """One namespace for the programs of a page.

    :param changes: text of the page → text that is run
    :ivar names: the namespace
    :ivar followed: the blocks that were run
    """

    def __init__(self, changes: Mapping[str, str]) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.followed: list[Block] = []
        self._changes = changes

    def run(self, block: Block, changes: Mapping[str, str] | None = None) -> None:
        """Run a program.

        :param changes: more of them, for this block
        """
        text = block.text
        for shown, meant in {**self._changes, **(changes or {})}.items():
            text = text.replace(shown, meant)
        exec(compile(text, block.page, "exec"), self.names)
        self.followed.append(block)
