"""docs/security.md leads from nothing to a broker with TLS, users and ACLs."""

from __future__ import annotations

import shutil

import pytest

from .reader import Reader, blocks

pytestmark = pytest.mark.broker

TYPED = {
    "headrace users add alice": "her password\n",
    "headrace users add admin": "another\n",
}


@pytest.fixture
def typed() -> dict[str, str]:
    return TYPED


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_from_nothing_to_a_broker_with_tls_users_and_acls(reader: Reader) -> None:
    section = blocks("docs/security.md", "From nothing to a broker with TLS and users")
    printed = reader.follow(*section)
    assert [block.language for block in section].count("python") == 1, "the client"
    (listed,) = [text for text in printed if "Current ACLs" in text]
    assert "alice logs in with SCRAM-SHA-512." in listed
    assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in listed
    assert "ResourcePattern(resourceType=GROUP, name=packers, patternType=LITERAL)" in listed

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
