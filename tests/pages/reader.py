"""A reader who follows a page of the documentation: each block of code is carried out as it stands,
in an empty directory.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT, free_port_pair

from .not_followed import INSTALLING, reason

PAGES = sorted(
    str(page.relative_to(ROOT))
    for pages in (
        ROOT.glob("*.md"),
        *((ROOT / folder).rglob("*.md") for folder in ("bench", "deploy", "docs", "examples")),
    )
    for page in pages
)
"""The pages of the documentation."""

READY = "headrace is listening on "
TIMEOUT_S = 280
"""The time that a command gets: less than pytest gives a test, so that its output is shown."""

PORTS = ("9092", "9093", "6000", "9308", "9309", "9380", "9404")
"""Ports on the pages. The reader has others."""

_BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADRACE = """case "$*" in
  context*) exec {python} -m headrace "$@" ;;
  serve*|backup*|restore*|verify*|recover*|*--bootstrap-server*) exec {python} -m headrace "$@" ;;
  *) exec {python} -m headrace "$@" --bootstrap-server 127.0.0.1:{port} ;;
esac
"""
"""The command, whose default is the port of the reader's broker."""

_SERVERS = {
    "headrace serve": (READY, "9092"),
    "headrace ui": ("the page is at ", "9380"),
    "headrace exporter": ("metrics are at ", "9308"),
    "headrace keda-scaler": ("the scaler listens on ", "6000"),
}
"""Commands that serve until they are stopped → the start of the line that says that they do, and
the port without ``--listen``.
"""

_WORKS = "packing "
"""What the function of the pages' workers prints."""

_ENDS = {"--max", "--exit", "--to", "--tail", "--idle"}
"""Options of ``headrace consume`` of which one ends it."""


class Block(NamedTuple):
    """A block of code of a page.

    :ivar language: ``sh`` for commands, ``text`` for what the commands above it print
    :ivar title: the name of the file that it is, or empty. A file of this repository has the block
        as a part
    :ivar page: path of the page below the repository's root, or empty
    """

    language: str
    title: str
    text: str
    page: str = ""

    @property
    def is_quoted(self) -> bool:
        """Whether it is a part of a file of this repository."""
        return bool(self.title) and (ROOT / self.title).is_file()


