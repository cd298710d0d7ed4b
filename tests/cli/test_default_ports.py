"""The default ports: all servers of headrace can run on one host."""

from __future__ import annotations

import inspect
import re

from headrace.cli.exporter import command as exporter
from headrace.cli.keda import command as keda
from headrace.cli.ui import command as ui
from headrace.spark import export_metrics
from tests.support import ROOT

_ROW = re.compile(r"^\| (\d+) \| `([\w .-]+)`", re.MULTILINE)


def test_default_ports_differ_and_are_documented() -> None:
    documented = _ROW.findall((ROOT / "docs/command-line.md").read_text())
    ports = {
        "headrace serve": 9092,  # any Kafka client's
        "headrace exporter": exporter.DEFAULT_LISTEN.port,
        "headrace.spark.export_metrics": inspect.signature(export_metrics)
        .parameters["port"]
        .default,
        "headrace ui": ui.DEFAULT_LISTEN.port,
        "headrace keda-scaler": keda.DEFAULT_LISTEN.port,
    }
    assert {name: int(port) for port, name in documented} == ports
    assert len(set(ports.values())) == len(ports)
