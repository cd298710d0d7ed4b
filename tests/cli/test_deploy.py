"""The dashboard and the alert rules in deploy/: each query names metrics that the exporter has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from argparse import ArgumentParser
from collections.abc import Iterator
from configparser import ConfigParser

import pytest
import yaml

from headrace.cli.commands import load
from headrace.cli.exporter.scraper import FAMILIES
from headrace.cli.keda.service import parse
from tests.support import ROOT

DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus/alerts.yml"
LABELS = {one.name: {*one.labels, "instance", "job"} for one in FAMILIES}
SCRAPES = {"up": {"instance", "job"}}
"""The metric that Prometheus makes itself."""
_WORDS = {"and", "or", "on", "by", "sum", "min", "max", "count", "rate", "vector", "Inf"}
_METRIC = re.compile(r"(?<![\w$\"])([a-z_]\w*)\b(?:\{([^}]*)\})?")


def queries() -> Iterator[tuple[str, str]]:
    """Yield where each query is, and the query."""
    board = json.loads((DEPLOY / "grafana/lag.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.findall(r"\w+", variable["definition"])[1:]
            yield variable["name"], f"{metric}{{{label}=~'.*'}}"
    for line in ALERTS.read_text().splitlines():
        if line.strip().startswith("expr: "):
            yield "alerts", line.partition("expr: ")[2]


QUERIES = list(queries())


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[query for _, query in QUERIES])
def test_every_query_names_metrics_and_labels_that_exist(where: str, query: str) -> None:
    by = re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
    plain = re.sub(r"\b(?:by|on) \([^)]*\)", "", query)
    found = [
        (name, re.findall(r"(\w+)\s*(?:=~|=|!=|!~)", labels or ""))
        for name, labels in _METRIC.findall(re.sub(r"\[[^]]*\]", "", plain))
        if name not in _WORDS
    ]
    assert found, where
    for name, labels in found:
        known = {**LABELS, **SCRAPES}[name]
        assert set(labels) <= known
        assert {one.strip() for group in by for one in group.split(",")} <= known


def test_panels_show_every_metric_that_needs_no_option() -> None:
    shown = " ".join(query for _, query in QUERIES)
    assert [
        one.name for one in FAMILIES if "partition" not in one.labels and one.name not in shown
    ] == ["headrace_topic_production_rate"]  # the dashboard has rate() of the counter


def test_the_documentation_lists_every_metric() -> None:
    text = (ROOT / "docs/exporter.md").read_text()
    assert [one.name for one in FAMILIES if f"`{one.name}`" not in text] == []


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian's package prometheus): the rules are not checked",
)
def test_promtool_accepts_the_files() -> None:
    for check, file in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        command = ["promtool", "check", check, str(DEPLOY / "prometheus" / file)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_scaled_object_is_one_that_the_scaler_accepts() -> None:
    text = (DEPLOY / "keda/scaledobject.yaml").read_text()
    scaled_object, *_ = yaml.safe_load_all(text)
    (trigger,) = scaled_object["spec"]["triggers"]
    found = parse(trigger["metadata"])
    assert (found.query.group_id, found.query.topics) == ("order-workers", ("orders",))
    assert found.lag_threshold == 50


def test_the_scaler_has_few_rights_and_few_neighbours() -> None:
    objects = {
        one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "keda/scaler.yaml").read_text())
    }
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]
    mounted = {volume["secret"]["secretName"]: volume["secret"] for volume in pod["volumes"]}
    assert all(secret["defaultMode"] == 0o440 for secret in mounted.values())
    policy = objects["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == {"app": "headrace-keda-scaler"}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert all("from" in rule for rule in policy["ingress"])


def test_the_image_is_that_of_a_user_without_rights() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    pod = yaml.safe_load_all((DEPLOY / "keda/scaler.yaml").read_text())
    (uid,) = (
        one["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
        for one in pod
        if one["kind"] == "Deployment"
    )
    assert f"USER {uid}:{uid}" in lines and 'ENTRYPOINT ["headrace"]' in lines
    assert "-m 0700 /var/lib/headrace" in "\n".join(lines)


def test_the_service_is_confined_and_has_a_command_that_exists() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd/headrace.service")
    service = unit["Service"]
    expected = {
        "UMask": "0077",
        "StateDirectory": "headrace",
        "StateDirectoryMode": "0700",
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "User": "headrace",
    }
    assert {key: service[key] for key in expected} == expected
    assert int(service["LimitNOFILE"]) >= 65536
    _, command, *options = service["ExecStart"].split()
    parser = ArgumentParser()
    load(command).declare(parser)
    assert str(parser.parse_args(options).data_dir) == "/var/lib/headrace"


def test_the_scaler_is_started_with_options_that_it_has() -> None:
    text = (DEPLOY / "keda/scaler.yaml").read_text()
    command, *options = re.findall(r"^ {12}- (\S+)$", text, re.M)
    parser = ArgumentParser()
    load(command).declare(parser)
    assert parser.parse_args(options).bootstrap_server == "kafka.kafka:9093"