def blocks(page: str, section: str | None = None) -> list[Block]:
    """Return the blocks of a page, or of one of its sections, in their order.

    :param page: path below the repository's root
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    if section is not None:
        heading = re.escape(section)
        (text,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return [Block(*found, page) for found in _BLOCK.findall(text)]


def command_lines(text: str) -> list[str]:
    """Return the commands of a block, each on one line."""
    return text.replace("\\\n", "").splitlines()


class Reader:
    """A reader with an empty directory, whose servers have ports of their own.

    :param typed: command → what the reader types when it asks
    :param port: the port of a broker that runs already
    :param changes: text of the page → text that is carried out
    :ivar followed: the blocks that were carried out
    """

    def __init__(
        self,
        folder: Path,
        typed: Mapping[str, str] | None = None,
        port: str | None = None,
        changes: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.followed: list[Block] = []
        self.stderr = ""
        """What the last program or command printed there."""
        self._typed = typed or {}
        self._ports: dict[str, str] = {}
        for named in PORTS:
            self._ports[named] = str(free_port_pair(*map(int, self._ports.values())))
        if port is not None:
            self._ports["9092"] = port
        self._changes = {
            "broker.example.com": "127.0.0.1",
            "broker:9092": "127.0.0.1:9092",
            "/var/lib/": f"{folder}/var/lib/",
            "/backups/": f"{folder}/backups/",
            **(changes or {}),
        }
        self._servers: dict[str, subprocess.Popen[str]] = {}
        for name in ("bin", "backups", "var/lib"):
            (folder / name).mkdir(parents=True)
        for name, text in self._programs().items():
            command = folder / "bin" / name
            command.write_text(f"#!/bin/sh\n{text}")
            command.chmod(0o755)
        self._environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUNBUFFERED": "1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def port(self, named: str) -> str:
        """Return the reader's port in the place of one on the pages."""
        return self._ports[named]

    def follow(self, *followed: Block) -> list[str]:
        """Carry out blocks, and compare what they print with what the page says.

        :return: what each block printed
        """
        printed: list[str] = []
        for block in followed:
            text = self._as_typed(block.text)
            if block.is_quoted or block.language in ("yaml", "json"):
                printed.append("")
            elif block.title:
                (self.folder / block.title).write_text(text)
                printed.append("")
            elif block.language == "text":
                assert _same(printed[-1]) == _same(text), f"{printed[-1]}\nexpected:\n{text}"
                printed.append(text)
            elif block.language == "python":
                printed.append(self._must_succeed([sys.executable, "-c", text]))
            else:
                assert block.language == "sh", block
                lines = [line for line in command_lines(block.text) if not reason(block.page, line)]
                printed.append("".join(self._type(self._as_typed(line)) for line in lines))
            self.followed.append(block)
        return printed

    def follow_as_one_program(self, *followed: Block) -> None:
        """Carry out the Python of a page as one program, and compare what it prints with the text
        blocks of the page.
        """
        program = "".join(block.text for block in followed if block.language == "python")
        printed = "".join(block.text for block in followed if block.language == "text")
        self.follow(Block("python", "", program), Block("text", "", printed))
        self.followed += followed

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a command line, which may fail."""
        return self._run(["bash", "-c", self._as_typed(line)], "")

    def serve(self, line: str, name: str = "") -> None:
        """Start a server, and wait until it is ready.

        :param name: of a further server of the same command; without it the one before is stopped
        """
        self._serve(self._as_typed(line), name)

    def rewrite(self, name: str, before: str, after: str) -> None:
        """Change a file as an editor does."""
        file = self.folder / name
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))

    def close(self) -> None:
        """Stop the servers, the last one first."""
        for name in reversed([*self._servers]):
            self._stop(name)

    def _programs(self) -> dict[str, str]:
        """Return the commands that the reader has besides those of the machine, as scripts."""
        programs = {
            "headrace": _HEADRACE.format(python=sys.executable, port=self._ports["9092"]),
            "python": f'exec {sys.executable} "$@"\n',
            "pytest": f'exec {sys.executable} -m pytest "$@"\n',
        }
        curl = shutil.which("curl")
        if curl is not None:  # a page answers with 503 before its first look at the cluster
            programs["curl"] = f'exec {curl} -sS --fail --retry 20 --retry-delay 1 "$@"\n'
        if shutil.which("jq") is None:
            programs["jq"] = "cat > /dev/null\n"
        return programs

    def _serve(self, line: str, name: str = "") -> None:
        command = next(start for start in _SERVERS if line.startswith(start))
        ready, port = _SERVERS[command]
        self._stop(command + name)
        line = re.sub(r"\s+(#.*|&)$", "", line)
        if "--listen" not in line and "--config" not in line:
            line += f" --listen 127.0.0.1:{self._ports[port]}"
        line = re.sub("--ui(?= |$)", f"--ui='--listen 127.0.0.1:{self._ports['9380']}'", line)
        server = self._start(line)
        self._servers[command + name] = server
        _await_line(server, ready)
        if "--ui" in line:
            _await_line(server, "the page is at ")

    def _start(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _stop(self, name: str) -> None:
        server = self._servers.pop(name, None)
        if server is not None:
            server.terminate()
            server.communicate(timeout=60)
            assert server.returncode == 0, f"{name} ended with {server.returncode}"

    def _type(self, line: str) -> str:
        if line.startswith(INSTALLING):
            return ""
        if line.startswith(tuple(_SERVERS)):
            self._serve(line)
            return ""
        if _is_endless(line):
            return self._watch(line)
        answer = next((said for start, said in self._typed.items() if line.startswith(start)), "")
        return self._must_succeed(["bash", "-c", f"set -o pipefail; {line}"], answer)

    def _watch(self, line: str) -> str:
        """Run a command until it has printed a line, or a worker until its function has; then end
        it with Ctrl-C.
        """
        running = self._start(line)
        assert running.stdout is not None
        awaited, printed = _WORKS if _is_worker(line) else "", ""
        for shown in running.stdout:
            printed += shown
            if shown.startswith(awaited):
                break
        else:
            raise AssertionError(f"{line} has ended with {running.wait()}: {printed}")
        running.send_signal(signal.SIGINT)
        rest, _ = running.communicate(timeout=60)
        assert running.returncode in (0, 128 + signal.SIGINT), line
        return printed + rest

    def _must_succeed(self, words: list[str], typed: str = "") -> str:
        done = self._run(words, typed)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        self.stderr = done.stderr
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

    def _as_typed(self, text: str) -> str:
        """Return a text of a page with the ports, folders and hosts of this machine."""
        for shown, meant in self._changes.items():
            text = text.replace(shown, meant)
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda port: self._ports[port.group()], text)


def _is_endless(line: str) -> bool:
    """Return whether a command runs until Ctrl-C."""
    words = line.split()
    if words[:2] == ["headrace", "top"]:
        return "--iterations" not in words
    if words[:2] == ["headrace", "consume"]:
        return not _ENDS.intersection(words)
    return _is_worker(line)


def _is_worker(line: str) -> bool:
    """Return whether a command is a worker, which the page says behind it."""
    return "until Ctrl-C" in line


def _await_line(server: subprocess.Popen[str], start: str) -> None:
    """Read the output of a server up to a line that starts so."""
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith(start):
            return
    raise AssertionError(f"{server.args} has ended with {server.wait()} before '{start}'")


def _same(printed: str) -> str:
    """Return an output without what differs each time: times, and the width of their columns."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(\+\d\d:\d\d|Z)", "<time>", printed)
