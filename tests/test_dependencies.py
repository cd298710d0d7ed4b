"""The versions that pyproject.toml, constraints.txt and the workflows name."""

from __future__ import annotations

import re
import subprocess
import sys

from packaging.version import Version

from tests.support import ROOT

WITHOUT_ADVISORIES = {
    "cryptography": "50.0.0",  # CVE-2026-26007, CVE-2026-39892, CVE-2026-69247
    "jinja2": "3.1.6",  # CVE-2025-27516
    "protobuf": "5.29.6",  # CVE-2025-4565, CVE-2026-0994
    "pyarrow": "23.0.1",  # CVE-2026-25087
    "pyjwt": "2.12.0",  # CVE-2026-32597
}
"""Package → the lowest version without an advisory that is known."""


def floors() -> dict[str, Version]:
    """Return package → the lowest version that pyproject.toml allows."""
    command = [sys.executable, str(ROOT / "scripts/lowest-versions")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {name: Version(version) for name, version in (line.split("==") for line in lines)}


def test_no_floor_is_below_a_version_with_an_advisory() -> None:
    lowest = floors()
    assert {
        name: str(lowest[name])
        for name, version in WITHOUT_ADVISORIES.items()
        if lowest[name] < Version(version)
    } == {}


def test_every_requirement_is_pinned_and_not_below_its_floor() -> None:
    pinned = {
        name.lower().replace("_", "-"): Version(version)
        for name, version in re.findall(
            r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M
        )
    }
    lowest = floors()
    assert len(lowest) > 40 and "pandas" in lowest
    assert [name for name in lowest if name not in pinned or pinned[name] < lowest[name]] == []


def test_workflows_name_actions_by_commit() -> None:
    files = [*(ROOT / ".github/workflows").glob("*.yml"), ROOT / "action.yml"]
    actions = [use for file in files for use in re.findall(r"uses: (\S+)", file.read_text())]
    assert actions
    assert [use for use in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", use)] == []
