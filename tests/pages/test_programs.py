"""The programs of README.md, docs/admin.md and docs/opentelemetry.md do what the pages say."""

from __future__ import annotations

import json
import re

import pytest

from .reader import Block, Reader

pytestmark = pytest.mark.broker


@pytest.mark.follows("README.md")
def test_the_first_worker(reader: Reader, page: list[Block]) -> None:
    program, start, *others = page
    _, printed = reader.follow(program, start)
    assert printed == "packing three blue boxes\n"
    reader.follow(*others)


@pytest.mark.follows("docs/admin.md")
def test_administration(reader: Reader, page: list[Block]) -> None:
    """The Python of the page is one program; what is in the text blocks is what it prints."""
    reader.follow_as_one_program(*page)


@pytest.mark.follows("examples/README.md")
def test_examples(reader: Reader, page: list[Block]) -> None:
    diagram, *code = page
    assert diagram.language == "text"
    reader.follow(*code)


@pytest.mark.follows("docs/opentelemetry.md")
def test_tracing(reader: Reader, page: list[Block]) -> None:
    """The spans that the program prints are those of the page, in one trace."""
    reader.serve("headrace serve")
    printed = "".join(reader.follow(*page))
    spans = [
        json.loads(text) for text in re.findall(r"^\{.*?^\}", printed, re.DOTALL | re.MULTILINE)
    ]
    by_name = {span["name"]: span for span in spans}
    assert set(by_name) == {"send shipments", "process shipments", "pack"}
    sent, processed = by_name["send shipments"], by_name["process shipments"]
    assert processed["parent_id"] == sent["context"]["span_id"]
    assert by_name["pack"]["parent_id"] == processed["context"]["span_id"]
    assert processed["attributes"]["headrace.outcome"] == "accept"
