"""docs/security.md leads from nothing to a broker with TLS, users and ACLs: each of its blocks is
carried out as it stands, in an empty directory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import ROOT, free_port_pair

pytestmark = pytest.mark.broker

PAGE = ROOT / "docs/security.md"
PASSWORDS = {"alice": "her password", "admin": "another"}
"""User → the password that is typed."""
READY = "headrace is listening on "


class Block(NamedTuple):
    """A block of code of the page.

    :ivar language: empty for commands
    :ivar before: the paragraph above it
    """

    language: str
    text: str
    before: str


def blocks(section: str) -> list[Block]:
    """Return the blocks of a section of the page."""
    page = PAGE.read_text(encoding="utf-8")
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    found = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = text[: match.start()].rstrip().rpartition("\n\n")[2]
        found.append(Block(match.group(1), match.group(2), before))
    return found


class NewUser:
    """A user who follows the page in an empty directory, whose broker has another port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = str(free_port_pair())
        self._broker: subprocess.Popen[str] | None = None
        programs = folder / "bin"
        programs.mkdir()
        command = programs / "headrace"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace "$@"\n')
        command.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
        }

    def follow(self, block: Block) -> str:
        """Carry out a block; return what it prints."""
        text = block.text.replace("9093", self._port)
        if block.language == "properties":
            (name,) = re.findall(r"`(\w+\.properties)`", block.before)
            (self._folder / name).write_text(text)
            return ""
        if block.language == "python":
            return self._run([sys.executable, "-c", text])
        if text.startswith("headrace serve"):
            self._serve(text)
            return ""
        printed = ""
        for line in text.replace("\\\n", "").splitlines():
            typed = re.match(r"headrace users add (\w+)", line)
            password = PASSWORDS[typed.group(1)] if typed else ""
            printed += self._run(["bash", "-c", line], f"{password}\n")
        return printed

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a command line, which may fail."""
        return self._start(["bash", "-c", line.replace("9093", self._port)])

    def rewrite(self, name: str, before: str, after: str) -> None:
        """Change a file as an editor does."""
        file = self._folder / name
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))

    def close(self) -> None:
        """End the broker."""
        if self._broker is not None:
            self._broker.terminate()
            self._broker.communicate(timeout=20)

    def _start(
        self, words: list[str], typed: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            input=typed,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def _run(self, words: list[str], typed: str | None = None) -> str:
        done = self._start(words, typed)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def _serve(self, line: str) -> None:
        self._broker = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._broker.stdout is not None
        assert self._broker.stdout.readline().startswith(READY)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[NewUser]:
    made = NewUser(tmp_path)
    yield made
    made.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_from_nothing_to_a_broker_with_tls_users_and_acls(user: NewUser) -> None:
    section = blocks("From nothing to a broker with TLS and users")
    printed = [user.follow(block) for block in section]
    assert [block.language for block in section].count("python") == 1, "the client"
    (listed,) = [text for text in printed if "Current ACLs" in text]
    assert "alice logs in with SCRAM-SHA-512." in listed
    assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in listed
    assert "ResourcePattern(resourceType=GROUP, name=packers, patternType=LITERAL)" in listed

    users = (
        "headrace users list --bootstrap-server localhost:9093 --command-config admin.properties"
    )
    with_the_old_password = user.run(users)
    assert with_the_old_password.returncode == 1
    assert "check sasl.username and sasl.password" in with_the_old_password.stderr
    user.rewrite("admin.properties", "change-me", PASSWORDS["admin"])
    with_the_new_one = user.run(users)
    assert (with_the_new_one.returncode, with_the_new_one.stderr) == (0, "")
    assert "alice" in with_the_new_one.stdout
