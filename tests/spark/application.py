"""Spark applications on this machine: in this process, or as drivers that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import IO

import psutil
from pyspark.sql import SparkSession

from headrace.spark import register
from tests.support import ROOT, SHORT_LIVED_SPARK

SHORT_LIVED = {"spark.driver.extraJavaOptions": SHORT_LIVED_SPARK}

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "OFF",
}


def python_environment() -> dict[str, str]:
    """Return the environment in which Spark's Python workers find this checkout."""
    path = os.pathsep.join(
        filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])
    )
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}


def application(cores: int, configs: Mapping[str, str]) -> SparkSession:
    """Return a session on `local[cores]` with headrace's sources."""
    os.environ.update(python_environment())
    builder = SparkSession.builder.master(f"local[{cores}]").appName("headrace")
    for name, value in {**_QUIET, **configs}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    return session


def start_driver(
    program: str, *arguments: str, output: IO[str] | int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """Run a Python program that has a session of its own. Its stderr is that of the tests."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=output,
        text=True,
        start_new_session=True,  # `kill_session` finds the JVM and the workers by their session
        env=python_environment(),
    )


def kill_session(leader: subprocess.Popen[str]) -> None:
    """Kill a process and all of its session with SIGKILL, at once: a driver, its JVM and its
    Python workers.
    """
    pids = [
        process.pid for process in psutil.process_iter() if _session_of(process.pid) == leader.pid
    ]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
                os.kill(pid, number)
    leader.wait()


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
