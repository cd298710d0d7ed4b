"""``headrace quotas``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace
from headrace.cli.main import main

pytestmark = pytest.mark.broker
LOADER = ["--user", "ann", "--client-id-default"]


def test_quotas_come_and_go_and_survive_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def quotas(*words: str, status: int = 0) -> str:
        assert main(["quotas", *words, "-b", broker.bootstrap_servers]) == status
        out, err = capsys.readouterr()
        return err if status else out

    with headrace.Broker(tmp_path / "data") as broker:
        quotas("set", "producer_byte_rate=1024", "request_percentage=12.5", *LOADER)
        quotas("set", "connection_creation_rate=50", "--ip", "10.0.0.7")
        said = quotas("set", "nonsense=1", *LOADER, status=1)
        assert "Invalid configuration key nonsense" in said and said.count("\n") == 1
        assert "give" not in quotas("set", "producer_byte_rate=x", *LOADER, status=2)
        for verb in (["list"], ["set", "producer_byte_rate=1"], ["remove", "producer_byte_rate"]):
            two = quotas(*verb, "--user", "ann", "--user", "bob", status=2)
            assert "name one user, one client id or one address at a time" in two
        assert "name a user" in quotas("set", "producer_byte_rate=1", status=2)
    with headrace.Broker(tmp_path / "data") as broker:
        assert [line.split() for line in quotas("list").splitlines()] == [
            ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
            ["ann", "<default>", "-", "producer_byte_rate", "1024"],
            ["ann", "<default>", "-", "request_percentage", "12.5"],
            ["-", "-", "10.0.0.7", "connection_creation_rate", "50"],
        ]
        removal = ("remove", "producer_byte_rate", *LOADER)
        assert "Remove these quotas? There is no terminal to ask on" in quotas(*removal, status=2)
        assert "would be removed" in quotas(*removal, "--dry-run")
        assert "producer_byte_rate" in quotas("list")
        quotas(*removal, "--yes")
        assert json.loads(quotas("list", "--user", "ann", "-o", "json")) == [
            {
                "user": "ann",
                "client_id": "<default>",
                "ip": None,
                "quota": "request_percentage",
                "value": 12.5,
            }
        ]
