"""Archives of modules, before and after ``python -m headrace.spark.compile_pyspark``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from headrace.spark.compile_pyspark import ArchiveError, archives, compile_archive

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
    path.chmod(0o644)
    return path


def imported(archive: Path, statement: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", statement],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{archive}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )


def test_what_was_compiled_is_imported(archive: Path) -> None:
    assert compile_archive(archive) == 3
    ran = imported(archive, "import shop.till; print(shop.till.total(), shop.till.__file__)")
    assert ran.stdout == f"42 {archive}/shop/till.pyc\n"


def test_a_traceback_still_shows_the_source(archive: Path) -> None:
    compile_archive(archive)
    ran = imported(
        archive,
        "import traceback, shop.broken\n"
        "try: shop.broken.total()\n"
        "except LookupError: print(traceback.format_exc())",
    )
    assert f'File "{archive}/shop/broken.py", line 2, in total' in ran.stdout
    assert "raise LookupError('nothing sold')\nLookupError: nothing sold" in ran.stdout.replace(
        "    ", ""
    )


def test_nothing_is_compiled_twice(archive: Path) -> None:
    compile_archive(archive)
    before = archive.read_bytes(), archive.stat().st_mtime_ns
    assert compile_archive(archive) == 0
    assert (archive.read_bytes(), archive.stat().st_mtime_ns) == before


def test_a_process_that_knows_the_old_archive_still_reads_it(archive: Path) -> None:
    ran = imported(
        archive,
        "import pathlib, shop\n"
        "from headrace.spark.compile_pyspark import compile_archive\n"
        f"compile_archive(pathlib.Path({str(archive)!r}))\n"
        "import shop.till\n"
        "print(shop.till.total(), shop.till.__file__)",
    )
    assert ran.stdout == f"42 {archive}/shop/till.py\n", ran.stderr


def test_tests_and_data_stay_as_they_are(archive: Path) -> None:
    compile_archive(archive)
    with ZipFile(archive) as compiled:
        assert {name: compiled.read(name).decode() for name in MODULES} == MODULES
        assert set(compiled.namelist()) - MODULES.keys() == {
            "shop/__init__.pyc",
            "shop/till.pyc",
            "shop/broken.pyc",
        }
    assert archive.stat().st_mode & 0o777 == 0o644
    assert list(archive.parent.iterdir()) == [archive]


def test_another_version_of_python_has_compiled(archive: Path) -> None:
    with ZipFile(archive, "a") as older:
        older.writestr("shop/till.pyc", b"\0\0\r\n" + bytes(12))
    before = archive.read_bytes()
    with pytest.raises(ArchiveError, match="another version of Python: install pyspark again"):
        compile_archive(archive)
    assert archive.read_bytes() == before
    assert list(archive.parent.iterdir()) == [archive]


def test_a_damaged_archive(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(ArchiveError, match=r"cannot compile .*shop\.zip: "):
        compile_archive(archive)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"cannot compile .*No such file or directory"):
        compile_archive(tmp_path / "none" / "shop.zip")


def test_sparks_archives_are_found() -> None:
    names = [archive.name for archive in archives()]
    assert "pyspark.zip" in names
    assert any(name.startswith("py4j-") for name in names)
