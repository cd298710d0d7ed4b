"""docs/security.md leads from nothing to a broker with TLS, users, ACLs and quotas."""

from __future__ import annotations

import re
import shutil

import pytest

from headrace.broker.config.broker_config import Config

from .reader import Reader, blocks

PAGE = "docs/security.md"
NOTHING = "From nothing to a broker with TLS and users"
QUOTAS = "Quotas and limits of connections"
TYPED = {
    "headrace users add alice": "her password\n",
    "headrace users add admin": "another\n",
}


@pytest.fixture
def typed() -> dict[str, str]:
    return TYPED


@pytest.mark.broker
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.follows(PAGE, NOTHING)
@pytest.mark.follows(PAGE, QUOTAS)
def test_from_nothing_to_a_broker_with_tls_users_acls_and_quotas(reader: Reader) -> None:
    section = blocks(PAGE, NOTHING)
    printed = reader.follow(*section)
    assert not reader.run("find broker.key broker.pem -perm /077").stdout, "keys of others"
    assert [block.language for block in section].count("python") == 1, "the client"
    (listed,) = [text for text in printed if "PATTERN-TYPE" in text]
    lines = [line.split() for line in listed.splitlines()]
    assert ["alice", "SCRAM-SHA-512", "added"] in lines
    for allowed in ("WRITE TOPIC orders", "READ GROUP packers"):
        assert ["User:alice", "ALLOW", *allowed.split(), "LITERAL", "*"] in lines

    users = (
        "headrace users list --bootstrap-server localhost:9093 --command-config admin.properties"
    )
    with_the_old_password = reader.run(users)
    assert with_the_old_password.returncode == 1
    assert "check sasl.username and sasl.password" in with_the_old_password.stderr
    reader.rewrite("admin.properties", "change-me", "another")
    with_the_new_one = reader.run(users)
    assert (with_the_new_one.returncode, with_the_new_one.stderr) == (0, "")
    assert "alice" in with_the_new_one.stdout

    (listed,) = reader.follow(*blocks(PAGE, QUOTAS))
    assert re.search(r"^alice .* request_percentage +200$", listed, re.MULTILINE)


def test_the_listeners_of_the_example() -> None:
    (example,) = [block for block in blocks(PAGE, "Listeners") if block.language == "properties"]
    config = Config(dict(line.split("=", 1) for line in example.text.splitlines()))
    assert [
        (one.name, one.protocol.value, one.advertised_host) for one in config.listeners(None)
    ] == [
        ("INSIDE", "PLAINTEXT", "127.0.0.1"),
        ("OUTSIDE", "SASL_SSL", "broker.example.com"),
    ]
