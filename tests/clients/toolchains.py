"""Client programs in other languages, made once for each version of their sources and kept in the
user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-clients"


def run(command: Sequence[str | Path], timeout_s: float = 120, **options: object) -> str:
    """Run a command and return its standard output.

    :raises AssertionError: it ends with another status than 0
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def kept(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache that `make` has filled, in this run or an earlier one with the
    same sources.
    """
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = CACHE / f"{name}-{digest.hexdigest()[:16]}"
    if folder.exists():
        return folder
    unfinished = CACHE / f"{name}-{os.getpid()}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished)
    try:
        unfinished.rename(folder)
    except OSError:  # another run was quicker
        shutil.rmtree(unfinished)
    return folder


def version_of(command: str, *arguments: str) -> tuple[int, ...] | None:
    """Return the numbers of a program's version, or None where there is no such program."""
    if shutil.which(command) is None:
        return None
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", run([command, *arguments]))
    assert found is not None
    return tuple(int(number or 0) for number in found.groups())


def need(name: str, found: tuple[int, ...] | None, wanted: tuple[int, ...]) -> None:
    """Skip the test unless this version of a program, or a later one, is there."""
    if found is None or found < wanted:
        version = ".".join(map(str, wanted))
        pytest.skip(f"{name} {version} or newer is needed and is not installed")


def go_programs() -> Path:
    """Return the folder of the compiled programs of `go/` and of franz-go's tests (kgo.test)."""
    source = FOLDER / "go"
    need("Go", version_of("go", "env", "GOVERSION"), (1, 26))

    def build(folder: Path) -> None:
        environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        flags = ["-trimpath", "-ldflags=-s -w", "-o"]
        own_tests = [*flags, folder / "kgo.test", "github.com/twmb/franz-go/pkg/kgo"]
        run(["go", "build", *flags, f"{folder}/", "./..."], 600, cwd=source, env=environment)
        run(["go", "test", "-c", *own_tests], 600, cwd=source, env=environment)

    return kept("go", [*source.glob("go.*"), *source.glob("*/*.go")], build)


def node_project() -> Path:
    """Return a copy of `node/` with its packages installed."""
    source = FOLDER / "node"
    need("Node.js", version_of("node", "--version"), (20, 19, 4))
    need("npm", version_of("npm", "--version"), (9,))

    def install(folder: Path) -> None:
        for file in source.iterdir():
            shutil.copy(file, folder)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], 600, cwd=folder)

    return kept("node", list(source.iterdir()), install)
