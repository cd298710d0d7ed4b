"""Runs of `headrace` commands against the broker under test, and their options without one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.support import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
HEADRACE = (sys.executable, "-m", "headrace")


def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command; its output is read from unbuffered pipes."""
    return subprocess.Popen(
        [*HEADRACE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        bufsize=0,
        **options,
    )


def run(*arguments: str, timeout_s: float = 60) -> tuple[int, bytes, list[str]]:
    """Run a command to its end; return exit status, output, and the lines on stderr."""
    done = subprocess.run(
        [*HEADRACE, *arguments], capture_output=True, env=ENVIRONMENT, timeout=timeout_s
    )
    return done.returncode, done.stdout, done.stderr.decode().splitlines()
