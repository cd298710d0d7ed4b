"""What others write never controls a terminal: every command that shows it, on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cli.command import ENVIRONMENT, HEADRACE
from tests.clients.confluent import PATIENCE_S, create_topic
from tests.support import unique

pytestmark = [pytest.mark.broker]

EVIL = (
    "\x1b]0;pwned title\x07\x1b]52;c;cm0gLXJmIH4K\x07\x1b[2J\x1b[H\r$ all is well"
    "\x1b[8m hidden \x1b[0m"
    "\x1b]8;;http://evil.example/\x07click\u009b31mC1\u202egnp.exe\u2066\u200b\u061c\ufeff\x7f"
)
"""Title, clipboard, clear screen, hidden text, link, C1, marks of direction, invisible."""
_OWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
"""Colours and moves of our own."""
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u061c\u2028-\u202e\u2066-\u2069\ufeff]"
)
_HOSTILE = re.compile(r"\x1b\]|\x1b\[2J|\x1b\[8m|\r\$ all")


def on_terminal(*arguments: str, typed: bytes = b"") -> str:
    """Return what a command writes to a terminal.

    :param typed: what it reads there; empty if its input is no terminal
    """
    ours, its = pty.openpty()
    os.write(ours, typed)
    with os.fdopen(ours, "rb", buffering=0) as screen:
        with os.fdopen(its, "wb", buffering=0) as terminal:
            process = subprocess.Popen(
                [*HEADRACE, *arguments],
                stdin=terminal if typed else subprocess.DEVNULL,
                stdout=terminal,
                stderr=terminal,
                env=ENVIRONMENT,
            )
        shown = bytearray()
        try:
            while data := screen.read(1 << 16):
                shown += data
        except OSError:  # the process has ended
            pass
    process.wait(PATIENCE_S)
    return shown.decode()


@pytest.fixture(scope="module")
def topic(bootstrap_servers: str) -> str:
    """A topic with hostile records, a group and letters of it."""
    name = create_topic(bootstrap_servers, unique("dlq.hostile"))
    config = {"bootstrap.servers": bootstrap_servers, "client.id": EVIL, "log_level": 0}
    producer = Producer(config)
    letter = {"topic": name, "partition": "0", "offset": "0", "message": EVIL, "group": EVIL}
    headers = [(f"__dlq.errors.{part}", text.encode()) for part, text in letter.items()]
    producer.produce(name, EVIL.encode(), EVIL.encode(), headers=[(EVIL, EVIL.encode()), *headers])
    producer.flush()
    consumer = Consumer({**config, "group.id": unique(EVIL)})
    consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    consumer.close()
    return name


ONE = ["--max", "1", "--idle", "20s"]
SHOWS = ["-f", r"%t %p %o %h %k %s\n"]
SHARE = ["--share-group", "GROUP", "--from", "earliest"]
COMMANDS = {
    "consume": ["consume", "TOPIC", *ONE],
    "consume all": ["consume", "TOPIC", *ONE, *SHOWS],
    "consume json": ["consume", "TOPIC", *ONE, "-o", "json"],
    "consume of a share group": ["consume", "TOPIC", *ONE, *SHOWS, *SHARE],
    "share json": ["consume", "TOPIC", *ONE, *SHARE, "-o", "jsonl"],
    "newest": ["consume", "TOPIC", "--tail", "1"],
    "groups": ["groups", "list"],
    "groups wide": ["groups", "list", "-o", "wide"],
    "groups jsonl": ["groups", "list", "-o", "jsonl"],
    "groups describe": ["groups", "describe", "--all"],
    "groups offsets": ["groups", "offsets", "--all", "-o", "wide"],
    "groups offsets json": ["groups", "offsets", "--all", "-o", "json"],
    "groups delete": ["groups", "delete", EVIL, "--yes"],
    "lag": ["lag", "show", "-o", "wide"],
    "lag json": ["lag", "show", "-o", "json"],
    "top": ["top", "--iterations", "1", "--groups-pattern", "(?s).*pwned title.*"],
    "top json": ["top", "--iterations", "1", "-o", "jsonl"],
    "dlq list": ["dlq", "list"],
    "dlq list json": ["dlq", "list", "-o", "json"],
    "dlq show": ["dlq", "show", "TOPIC"],
    "dlq show json": ["dlq", "show", "TOPIC", "-o", "jsonl"],
    "dlq redrive": ["dlq", "redrive", "TOPIC", "--dry-run"],
    "dlq redrive json": ["dlq", "redrive", "TOPIC", "--dry-run", "-o", "json"],
    "refused topic": ["topics", "describe", EVIL],
    "refused pattern": ["lag", "show", "--groups-pattern", f"({EVIL}"],
    "new topic": ["topics", "create", EVIL],
}


WITHOUT = {"dlq redrive", "dlq redrive json"}
"""Commands that show nothing of it here."""


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_controls_the_terminal(bootstrap_servers: str, topic: str, command: str) -> None:
    words = {"TOPIC": topic, "GROUP": unique("g")}
    arguments = [words.get(word, word) for word in COMMANDS[command]]
    shown = on_terminal(*arguments, "--bootstrap-server", bootstrap_servers)
    assert "Traceback" not in shown
    assert not _HOSTILE.search(shown)
    assert not _CONTROL.search(_OWN.sub("", shown)), ascii(shown)
    if command not in WITHOUT:
        assert "pwned title" in shown


def test_raw_bytes_are_for_those_who_want_them(bootstrap_servers: str, topic: str) -> None:
    arguments = [topic, *ONE, "--bootstrap-server", bootstrap_servers]
    assert "\x1b]0;pwned title\x07" in on_terminal("consume", *arguments, "--raw")
    done = subprocess.run(
        [*HEADRACE, "consume", *arguments], capture_output=True, env=ENVIRONMENT, check=True
    )
    assert done.stdout == EVIL.encode() + b"\n"


def test_a_question_lists_what_is_about_to_be_deleted(bootstrap_servers: str, topic: str) -> None:
    server = ["--bootstrap-server", bootstrap_servers]
    shown = on_terminal("topics", "delete", topic, *server, typed=b"n\n")
    assert [line.split() for line in shown.splitlines()[1:3]] == [
        ["TOPIC", "RESULT"],
        [topic, "would", "be", "deleted"],
    ]
    assert "records? [y/N] headrace topics delete: nothing was changed" in shown
