"""Archives of modules, before and after ``scripts/compile-pyspark``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "compile-pyspark"
MODULES = {
    "shop/__init__.py": "",
    "shop/till.py": "def total():\n    return 42\n",
    "shop/broken.py": "def total():\n    raise LookupError('nothing sold')\n",
    "shop/tests/test_till.py": "assert False\n",
    "shop/prices.json": "{}",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "shop.zip"
    with ZipFile(path, "w") as new:
        for name, text in MODULES.items():
            new.writestr(name, text)
    for _ in range(2):  # a second time changes nothing
        subprocess.run([SCRIPT, sys.executable, tmp_path], check=True)
    return path


def imported(archive: Path, statement: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", statement],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{archive}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    return ran.stdout + ran.stderr


def test_what_was_compiled_is_imported(archive: Path) -> None:
    found = imported(archive, "import shop.till; print(shop.till.total(), shop.till.__file__)")
    assert found == f"42 {archive}/shop/till.pyc\n"


def test_a_traceback_still_shows_the_source(archive: Path) -> None:
    found = imported(
        archive,
        "import traceback, shop.broken\n"
        "try: shop.broken.total()\n"
        "except LookupError: print(traceback.format_exc())",
    )
    assert f'File "{archive}/shop/broken.py", line 2, in total' in found
    assert "raise LookupError('nothing sold')\nLookupError: nothing sold" in found.replace("  ", "")


def test_tests_and_data_stay_as_they_are(archive: Path) -> None:
    with ZipFile(archive) as compiled:
        assert {name: compiled.read(name).decode() for name in MODULES} == MODULES
        added = {name for name in compiled.namelist() if name.endswith(".pyc")}
    assert added == {"shop/__init__.pyc", "shop/till.pyc", "shop/broken.pyc"}
    assert list(archive.parent.iterdir()) == [archive]
