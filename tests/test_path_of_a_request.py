"""What docs/path-of-a-request.md names is where it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

PACKAGE = ROOT / "src" / "headrace"
TEXT = (ROOT / "docs" / "path-of-a-request.md").read_text()
FILES = sorted(set(re.findall(r"`([\w/]+\.py|[\w/]+/)`", TEXT)))
MEMBERS = sorted(set(re.findall(r"`([A-Z]\w+)\.(\w+)", TEXT)))
PLACES = sorted(set(re.findall(r"`([\w.]+)`\)? (?:in|\() ?`([\w/]+\.py)`", TEXT)))
NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def definitions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that the body of a module or class defines."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, NAMED):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.mark.parametrize("name", FILES)
def test_a_file_exists(name: str) -> None:
    assert (PACKAGE / name).exists()


def test_every_package_is_described() -> None:
    packages = {f"{init.parent.name}/" for init in PACKAGE.glob("*/__init__.py")}
    described = set(re.findall(r"`(\w+/)`", TEXT[TEXT.index("## The packages") :]))
    assert described == packages


@pytest.mark.parametrize(("owner", "member"), MEMBERS)
def test_a_class_has_its_member(owner: str, member: str) -> None:
    classes = [
        node
        for path in PACKAGE.rglob("*.py")
        if f"class {owner}" in path.read_text()
        for name, node in definitions(parsed(path))
        if name == owner
    ]
    assert any(member in dict(definitions(node)) for node in classes)


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_a_name_is_in_its_file(name: str, file: str) -> None:
    body: ast.AST = parsed(PACKAGE / file)
    for part in name.split("."):
        body = dict(definitions(body))[part]
