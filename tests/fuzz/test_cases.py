"""Every case that once did harm does none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import cases


@pytest.mark.parametrize("path", sorted(cases.FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_does_no_harm(path: Path) -> None:
    cases.play(cases.read(path))
