"""The examples of README and of the pages of docs/ do what they say, as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parent.parent


def blocks(page: str) -> list[tuple[str, str]]:
    """The code blocks of a page in their order: language and text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(code: str) -> str:
    """Run a program that must succeed; return what it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_first_queue() -> None:
    (example,) = [text for language, text in blocks("README.md") if language == "python"]
    assert run(example) == "packing b'three blue boxes'\n"


def test_administration() -> None:
    """The Python of the page is one program; what is in the text blocks is what it prints."""
    page = blocks("docs/admin.md")
    program = "".join(text for language, text in page if language == "python")
    printed = "".join(text for language, text in page if language == "text")
    assert printed
    assert run(program) == printed
