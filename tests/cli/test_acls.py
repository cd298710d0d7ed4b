"""``headrace acls``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import headrace
from headrace.cli.main import main
from tests.cli.command import run

pytestmark = pytest.mark.broker

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Acls = Callable[..., list[str]]


@pytest.fixture
def acls(capsys: pytest.CaptureFixture[str]) -> Iterator[Acls]:
    """Run a command line; return what it prints about ACLs, a text for each."""
    with headrace.Broker(config=CONFIGS) as broker:

        def call(line: str, status: int = 0) -> list[str]:
            words = ["acls", *line.split(), "-o", "jsonl", "-b", broker.bootstrap_servers]
            assert main(words) == status
            out, err = capsys.readouterr()
            assert err.count("\n") == bool(status)
            return [" ".join(json.loads(row).values()) for row in out.splitlines()] + [err] * status

        yield call


def test_acls_come_and_go(acls: Acls) -> None:
    bob = "User:bob ALLOW READ TOPIC t LITERAL *"
    eve = "User:eve DENY CLUSTER_ACTION CLUSTER kafka-cluster LITERAL 10.0.0.1"
    assert acls("list") == []
    assert acls("add User:bob --operation Read --topic t") == [f"{bob} added"]
    acls("add User:eve --deny --host 10.0.0.1 --operation cluster-action --cluster")
    assert acls("list") == [bob, eve]
    assert acls("list User:bob --topic tt") == []
    assert acls("remove --topic t --dry-run") == [f"{bob} would be removed"]
    assert acls("remove User:bob --topic t --yes") == [f"{bob} removed"]
    assert acls("list --operation cluster-action --host 10.0.0.1") == [eve]


def test_what_clients_need_and_prefixes(acls: Acls) -> None:
    both = "User:ann --producer --consumer --topic t --group g --transactional-id x"
    told = {tuple(acl.split()[2:5]) for acl in acls(f"add {both}")}
    assert told == {
        *(("WRITE", "TOPIC", "t"), ("CREATE", "TOPIC", "t"), ("READ", "TOPIC", "t")),
        *(("DESCRIBE", "TOPIC", "t"), ("READ", "GROUP", "g")),
        *(("WRITE", "TRANSACTIONAL_ID", "x"), ("DESCRIBE", "TRANSACTIONAL_ID", "x")),
    }
    acls("add User:ann --operation all --topic team- --prefixed")
    assert acls("list --topic team-orders") == []
    assert len(acls("list --topic team-orders --match")) == 1
    assert len(acls("list --topic team- --prefixed")) == 1
    assert acls("remove User:ann --prefixed --yes") == [
        "User:ann ALLOW ALL TOPIC team- PREFIXED * removed"
    ]
    assert len(acls("list User:ann")) == len(told)


def test_what_is_refused_is_one_line(acls: Acls) -> None:
    assert "Could not parse principal" in acls("add bob --operation read --topic t", 1)[-1]
    for line, complaint in {
        "add User:bob --topic t": "give an --operation, --producer or --consumer",
        "add User:bob --topic t --producer --operation read": "give an --operation, --producer or",
        "add User:bob --topic t --group g --producer": "a producer needs nothing on GROUP 'g'",
        "add User:bob --cluster --producer --consumer --topic t": "needs nothing on CLUSTER",
        "add User:bob --operation fly --topic t": "'fly' is not an operation: all, read",
        "add User:bob --operation read": "name a resource",
        "remove --yes": "name a principal or a resource",
        "remove User:bob --match --yes": "--match takes a resource",
    }.items():
        assert complaint in acls(line, 2)[-1]


def test_without_an_authorizer() -> None:
    line = ("acls", "add", "User:bob", "--operation", "read", "--topic", "t")
    with headrace.Broker() as broker:
        status, _, errors = run(*line, "-b", broker.bootstrap_servers)
    assert status == 1
    assert errors[0].startswith("headrace acls add: creating an ACL: SECURITY_DISABLED")
    assert errors[0].endswith(": set authorizer.class.name on the brokers")
