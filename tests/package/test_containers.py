"""The image, the composition, the chart and the action: their commands have the options that they
are given, and run. Nothing here needs Docker, Kubernetes or GitHub.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.main import command_of, parsed
from headrace.cli.options import DEFAULT_LISTEN
from tests.support import HANG_S, ROOT, free_port_pair

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {
    name: service for name, service in COMPOSE["services"].items() if service["image"] == "headrace"
}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
CHART = DEPLOY / "helm"


def options_of(words: Sequence[str]) -> Namespace:
    """Return the options of a command line, as the command itself reads them."""
    name, command, arguments = command_of(words)
    return parsed(name, command, arguments)


# The image ----------------------------------------------------------------------------------------


def instructions() -> dict[str, str]:
    """Return the instructions of the image's last stage, the last one of each name."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    last_stage = max(number for number, line in enumerate(lines) if line.startswith("FROM"))
    return dict(line.split(" ", 1) for line in lines[last_stage:])


def test_the_image_runs_a_broker_and_asks_it_whether_it_answers() -> None:
    image = instructions()
    assert json.loads(image["ENTRYPOINT"]) == ["headrace"]
    broker = options_of(json.loads(image["CMD"]))
    assert str(broker.data_dir) == image["VOLUME"]
    _, check = image["HEALTHCHECK"].split(" CMD ")
    program, *words = json.loads(check)
    assert program == "headrace"
    options_of(words)
    assert str(DEFAULT_LISTEN) == f"127.0.0.1:{image['EXPOSE']}"  # what it asks
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", image["USER"])


def test_the_image_has_the_extras_of_its_commands() -> None:
    (extras,) = re.findall(r"'/src\[([^]]*)\]'", (DEPLOY / "Dockerfile").read_text())
    assert set(extras.split(",")) == {"security", "ui", "keda"}


# The composition ----------------------------------------------------------------------------------


def test_the_composition_is_for_this_machine_only_and_names_files_that_exist() -> None:
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), source
        assert all(config["source"] in COMPOSE["configs"] for config in service.get("configs", []))
    for service in OURS.values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        options_of(service["command"])
    provided = yaml.safe_load(COMPOSE["configs"]["grafana-dashboards"]["content"])
    assert [one["options"]["path"] for one in provided["providers"]] == ["/var/lib/dashboards"]


@contextmanager
def served(words: Sequence[str], ready: str, **environment: str) -> Iterator[str]:
    """Run a command until the end of the block. Yield the line that says that it serves."""
    process = subprocess.Popen(
        (sys.executable, "-m", "headrace", *words),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    watchdog = threading.Timer(HANG_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if ready in line), None)
        assert line is not None, f"{words} has ended"
        yield line
    finally:
        watchdog.cancel()
        process.send_signal(signal.SIGTERM)
        process.communicate()


def asked(port: int, path: str, host: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        return str(response.read().decode())


@pytest.mark.broker
def test_the_composition_works(tmp_path: Path) -> None:
    """Its commands, with other ports and a network whose only machine is this one."""
    first = free_port_pair()
    second = free_port_pair(first)
    ports = {"9092": first, "29092": first + 1, "9380": second, "9308": second + 1}
    local = {"0.0.0.0:": "127.0.0.1:", "broker:": "127.0.0.1:", "=:": "=127.0.0.1:"}

    def here(text: str) -> str:
        text = re.sub(r"0\.0\.0\.0:|broker:|=:", lambda start: local[start[0]], text)
        text = re.sub(r":(\d+)$", lambda port: f":{ports[port[1]]}", text)
        return text.replace("/var/lib/headrace", str(tmp_path / "data"))

    server = here(OURS["page"]["environment"]["HEADRACE_BOOTSTRAP_SERVERS"])
    ready = {"broker": "is listening on", "page": "the page is at", "exporter": "metrics are at"}
    assert set(ready) == set(OURS)
    with ExitStack() as running:
        for name, line in ready.items():
            command = [here(word) for word in OURS[name]["command"]]
            running.enter_context(served(command, line, HEADRACE_BOOTSTRAP_SERVERS=server))
        metadata = AdminClient({"bootstrap.servers": server}).list_topics(timeout=HANG_S)
        (broker,) = metadata.brokers.values()
        assert f"{broker.host}:{broker.port}" == server
        assert "<html" in asked(ports["9380"], "/", "localhost:9380")
        scrape = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])["scrape_configs"]
        (target,) = scrape[0]["static_configs"][0]["targets"]
        assert "headrace_" in asked(ports["9308"], "/metrics", target)


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian's package prometheus): the rules are not checked",
)
def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "prometheus/alerts.yml", tmp_path)
    (tmp_path / "prometheus.yml").write_text(COMPOSE["configs"]["prometheus"]["content"])
    command = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# The chart ----------------------------------------------------------------------------------------


