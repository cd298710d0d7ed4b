"""The mark ``follows(page, section)`` of tests: all code of the page is carried out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType

import pytest

from .not_followed import INSTALLING, reason
from .reader import Block, blocks, command_lines

CODE = ("python", "sh")
"""Languages of blocks that are carried out."""


def blocks_of(marks: Iterable[pytest.Mark]) -> list[Block]:
    """Return the blocks of marks, those of the mark that is written first first."""
    return [block for mark in reversed([*marks]) for block in blocks(*mark.args)]


def marks_of(module: ModuleType) -> Iterator[pytest.Mark]:
    """Yield the marks of the tests of a module."""
    for name, function in vars(module).items():
        if name.startswith("test_"):
            marks = getattr(function, "pytestmark", ())
            yield from (mark for mark in marks if mark.name == "follows")


def left(wanted: Iterable[Block], followed: Iterable[Block]) -> list[Block]:
    """Return the blocks of code that were not followed, without those that are named."""
    done = set(followed)
    return [block for block in wanted if needs_reader(block) and block not in done]


def needs_reader(block: Block) -> bool:
    """Return whether a block has code that is carried out."""
    if block.language not in CODE or block.is_quoted:
        return False
    codes = [block.text] if block.language == "python" else command_lines(block.text)
    return not all(code.startswith(INSTALLING) or reason(block.page, code) for code in codes)
