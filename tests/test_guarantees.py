"""Every promise in docs/guarantees.md names tests, and they exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support import ROOT

TEXT = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)))
HEADERS = ("promise", "event", "---")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    tests = [node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    assert not name or name in tests


def test_every_promise_names_a_test() -> None:
    rows = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row[0].startswith(HEADERS)]
    assert len(promises) > 25
    assert [row[0] for row in promises if len(row) != 3 or "`tests/" not in row[2]] == []


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([\w/.-]+)\)", TEXT))))
def test_a_link_leads_somewhere(target: str) -> None:
    assert (ROOT / "docs" / target).is_file()
