"""docs/clients.md names the versions of clients that the tests run with."""

from __future__ import annotations

import json
import re

import pytest

from tests.clients.toolchains import FOLDER
from tests.support import ROOT

CONSTRAINTS = ROOT / "constraints.txt"


def pinned() -> dict[str, str]:
    """Return the version of each package that a file of this repository pins."""
    files = ("go/go.mod", "frameworks/requirements.txt")
    # last: frameworks have an older confluent-kafka
    lines = [(FOLDER / file).read_text() for file in files] + [CONSTRAINTS.read_text()]
    version = r"^\s*(?:[\w.]+/)*([\w.-]+)(?:==| )(v?[\d.]+)$"
    found = dict(re.findall(version, "".join(lines), re.MULTILINE))
    found |= json.loads((FOLDER / "node/package.json").read_text())["dependencies"]
    return found


@pytest.mark.parametrize(
    "client",
    [
        "confluent-kafka",
        "kafka-python",
        "aiokafka",
        "franz-go",
        "sarama",
        "kafkajs",
        "@platformatic/kafka",
        "FastStream",
        "quixstreams",
    ],
)
def test_the_page_of_clients(client: str) -> None:
    page = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
    (version,) = re.findall(rf"^\| {client}[^|]*\| ([^|]+) \|", page, re.MULTILINE)
    assert version == pinned()[client.lower()]
