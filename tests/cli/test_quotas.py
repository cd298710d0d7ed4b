"""``headrace quotas``: its options, and its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace
from headrace.cli.errors import BadUsage
from tests.cli.command import parsed_options, run


@pytest.mark.parametrize(
    "line",
    [
        "",
        "list set",
        "describe",
        "list producer_byte_rate",
        "set producer_byte_rate=1",
        "set --user a",
        "set producer_byte_rate --user a",
        "set producer_byte_rate=x --user a",
        "set producer_byte_rate=1 producer_byte_rate=2 --user a",
        "set producer_byte_rate=1 --user a --user-default",
        "set producer_byte_rate=1 --user a --ip 127.0.0.1",
        "remove producer_byte_rate=1 --user a",
        "remove --user a",
    ],
)
def test_options_that_are_refused(line: str) -> None:
    with pytest.raises(BadUsage):
        parsed_options("quotas", line)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("list", {}),
        ("list --user a", {"user": "a"}),
        ("list --user-default --client-id app", {"user": None, "client-id": "app"}),
        ("list --ip-default", {"ip": None}),
    ],
)
def test_entities(line: str, names: dict[str, str | None]) -> None:
    assert parsed_options("quotas", line).names == names


@pytest.mark.broker
def test_quotas_come_and_go_and_survive_a_restart(tmp_path: Path) -> None:
    def quotas(servers: str, *words: str) -> tuple[int, list[str], list[str]]:
        status, out, errors = run("quotas", "--bootstrap-server", servers, *words)
        return status, out.decode().splitlines(), errors

    ann = "--user", "ann", "--client-id-default"
    with headrace.Broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        done = quotas(servers, "set", "producer_byte_rate=1024", "request_percentage=12.5", *ann)
        assert done == (0, ["Set: producer_byte_rate, request_percentage."], [])
        assert quotas(servers, "set", "connection_creation_rate=50", "--ip", "10.0.0.7")[0] == 0
        status, _, errors = quotas(servers, "set", "nonsense=1", *ann)
        assert (status, errors) == (1, ["headrace quotas: Invalid configuration key nonsense"])
    with headrace.Broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        _, lines, _ = quotas(servers, "list")
        assert [line.split() for line in lines] == [
            ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
            ["ann", "<default>", "-", "producer_byte_rate", "1024"],
            ["ann", "<default>", "-", "request_percentage", "12.5"],
            ["-", "-", "10.0.0.7", "connection_creation_rate", "50"],
        ]
        assert quotas(servers, "remove", "producer_byte_rate", *ann)[0] == 0
        _, lines, _ = quotas(servers, "list", "--user", "ann", "--json")
        assert json.loads("\n".join(lines)) == [
            {
                "entity": {"client-id": None, "user": "ann"},
                "quota": "request_percentage",
                "value": 12.5,
            }
        ]
