"""``headrace acls``: its options, and its output beside that of Kafka's ``kafka-acls``."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator

import pytest

import headrace
from headrace.cli.errors import BadUsage
from headrace.cli.main import main
from tests.cli.command import parsed_options, run
from tests.peer import run_tool

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
BOTH = "--allow-principal User:bob --deny-principal User:eve --deny-host 10.0.0.1"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "add list",
        "describe",
        "add --topic t",
        "add --allow-principal User:bob",
        "add --allow-principal User:bob --topic t --operation fly",
        "add --allow-principal User:bob --topic t --resource-pattern-type match",
        "add --allow-principal User:bob --group g --producer",
        "add --allow-principal User:bob --topic t --consumer",
        "add --allow-principal User:bob --topic t --producer --operation read",
        "add --deny-principal User:bob --topic t --producer",
        "add --allow-principal User:bob --topic t --idempotent",
        "add --allow-principal User:bob --topic t --principal User:bob",
        "list --allow-principal User:bob",
        "remove --force",
    ],
)
def test_options_that_are_refused(line: str) -> None:
    with pytest.raises(BadUsage):
        parsed_options("acls", line)


@pytest.mark.parametrize("text", ["ClusterAction", "cluster_action", "CLUSTER-ACTION"])
def test_operations_are_written_in_many_ways(text: str) -> None:
    options = parsed_options("acls", f"add --allow-principal User:bob --cluster --operation {text}")
    assert options.operations == ["CLUSTER_ACTION"]


@pytest.fixture
def servers() -> Iterator[str]:
    with headrace.Broker(config=CONFIGS) as broker:
        yield broker.bootstrap_servers


Ours = Callable[[str], tuple[int, str]]


@pytest.fixture
def ours(servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ours:
    """Run our command; return its exit status and output. Nobody answers its questions."""

    def run(line: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        status = main(["acls", "--bootstrap-server", servers, *line.split()])
        printed = capsys.readouterr()
        assert status == 0 or printed.err
        return status, printed.out

    return run


@pytest.mark.broker
def test_add_list_and_remove(ours: Ours) -> None:
    assert ours("list") == (0, "")
    assert ours(f"add {BOTH} --operation read --topic t")[0] == 0
    found = ours("list --topic t")[1]
    assert found == (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, "
        "patternType=LITERAL)`:\n"
        "\t(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:eve, host=10.0.0.1, operation=READ, permissionType=DENY)\n\n"
    )
    assert ours("list --topic tt") == (0, "")
    assert ours("remove --allow-principal User:bob --operation read --topic t --force")
    assert "User:bob" not in ours("list")[1]
    assert ours("remove --topic t --force") == (0, "")
    assert ours("list") == (0, "")


@pytest.mark.broker
def test_removing_asks(ours: Ours) -> None:
    assert ours(f"add {BOTH} --operation read --topic t")[0] == 0
    status, out = ours("remove --topic t")  # nobody answers
    assert status == 0
    assert out.startswith("Are you sure you want to delete all ACLs for resource filter ")
    assert "User:bob" in ours("list")[1]


@pytest.mark.broker
def test_an_acl_that_the_broker_refuses(ours: Ours) -> None:
    assert ours("add --allow-principal bob --topic t")[0] == 1


@pytest.mark.broker
def test_without_an_authorizer() -> None:
    line = ("add", "--allow-principal", "User:bob", "--topic", "t")
    with headrace.Broker() as broker:
        status, _, errors = run("acls", "--bootstrap-server", broker.bootstrap_servers, *line)
    assert status == 1
    assert errors == [
        "headrace acls: No Authorizer is configured: set authorizer.class.name on the brokers"
    ]


@pytest.mark.java
@pytest.mark.slow
def test_kafka_acls_prints_the_same(servers: str, ours: Ours) -> None:
    """Each tool adds ACLs and lists them; those of the other are removed before."""

    def kafkas(line: str) -> tuple[int, str]:
        words = [
            f"--{word}" if word in ("add", "list", "remove") else word for word in line.split()
        ]
        tool = "org.apache.kafka.tools.AclCommand"
        done = run_tool(tool, "--bootstrap-server", servers, *words)
        return done.returncode, done.stdout

    def blocks(output: str) -> set[tuple[str, ...]]:
        """Return the resources with their entries; Kafka's tool has no order."""
        return {
            tuple(sorted(re.split(r"\s*\n\s*", block.strip())))
            for block in output.split("\n\n")
            if block.strip()
        }

    lines = [
        f"add {BOTH} --operation Read --operation DescribeConfigs --topic t --group g",
        "add --allow-principal User:bob --producer --topic t2 --idempotent --transactional-id x",
        "add --allow-principal User:ann --consumer --topic t3 --group g3",
        "add --allow-principal User:ann --operation All --topic p --resource-pattern-type prefixed",
        "add --allow-principal User:ann --cluster",
        "list",
        "list --topic t --principal User:bob",
        "list --topic private --resource-pattern-type match",
        "remove --force --topic t",
        "remove --force --allow-principal User:ann --consumer --topic t3 --group g3",
        "list",
    ]
    answers = []
    for tool in (kafkas, ours):
        answers.append(
            [(line, status, blocks(out)) for line in lines for status, out in [tool(line)]]
        )
        for rest in (
            "--topic t2 --transactional-id x --group g --cluster",
            "--topic p --resource-pattern-type prefixed",
        ):
            assert ours(f"remove --force {rest}")[0] == 0
        assert ours("list") == (0, "")
    assert answers[0] == answers[1]
