"""``python -m headrace.spark.compile_pyspark``: let Spark's Python processes start faster.

Spark's Python processes import pyspark from the archives in ``$SPARK_HOME/python/lib``, which hold
source only. Python keeps nothing of what it compiles from an archive, so every process compiles
some 100 modules anew. That takes longer than the rest of its start (``docs/spark.md``, *Speed of a
pipeline*). This command adds the compiled modules to the archives. Run it once after each
installation of pyspark.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from importlib.util import MAGIC_NUMBER, source_hash
from marshal import dumps
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from pyspark.find_spark_home import _find_spark_home

_UNCHECKED_HASH = (1).to_bytes(4, "little")
"""The flags of PEP 552 for a compiled module that is not compared with its source."""


class ArchiveError(Exception):
    """The compiled modules cannot be added to an archive. The text says what to change."""


def archives() -> list[Path]:
    """Return the archives that Spark puts on the path of its Python processes."""
    return sorted(Path(_find_spark_home(), "python", "lib").glob("*.zip"))


def compile_archive(archive: Path) -> int:
    """Add the compiled form of each module to an archive, except for pyspark's own tests.

    Processes that read the archive meanwhile are not disturbed: it is replaced as a whole, and what
    it held stays in its place. Another version of Python ignores the compiled modules.

    :returns: the number of modules that were compiled; 0 if all had been already
    :raises ArchiveError: the archive is damaged or was compiled by another version of Python, or
        its folder cannot be written
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".compile-", dir=archive.parent) as folder:
            copy = Path(folder, archive.name)
            shutil.copy(archive, copy)
            compiled = _add_compiled(copy, archive)
            if compiled:
                copy.replace(archive)
    except (OSError, BadZipFile) as error:
        raise ArchiveError(f"cannot compile {archive}: {error}") from None
    return compiled


def _add_compiled(copy: Path, archive: Path) -> int:
    with ZipFile(copy) as old, warnings.catch_warnings(action="ignore"):
        names = dict.fromkeys(old.namelist())
        compiled = {}
        for name in filter(_is_module, names):
            if f"{name}c" not in names:
                compiled[f"{name}c"] = _compiled(old.read(name), archive / name)
            elif old.read(f"{name}c")[:4] != MAGIC_NUMBER:
                raise ArchiveError(
                    f"{archive} was compiled by another version of Python: install pyspark again"
                )
    # It appends: what a process may have looked up in the old archive stays in its place.
    with ZipFile(copy, "a", ZIP_DEFLATED) as grown:
        for name, content in compiled.items():
            grown.writestr(name, content)
    return len(compiled)


def _is_module(name: str) -> bool:
    return name.endswith(".py") and "/tests/" not in name


def _compiled(source: bytes, file: Path) -> bytes:
    code = compile(source, file, "exec", dont_inherit=True)
    return MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(source) + dumps(code)


def main() -> int:
    """Compile all archives, and print what was done.

    :returns: the exit status: 0, or 1 after an error
    """
    if not archives():
        print("nothing to compile: Spark has no archives of Python modules here")
    for archive in archives():
        try:
            compiled = compile_archive(archive)
        except ArchiveError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{archive}: {compiled or 'all'} modules compiled{'' if compiled else ' already'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
