"""Every case that once did harm does none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import cases
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("path", sorted(cases.FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_does_no_harm(path: Path) -> None:
    cases.play(cases.read(path))


@pytest.mark.parametrize(
    "path",
    sorted(cases.FOLDER.glob("*/*")),
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_an_input_of_a_target_does_no_harm(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())
