"""Every block of code of the documentation is followed by a test, is a part of a file of this
repository, or is named with a reason.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib

import pytest

import tests.pages
from tests.support import ROOT

from .marks import CODE, blocks_of, left, marks_of
from .not_followed import NOT_FOLLOWED
from .reader import PAGES, Block, blocks, command_lines

LANGUAGES = {*CODE, "json", "properties", "text", "yaml"}
FENCE = re.compile(r"^[ >]*(?:```|~~~)", re.MULTILINE)
INDENTED = re.compile(r"^(?![ ]*(?:[-*|]|\d+\.) ).*\n\n {4}\S", re.MULTILINE)


def followed() -> list[Block]:
    """Return the blocks that tests of this folder follow."""
    found: list[Block] = []
    for module in pkgutil.iter_modules(tests.pages.__path__):
        if module.name.startswith("test_"):
            marks = marks_of(importlib.import_module(f"{tests.pages.__name__}.{module.name}"))
            found += blocks_of(marks)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_blocks_have_a_form_that_is_found(page: str) -> None:
    """A block that the reader does not see would be neither followed nor missed."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = blocks(page)
    assert {block.language for block in found} <= LANGUAGES
    assert len(FENCE.findall(text)) == 2 * len(found)
    without_blocks = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert INDENTED.findall(without_blocks) == []


def test_every_block_is_followed_or_named() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    assert sum(block.language in CODE for block in every) > 100
    assert left(every, followed()) == []


def test_what_is_named_is_there() -> None:
    """No reason outlives its code, and the tests in the reasons exist."""
    stale = []
    for page, reasons in NOT_FOLLOWED.items():
        codes = [
            code
            for block in blocks(page)
            if block.language in CODE
            for code in (block.text, *command_lines(block.text))
        ]
        for start, reason in reasons.items():
            if not any(code.startswith(start) for code in codes):
                stale.append(f"{page}: {start}")
            stale += [
                f"{page}: {file}"
                for file in re.findall(r"tests/\w+/\w+\.py", reason)
                if not (ROOT / file).is_file()
            ]
    assert stale == []


def test_a_block_of_a_file_is_a_part_of_it() -> None:
    quoted = [block for page in PAGES for block in blocks(page) if block.is_quoted]
    assert {block.title for block in quoted} >= {
        "deploy/keda/scaledobject.yaml",
        "deploy/prometheus/prometheus.yml",
    }
    assert [
        (block.page, block.title)
        for block in quoted
        if block.text not in (ROOT / block.title).read_text(encoding="utf-8")
    ] == []


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        extra
        for page in PAGES
        for extras in re.findall(r"'?(?:headrace|\.)\[([a-z,]+)\]", (ROOT / page).read_text())
        for extra in extras.split(",")
    }
    assert len(named) >= 5
    assert named - set(project["optional-dependencies"]) == set()
