"""A reader who follows a page of the documentation: each block of code is carried out as it stands,
in an empty directory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT, free_port_pair

READY = "headrace is listening on "
TIMEOUT_S = 280
"""The time that a command gets: less than pytest gives a test, so that its output is shown."""

_BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADRACE = """case "$*" in
  serve*|*--bootstrap-server*) exec {python} -m headrace "$@" ;;
  *) exec {python} -m headrace "$@" --bootstrap-server 127.0.0.1:{port} ;;
esac
"""
"""The command, whose default is the port of the reader's broker."""

_INSTALLING = ("pip install", "python3 -m venv", ". .venv/")


class Block(NamedTuple):
    """A block of code of a page.

    :ivar language: ``sh`` for commands, ``text`` for what the commands above it print
    :ivar title: the name of the file that it is, or empty
    """

    language: str
    title: str
    text: str


def blocks(page: str, section: str | None = None) -> list[Block]:
    """Return the blocks of a page, or of one of its sections, in their order.

    :param page: path below the repository's root
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    if section is not None:
        (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return [Block(*found) for found in _BLOCK.findall(text)]


class Reader:
    """A reader with an empty directory, whose brokers have ports of their own.

    :param typed: command → what the reader types when it asks
    :param port: the port of a broker that runs already
    """

    def __init__(
        self, folder: Path, typed: Mapping[str, str] | None = None, port: str | None = None
    ) -> None:
        self.folder = folder
        self._typed = typed or {}
        self._ports = {"9092": port or str(free_port_pair()), "9093": str(free_port_pair())}
        self._brokers: list[subprocess.Popen[str]] = []
        programs = folder / "bin"
        programs.mkdir()
        for name, text in {
            "headrace": _HEADRACE.format(python=sys.executable, port=self._ports["9092"]),
            "python": f'exec {sys.executable} "$@"\n',
            "pytest": f'exec {sys.executable} -m pytest "$@"\n',
        }.items():
            command = programs / name
            command.write_text(f"#!/bin/sh\n{text}")
            command.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "PYSPARK_PYTHON": sys.executable,
        }

    def follow(self, *followed: Block) -> list[str]:
        """Carry out blocks, and compare what they print with what the page says.

        :return: what each block printed
        """
        printed: list[str] = []
        for block in followed:
            text = self._with_own_ports(block.text)
            if block.title:
                (self.folder / block.title).write_text(text)
                printed.append("")
            elif block.language == "text":
                assert printed[-1] == text, f"printed:\n{printed[-1]}\nexpected:\n{text}"
                printed.append(text)
            elif block.language == "python":
                printed.append(self._must_succeed([sys.executable, "-c", text]))
            else:
                assert block.language == "sh", block
                lines = text.replace("\\\n", "").splitlines()
                printed.append("".join(self._type(line) for line in lines))
        return printed

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a command line, which may fail."""
        return self._run(["bash", "-c", self._with_own_ports(line)], "")

    def serve(self, line: str) -> None:
        """Start a broker, and wait until it is ready."""
        if "--listen" not in line and "--config" not in line:
            line += f" --listen 127.0.0.1:{self._ports['9092']}"
        broker = subprocess.Popen(
            ["bash", "-c", f"exec {self._with_own_ports(line)}"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._brokers.append(broker)
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(READY)

    def rewrite(self, name: str, before: str, after: str) -> None:
        """Change a file as an editor does."""
        file = self.folder / name
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))

    def close(self) -> None:
        """End the brokers."""
        for broker in self._brokers:
            broker.terminate()
            broker.communicate(timeout=20)

    def _type(self, line: str) -> str:
        if line.startswith(_INSTALLING):
            return ""
        if line.startswith("headrace serve"):
            self.serve(line)
            return ""
        answer = next((said for start, said in self._typed.items() if line.startswith(start)), "")
        return self._must_succeed(["bash", "-c", f"set -o pipefail; {line}"], answer)

    def _must_succeed(self, words: list[str], typed: str = "") -> str:
        done = self._run(words, typed)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _run(self, words: list[str], typed: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            input=typed,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def _with_own_ports(self, text: str) -> str:
        return re.sub(r"\b909[23]\b", lambda port: self._ports[port.group()], text)
