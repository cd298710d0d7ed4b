"""The programs of README.md and docs/admin.md do what the pages say."""

from __future__ import annotations

import pytest

from .reader import Block, Reader, blocks

pytestmark = pytest.mark.broker


def test_the_first_queue(reader: Reader) -> None:
    (example,) = [block for block in blocks("README.md") if block.language == "python"]
    assert reader.follow(example) == ["packing b'three blue boxes'\n"]


def test_administration(reader: Reader) -> None:
    """The Python of the page is one program; what is in the text blocks is what it prints."""
    page = blocks("docs/admin.md")
    program = "".join(block.text for block in page if block.language == "python")
    printed = "".join(block.text for block in page if block.language == "text")
    assert printed
    reader.follow(Block("python", "", program), Block("text", "", printed))
