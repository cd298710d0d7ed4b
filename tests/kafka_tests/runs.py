"""Runs of Kafka's test classes, and what they say."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.peer import SCRIPT
from tests.support import ROOT, SHORT_LIVED_JVM, HeadraceProcess

HERE = Path(__file__).parent
MARK = "@headrace\t"
HEAP = "512m"
TEST_TIMEOUT_S = 180
"""The longest time of one test."""

PASSED, FAILED, SKIPPED, NOT_APPLICABLE = "passed", "failed", "skipped", "not-applicable"


class Outcome(NamedTuple):
    """The end of one run of a test method.

    :ivar result: ``passed``, ``failed``, ``skipped``, or ``not-applicable`` if the test asked for
        objects of a broker in its JVM
    :ivar name: name of the method, with its parameters
    :ivar reason: the stack trace, or why the test was skipped
    """

    result: str
    seconds: float
    test_class: str
    method: str
    name: str
    reason: str

    @property
    def first_line(self) -> str:
        """The message of the error."""
        return self.reason.partition("\n")[0]


@dataclass(slots=True)
class ClassResult:
    """The outcomes of a class.

    :ivar failures: what failed and is not listed as not applicable
    :ivar not_applicable: the number of runs of listed tests, and of tests that asked for objects of
        the broker
    :ivar unlisted: methods of the latter that are not listed
    :ivar needless: listed methods of which every run has passed
    """

    name: str
    outcomes: list[Outcome] = field(default_factory=list)
    listed: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> int:
        return sum(one.result == PASSED for one in self.outcomes)

    @property
    def failures(self) -> list[Outcome]:
        return [
            one for one in self.outcomes if one.result == FAILED and one.method not in self.listed
        ]

    @property
    def not_applicable(self) -> int:
        return sum(
            one.result == NOT_APPLICABLE or (one.result == FAILED and one.method in self.listed)
            for one in self.outcomes
        )

    @property
    def run(self) -> int:
        """The number of runs, without skipped ones."""
        return self.passed + len(self.failures) + self.not_applicable

    @property
    def unlisted(self) -> list[str]:
        found = {one.method for one in self.outcomes if one.result == NOT_APPLICABLE}
        return sorted(found - self.listed.keys())

    @property
    def needless(self) -> list[str]:
        results: dict[str, set[str]] = {}
        for one in self.outcomes:
            results.setdefault(one.method, set()).add(one.result)
        return sorted(
            method for method in self.listed if results.get(method, set()) - {SKIPPED} == {PASSED}
        )


@cache
def table() -> dict[str, dict[str, str]]:
    """Return the test classes to run, each with the methods that are not applicable and why."""
    return tomllib.loads((HERE / "classes.toml").read_text())


@cache
def jars() -> Path:
    """Return the folder of the jars, which are fetched on first use."""
    out = subprocess.run([SCRIPT, "test-jars"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(out.stdout.strip())


@cache
def classes() -> Path:
    """Return the folder of the compiled classes that replace Kafka's."""
    sources = sorted((HERE / "java").rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    folder = jars() / f"classes-{digest}"
    if not folder.exists():
        subprocess.run([ROOT / "scripts" / "need", "jdk"], check=True)
        made = folder.with_suffix(f".{os.getpid()}")
        command = ["javac", "-nowarn", "-cp", f"{jars()}/*", "-d", made, *sources]
        subprocess.run(command, check=True)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder


def outcomes(names: Sequence[str], timeout_s: int = TEST_TIMEOUT_S) -> Iterator[Outcome]:
    """Run classes, or methods as ``class#method``, in one JVM; yield each outcome as it comes.

    :raises RuntimeError: when the JVM fails
    """
    command = "\n".join(HeadraceProcess.command)
    # Tests in Scala write to a folder "data" of the working directory.
    folder = tempfile.mkdtemp(prefix="headrace-kafka-tests-")
    process = subprocess.Popen(
        [
            "java",
            f"-Xmx{HEAP}",
            *SHORT_LIVED_JVM.split(),
            "-cp",
            f"{classes()}{os.pathsep}{jars()}/*",
            f"-javaagent:{next(jars().glob('byte-buddy-agent-*.jar'))}",
            f"-Dheadrace.command={command}",
            f"-Dheadrace.timeout={timeout_s} s",
            "headrace.RunTests",
            *names,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=HeadraceProcess.environment(),
        cwd=folder,
        start_new_session=sys.platform != "win32",
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(MARK):
                result, milliseconds, test_class, method, name, reason = (
                    line.removeprefix(MARK).rstrip("\n").split("\t")
                )
                text = reason.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")
                yield Outcome(result, int(milliseconds) / 1000, test_class, method, name, text)
        if process.wait():
            raise RuntimeError(f"java ended with status {process.returncode}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def totals(results: Sequence[ClassResult]) -> Counter[str]:
    """Return how many runs have passed, failed, and are not applicable."""
    return Counter(
        run=sum(result.run for result in results),
        passed=sum(result.passed for result in results),
        failed=sum(len(result.failures) for result in results),
        not_applicable=sum(result.not_applicable for result in results),
    )