def check_objects(rendered: str) -> list[dict[str, Any]]:
    """Check the objects of a chart: the commands of the containers have their options."""
    objects = [one for one in yaml.safe_load_all(rendered) if one]
    (pod,) = (one["spec"]["template"]["spec"] for one in objects if one["kind"] == "StatefulSet")
    volumes = {volume["name"] for volume in pod["volumes"]} | {"data"}
    for container in pod["containers"]:
        options_of(container["args"])
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    return objects


def test_the_chart_has_every_branch_in_order() -> None:
    """Read without Helm: each line of each branch, with a value for each expression."""
    template = (CHART / "templates/broker.yaml").read_text()
    template = re.sub(r"^ *\{\{-.*\}\}\n", "", template, flags=re.M)
    template = re.sub(r"\{\{ printf \"-c.*?\}\}", "-c=num.partitions=4", template)
    check_objects(re.sub(r"\{\{.*?\}\}", "headrace", template))
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["required"]) == set(values) == set(schema["properties"]) - {"global"}
    check = fastjsonschema.compile(schema)
    check(values)
    for wrong in ({"storage": {"size": "ten"}}, {"replicas": 3}, {"config": {"num.partitions": 4}}):
        with pytest.raises(fastjsonschema.JsonSchemaValueException):
            check(values | wrong)


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize(
    "settings", ["", "secretConfig=broker,page.enabled=false", "config.log\\.retention\\.ms=60000"]
)
def test_helm_renders_the_chart(settings: str) -> None:
    for verb in (["lint", "--strict"], ["template", "broker"]):
        command = ["helm", *verb, str(CHART), "--set-string", settings.replace("=false", "=")]
        if "=false" in settings:
            command = ["helm", *verb, str(CHART), "--set", settings]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    objects = check_objects(done.stdout)
    assert [one["kind"] for one in objects] == ["Service", "StatefulSet"]
    refused = subprocess.run([*command, "--set", "pages.enabled=true"], capture_output=True)
    assert refused.returncode != 0


# The action ---------------------------------------------------------------------------------------


@pytest.mark.broker
@pytest.mark.slow
def test_the_action_starts_a_broker(tmp_path: Path) -> None:
    """The step that GitHub would run."""
    python, step = ACTION["runs"]["steps"]
    assert step["env"]["PYTHON"] == f"${{{{ steps.{python['id']}.outputs.python-path }}}}"
    output = tmp_path / "output"
    environment = {
        "PYTHON": sys.executable,
        "SOURCE": str(ROOT),
        "PORT": ACTION["inputs"]["port"]["default"],
        "CONFIGS": "num.partitions=7\n",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(output),
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
    }
    # GitHub's shell: bash --noprofile --norc -eo pipefail
    script = f"{step['run']}\necho $broker > {shlex.quote(str(tmp_path / 'pid'))}\n"
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        name, _, servers = output.read_text().strip().partition("=")
        assert f"${{{{ steps.broker.outputs.{name} }}}}" == ACTION["outputs"][name]["value"]
        client = AdminClient({"bootstrap.servers": servers})
        client.create_topics([NewTopic("orders")])["orders"].result(HANG_S)
        assert len(client.list_topics("orders", HANG_S).topics["orders"].partitions) == 7
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
