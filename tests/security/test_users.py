"""SCRAM users: requests about them, restarts, ``headrace users``, and the first administrator."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import headrace
from headrace.net.scram_users import InvalidUser, NewUser
from headrace.secure_broker import SecureBroker
from headrace.security.scram import MECHANISMS, salt_password
from tests.cli import command
from tests.security.serving import Client, on_uvloop, run, serving
from tests.support import HeadraceProcess

pytestmark = pytest.mark.broker

DESCRIBE, ALTER = 50, 51
SHA_256, SHA_512 = 1, 2
NONE, RESOURCE_NOT_FOUND, DUPLICATE, UNACCEPTABLE, UNSUPPORTED = 0, 91, 92, 93, 33


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> dict[str, object]:
    salted = salt_password(MECHANISMS["SCRAM-SHA-256"], "pencil", b"salt", 4096)
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": salted,
    }


def deletion(name: str, mechanism: int = SHA_256) -> dict[str, object]:
    return {"name": name, "mechanism": mechanism}


async def alter(
    client: Client, *upsertions: dict[str, object], deletions: tuple[dict[str, object], ...] = ()
) -> dict[str, tuple[int, str | None]]:
    response = await client.ask(ALTER, 0, deletions=list(deletions), upsertions=list(upsertions))
    return {one.user: (int(one.error_code), one.error_message) for one in response.results}


async def describe(client: Client, *names: str) -> dict[str, object]:
    users = [{"name": name} for name in names] or None
    response = await client.ask(DESCRIBE, 0, users=users)
    return {
        one.user: int(one.error_code)
        or {info.mechanism: info.iterations for info in one.credential_infos}
        for one in response.results
    }


PLAINTEXT = {"listeners": "PLAINTEXT://127.0.0.1:0"}


@on_uvloop
async def test_users_come_and_go() -> None:
    async with serving(PLAINTEXT) as broker:
        client = await broker.connect("PLAINTEXT")
        assert await describe(client) == {}
        assert await alter(client, upsertion("ann"), upsertion("bob", SHA_512, 8192)) == {
            "ann": (NONE, None),
            "bob": (NONE, None),
        }
        assert await alter(client, upsertion("ann", SHA_512)) == {"ann": (NONE, None)}
        everybody = {"ann": {SHA_256: 4096, SHA_512: 4096}, "bob": {SHA_512: 8192}}
        assert await describe(client) == everybody
        assert await describe(client, "ann", "nobody", "bob", "bob") == {
            "ann": everybody["ann"],
            "nobody": RESOURCE_NOT_FOUND,
            "bob": DUPLICATE,
        }
        gone = await alter(client, deletions=(deletion("ann"), deletion("bob", SHA_512)))
        assert gone == {"ann": (NONE, None), "bob": (NONE, None)}
        assert await describe(client) == {"ann": {SHA_512: 4096}}


@on_uvloop
async def test_changes_that_are_not_valid() -> None:
    async with serving(PLAINTEXT) as broker:
        client = await broker.connect("PLAINTEXT")
        twice = "A user credential cannot be altered twice in the same request"
        results = await alter(
            client,
            upsertion("ann"),
            upsertion("ann", SHA_512),
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("other", mechanism=7),
            upsertion(""),
            upsertion("right"),
            deletions=(deletion("nobody"),),
        )
        assert results == {
            "ann": (DUPLICATE, twice),
            "few": (UNACCEPTABLE, "Too few iterations"),
            "many": (UNACCEPTABLE, "Too many iterations"),
            "other": (UNSUPPORTED, "Unknown SCRAM mechanism"),
            "": (UNACCEPTABLE, "Username must not be empty"),
            "nobody": (
                RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            ),
            "right": (NONE, None),
        }
        assert await describe(client) == {"right": {SHA_256: 4096}}


def test_users_survive_a_restart_and_only_their_owner_reads_the_files(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def add() -> None:
        async with serving(PLAINTEXT, data) as broker:
            await alter(await broker.connect("PLAINTEXT"), upsertion("a=n,n'\n"))

    async def look() -> None:
        async with serving(PLAINTEXT, data) as broker:
            found = await describe(await broker.connect("PLAINTEXT"))
            assert found == {"a=n,n'\n": {SHA_256: 4096}}

    run(add())
    run(look())
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "headrace.db").stat().st_mode) == 0o600
    (value,) = sqlite3.connect(data / "headrace.db").execute(
        "SELECT value FROM entries WHERE kind = 'configs' AND key LIKE 'scram %'"
    )
    assert "pencil" not in value[0]


# The first administrator --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SCRAM-SHA-256=[name=a,password=b]", ("a", "b", "SCRAM-SHA-256", 4096)),
        (
            "scram-sha-512=[iterations=8192,name=a b,password=b,=[]c,d]",
            ("a b", "b,=[]c,d", "SCRAM-SHA-512", 8192),
        ),
    ],
)
def test_new_users(text: str, expected: tuple[object, ...]) -> None:
    user = NewUser.parse(text)
    assert (user.name, user.password, user.mechanism.name, user.iterations) == expected
    assert "password" not in repr(user)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-256",
        "SCRAM-SHA-1=[name=a,password=s3cret]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[password=s3cret]",
        "SCRAM-SHA-256=[name=a,password=s3cret",
        "SCRAM-SHA-256=[name=a,password=s3cret,iterations=1]",
        "SCRAM-SHA-256=[name=a,password=s3cret,iterations=x]",
    ],
)
def test_malformed_new_users(text: str) -> None:
    with pytest.raises(InvalidUser) as refused:
        NewUser.parse(text)
    assert "s3cret" not in str(refused.value)


def test_embedded_users_are_added_once(tmp_path: Path) -> None:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    for password in ("first", "second"):
        with headrace.Broker(tmp_path, config, users={"ann": password}) as broker:
            client = AdminClient(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": "ann",
                    "sasl.password": "first",
                }
            )
            assert client.list_topics(timeout=20).brokers


def test_a_first_administrator_and_headrace_users(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.write_text("# the first one\n\nSCRAM-SHA-512=[name=root,password=s3cret]\n")
    server = HeadraceProcess()
    server.command = (
        *HeadraceProcess.command,
        "--add-scram-file",
        str(root),
        "--listen",
        "SASL_PLAINTEXT://127.0.0.1:0",
        "-c",
        "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
    )
    properties = tmp_path / "admin.properties"
    password = tmp_path / "password"
    password.write_text("ann's own\n")
    with server:
        (ready,) = [line for line in server.output if "is listening on" in line]
        address = ready.partition("SASL_PLAINTEXT://")[2].partition(",")[0]
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="root" password="s3cret";\n'
        )

        def users(*words: str) -> tuple[int, list[str], list[str]]:
            connection = "--bootstrap-server", address, "--command-config", str(properties)
            status, output, errors = command.run("users", *words, *connection)
            return status, output.decode().splitlines(), errors

        assert users("list")[1][1].split() == ["root", "SCRAM-SHA-512", "4096"]
        assert users("add", "ann", "--password-file", str(password))[0] == 0
        more = "--password-file", str(password), "--mechanism", "SCRAM-SHA-256"
        assert users("add", "ann", *more, "--iterations", "8192")[1][1].split() == [
            *("ann", "SCRAM-SHA-256", "added")
        ]
        assert [line.split() for line in users("list", "ann")[1][1:]] == [
            ["ann", "SCRAM-SHA-256", "8192"],
            ["ann", "SCRAM-SHA-512", "4096"],
        ]
        assert users("list", "nobody")[0] == 1
        assert "user 'nobody' does not exist" in users("list", "nobody")[2][-1]
        assert users("delete", "ann")[0] == 2, "nobody is there to be asked"
        assert users("delete", "ann", "--yes")[0] == 0
        assert users("delete", "ann", "--yes")[0] == 1
        assert not any("s3cret" in line for line in server.output)


# A secured broker for tests -----------------------------------------------------------------------


def test_the_fixture(headrace_secure_broker: SecureBroker) -> None:
    broker = headrace_secure_broker
    admin = AdminClient(broker.client_config())
    assert admin.list_topics(timeout=20).brokers
    broker.allow("alice", "WRITE", "TOPIC", "orders")
    broker.allow("alice", "CREATE", "TOPIC", "orders")
    errors = []
    for user in ("alice", "bob"):
        producer = Producer(broker.client_config(user))
        producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error))
        producer.flush(20)
    assert errors[0] is None
    assert errors[1] is not None
    wrong = {**broker.client_config("bob"), "sasl.password": "wrong", "group.id": "g"}
    with pytest.raises(KafkaException):
        Consumer(wrong).list_topics(timeout=1)
