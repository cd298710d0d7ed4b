"""The command lines of all pages: each names a command with options that it has; and those of
docs/command-line.md and docs/backup.md work.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import TypeVar

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from headrace import Broker
from headrace.admin import AdminClient
from headrace.cli import main as command_line
from headrace.cli.errors import Failure
from tests.clients.confluent import create_topic, produce

from .reader import PAGES, Block, Reader, blocks

PAGE = "docs/command-line.md"
Test = TypeVar("Test", bound=Callable[..., None])


def called(page: str) -> list[list[str]]:
    """Return the words of each call of ``headrace`` in the blocks of a page."""
    found: list[list[str]] = []
    for block in blocks(page):
        if block.language != "sh":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            parser = shlex.shlex(line, posix=True, punctuation_chars="|<>&")
            parser.whitespace_split = True
            words = list(parser)
            while "headrace" in words:
                words = words[words.index("headrace") + 1 :]
                signs = [index for index, word in enumerate(words) if set(word) <= set("|<>&")]
                found.append(words[: min(signs, default=len(words))])
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if called(page)])
def test_options(page: str) -> None:
    wrong = []
    for words in called(page):
        try:
            command_line.parsed(*command_line.command_of(words))
        except (Failure, SystemExit):
            wrong.append(shlex.join(words))
    assert wrong == []


def follows_sections(*names: str) -> Callable[[Test], Test]:
    """Mark a test that follows sections of the page, by the names of their commands."""

    def decorate(test: Test) -> Test:
        for name in reversed(names):
            test = pytest.mark.follows(PAGE, f"`headrace {name}`")(test)
        return test

    return decorate


@pytest.fixture
def typed() -> dict[str, str]:
    return {"headrace users add": "a password\n"}


@pytest.fixture
def servers(headrace_broker: Broker) -> str:
    return headrace_broker.bootstrap_servers


@pytest.fixture
def port(request: pytest.FixtureRequest) -> str | None:
    """Return the port of `headrace_broker` in tests that use it."""
    if "servers" not in request.fixturenames:
        return None
    servers: str = request.getfixturevalue("servers")
    return servers.rpartition(":")[2]


def section(name: str) -> list[Block]:
    return blocks(PAGE, f"`headrace {name}`")


def follow(reader: Reader, *followed: Block) -> None:
    """Run commands, and look for the headings of the tables that the page shows below them."""
    printed = ""
    for block in followed:
        if block.language == "text":
            heading = block.text.splitlines()[0].split()
            assert heading in [line.split() for line in printed.splitlines()], heading
        else:
            (printed,) = reader.follow(block)


@pytest.mark.broker
@follows_sections("topics", "configs", "produce", "consume")
def test_topics_and_records(reader: Reader, servers: str) -> None:
    reader.follow(
        Block("", "lines.txt", "".join(f"{number} boxes\n" for number in range(200))),
        Block("", "lines-1.txt", "key-1:one box\n"),
        Block("", "lines-2.txt", "key-2:two boxes\n"),
    )
    (reader.folder / "images").mkdir()
    (reader.folder / "images/one.png").write_bytes(b"\x89PNG\x00")
    for name in ("test-1", "scans", "copy"):
        create_topic(servers, name)
    for name in ("topics", "configs", "produce"):
        follow(reader, *section(name))
    produce(servers, "orders", (b"%d" % number for number in range(4800)), partition=3)
    follow(reader, *section("consume"))


@follows_sections("context")
def test_contexts(reader: Reader) -> None:
    reader.follow(Block("", "client.properties", "client.id=prod\n"))
    follow(reader, *section("context"))


@pytest.mark.broker
@follows_sections("groups")
def test_groups(reader: Reader, servers: str) -> None:
    create_topic(servers, "orders", 4)
    produce(servers, "orders", [b"a box"] * 4)
    start_groups(servers)
    follow(reader, *section("groups"))


@pytest.mark.broker
@follows_sections("why", "top", "lag show")
def test_lag(reader: Reader, servers: str) -> None:
    create_topic(servers, "orders", 4)
    produce(servers, "orders", [b"a box"] * 4)
    start_groups(servers)
    for name in ("top", "lag show"):
        follow(reader, *section(name))
    follow(reader, *(block for block in section("why") if block.language == "sh"))  # no table


def start_groups(servers: str) -> None:
    """Give the groups of the page offsets."""
    with AdminClient({"bootstrap.servers": servers}) as admin:
        first = TopicPartition("orders", 0, 0)
        admin.alter_share_group_offsets("packers", [first])[first].result()
        billing = ConsumerGroupTopicPartitions("billing", [first])
        admin.alter_consumer_group_offsets([billing])["billing"].result()


@pytest.mark.broker
@pytest.mark.follows(PAGE, "Users, ACLs and quotas")
def test_users_and_permissions(reader: Reader, page: list[Block]) -> None:
    reader.serve(
        "headrace serve -c super.users=User:ANONYMOUS "
        "-c authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    )
    reader.follow(Block("", "admin.properties", "client.id=page\n"))
    follow(reader, *page)


@pytest.mark.broker
@follows_sections("serve", "verify", "recover")
@pytest.mark.follows("docs/backup.md")
def test_data_directories(reader: Reader, page: list[Block]) -> None:
    reader.follow(
        Block("", "broker.properties", BROKER_PROPERTIES),
        Block("", "first-users.txt", "SCRAM-SHA-512=[name=admin,password=change-me]\n"),
    )
    follow(reader, *section("serve"))
    produced = "headrace topics create orders && seq 3 | headrace produce orders"

    reader.serve("headrace serve --data-dir /var/lib/headrace")
    assert reader.run(produced).returncode == 0
    moving, looking = blocks("docs/backup.md")
    follow(reader, moving, looking)
    reader.close()
    for name in ("backups/monday", "var/lib/restored"):
        assert (reader.folder / name / "orders-0").is_dir()
    verified, damage = section("verify")
    follow(reader, verified, *section("recover"))
    (log,) = (reader.folder / "var/lib/headrace/orders-0").glob("*.log")
    stored = bytearray(log.read_bytes())
    stored[-1] ^= 1
    log.write_bytes(stored)
    told = reader.run("headrace verify --data-dir /var/lib/headrace")
    assert told.returncode == 1
    assert without_numbers(told.stdout.replace(str(reader.folder), "")) == without_numbers(
        damage.text
    )


BROKER_PROPERTIES = """\
listeners=SASL_PLAINTEXT://127.0.0.1:9093
sasl.enabled.mechanisms=SCRAM-SHA-512
"""


def without_numbers(text: str) -> str:
    return re.sub(r"\d+( to \d+)?", "N", text)
