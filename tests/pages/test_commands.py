"""The command lines of all pages: each names a command with options that it has; and those of
docs/command-line.md work.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewTopic

from headrace import Broker
from headrace.admin import AdminClient
from headrace.cli import main as command_line
from headrace.cli.commands import COMMANDS, load
from tests.support import ROOT

from .reader import Block, Reader, blocks

PAGES = sorted(
    str(page.relative_to(ROOT))
    for folder in (".", "docs", "docs/how-to", "docs/behaviour", "examples", "deploy")
    for page in (ROOT / folder).glob("*.md")
)


def command_lines(page: str) -> list[list[str]]:
    """Return the words of each call of ``headrace`` in the blocks of a page."""
    found: list[list[str]] = []
    for block in blocks(page):
        if block.language not in ("", "sh") or block.title:
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            parser = shlex.shlex(line, posix=True, punctuation_chars="|<>&")
            parser.whitespace_split = True
            words = list(parser)
            while "headrace" in words:
                words = words[words.index("headrace") + 1 :]
                ends = [words.index(sign) for sign in "|<>&" if sign in words]
                found.append(words[: min(ends, default=len(words))])
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)])
def test_options(page: str) -> None:
    wrong = []
    for words in command_lines(page):
        name = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
        if name is None:
            wrong.append(shlex.join(words))
            continue
        try:
            command_line.parsed(name, load(name), words[len(name.split()) :])
        except SystemExit:
            wrong.append(shlex.join(words))
    assert wrong == []


SECTIONS = ("topics", "configs", "produce", "consume", "quotas", "share-groups", "consumer-groups")
"""Sections of docs/command-line.md whose lines are run. Those of the others need more than a
broker, or do not end; they have tests of their own.
"""

ENDLESS = ("headrace consume orders --partition 3",)


@pytest.mark.broker
def test_command_line(tmp_path: Path, headrace_broker: Broker) -> None:
    """Run the lines on one broker, in the order of the page."""
    servers = headrace_broker.bootstrap_servers
    reader = Reader(tmp_path, port=servers.rpartition(":")[2])
    reader.follow(
        Block("", "lines.txt", "".join(f"{number} boxes\n" for number in range(200))),
        Block("", "lines-1.txt", "origin:web\tkey-1\tone box\n"),
        Block("", "lines-2.txt", "origin:web\tkey-2\ttwo boxes\n"),
    )
    (reader.folder / "images").mkdir()
    (reader.folder / "images/one.png").write_bytes(b"\x89PNG\x00")
    with AdminClient({"bootstrap.servers": servers}) as admin:
        new = [NewTopic(name, 1) for name in ("test-1", "scans", "copy")]
        for made in admin.create_topics(new).values():
            made.result()
        failed = []
        for section in SECTIONS:
            if section == "share-groups":
                start_groups(admin)
            lines = [
                line
                for block in blocks("docs/command-line.md", f"`headrace {section}`")
                for line in block.text.splitlines()
                if line.startswith("headrace ") and not line.startswith(ENDLESS)
            ]
            assert lines, section
            for line in lines:
                ran = reader.run(line)
                if ran.returncode != 0:
                    failed.append((line, ran.stdout, ran.stderr))
    assert failed == []


def start_groups(admin: AdminClient) -> None:
    """Give the groups of the page offsets."""
    admin.alter_share_group_offsets("packers", [TopicPartition("orders", 0, 0)])
    billing = ConsumerGroupTopicPartitions("billing", [TopicPartition("orders", 0, 0)])
    admin.alter_consumer_group_offsets([billing])["billing"].result()
