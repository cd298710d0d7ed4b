"""`headrace serve --ui`: the page beside a broker, plain and secured."""

from __future__ import annotations

import shlex
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.secure_broker import SecureBroker
from tests.cli.command import ENVIRONMENT, run, start
from tests.support import wait_until, write_properties
from tests.web.serving import acting, client, served

pytestmark = pytest.mark.broker

ANY_PORT = ("--listen", "127.0.0.1:0", "--ephemeral")


@contextmanager
def broker(*page_options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a broker with a page; yield its process and the address of the page."""
    words = " ".join(("--listen 127.0.0.1:0", *page_options))
    process = start("serve", *ANY_PORT, "--ui", words)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(b"headrace is listening on ")
        line = process.stdout.readline().decode()
        assert line.startswith("the page is at http://127.0.0.1:"), line
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def answers(address: str) -> bool:
    """Return whether somebody serves an address."""
    try:
        httpx.get(address, trust_env=False, timeout=10)
    except httpx.TransportError:
        return False
    return True


def seen(address: str) -> bool:
    """Return whether a page has seen its cluster."""
    answer = httpx.get(f"{address}api/overview", trust_env=False, timeout=60)
    return answer.status_code == 200 and bool(answer.json()["cluster_id"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_page_ends_with_its_broker(number: signal.Signals) -> None:
    with broker("--actions") as (process, address):
        assert process.stdout is not None
        token = process.stdout.readline().decode()
        assert token.startswith("to act on it, log in with the token in ")
        wait_until(lambda: seen(address), 60, "the page to see its broker", 0.1)
        asked = {"topic": "orders", "value": "x"}
        file = Path(token.split()[-1])  # a log may be read by others
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        header = {"Authorization": f"Bearer {file.read_text().strip()}"}
        answer = httpx.post(
            f"{address}api/actions/produce", json=asked, headers=header, trust_env=False, timeout=60
        )
        assert answer.status_code == 404  # the token is right, and there is no such topic
        process.send_signal(number)
        assert process.wait(30) == (0 if number is signal.SIGTERM else -number)
        wait_until(lambda: not answers(address), 30, "the page to end", 0.1)


def test_the_page_shows_its_broker_whatever_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write_properties(tmp_path / "other.properties", {"security.protocol": "SSL"})
    monkeypatch.setitem(ENVIRONMENT, "HEADRACE_CONFIG", str(file))
    with broker() as (_, address):
        wait_until(lambda: seen(address), 60, "the page to see its broker", 0.1)


def test_the_page_and_the_metrics_are_on_loopback_whatever_the_listeners_are() -> None:
    process = start(
        *("serve", "--ephemeral", "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:9092"),
        *("--ui=--listen 127.0.0.1:0", "--metrics-port", "0"),
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().decode() for _ in range(3)]
        assert lines[1].startswith("metrics are at http://127.0.0.1:")
        assert lines[2].startswith("the page is at http://127.0.0.1:")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("ui --listen 0.0.0.0:0", "give --tls and --login-to-view, or --open"),
        ("ui --listen :0 --actions --login-to-view", "give --tls, or --open"),
        (
            "serve --ephemeral --listen 127.0.0.1:0 --ui='--listen :0'",
            "give --tls and --login-to-view, or --open",
        ),
        (
            "serve --ephemeral --listen 127.0.0.1:0 --ui=--login-to-view",
            "--login-to-view takes --users, --token-file or --actions",
        ),
        (
            "serve --ephemeral --listen 127.0.0.1:0 --ui=--no-such-option",
            "headrace ui: unrecognized arguments: --no-such-option",
        ),
        (
            "serve --ephemeral --listen 127.0.0.1:0 --ui='-b other:9092'",
            "--ui takes no --bootstrap-server",
        ),
        (
            'serve --ephemeral --listen 127.0.0.1:0 --ui="\'"',
            "--ui: No closing quotation",
        ),
        (
            "ui --listen 127.0.0.1:0 --login-to-view",
            "--login-to-view takes --users, --token-file or --actions",
        ),
    ],
)
def test_options_without_which_a_page_is_not_served_are_named(command: str, missing: str) -> None:
    status, _, (line,) = run(*shlex.split(command))
    assert status == 2
    assert missing in line


def test_a_page_that_is_declared_open_is_named_in_a_warning() -> None:
    process = start("ui", "--listen", "0.0.0.0:0", "--open")
    assert process.stderr is not None
    try:
        assert b"the page is open to other machines without a login" in process.stderr.readline()
    finally:
        process.kill()
        process.communicate()


def test_a_secured_broker_takes_a_login_for_its_page() -> None:
    status, _, (line,) = run(
        *("serve", "--ephemeral", "--ui", "--listen", "SASL_PLAINTEXT://127.0.0.1:0")
    )
    assert status == 2
    assert "give --ui='--command-config FILE'" in line


def test_a_secured_broker_shows_what_the_user_may_see(
    headrace_secure_broker: SecureBroker, tmp_path: Path
) -> None:
    broker = headrace_secure_broker
    admin = AdminClient(broker.client_config())
    for made in admin.create_topics([NewTopic(one, 1) for one in ("orders", "secret")]).values():
        made.result(30)
    producer = Producer(broker.client_config())
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
    broker.allow("alice", "DESCRIBE", "TOPIC", "orders")
    config = {k: v for k, v in broker.client_config("alice").items() if k != "bootstrap.servers"}
    file = write_properties(tmp_path / "client.properties", config)
    options = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file))
    with served(tmp_path, *options, "--login-to-view") as page:
        with client(page) as anybody:
            assert anybody.get("/api/topics").status_code == 401
            answer = anybody.get("/topics?filter=x")
            assert (answer.status_code, answer.headers["location"]) == (
                303,
                "/login?back=%2Ftopics%3Ffilter%3Dx",
            )
            assert anybody.get("/api/records", params={"topic": "secret"}).status_code == 401
        with acting(page) as user:
            wait_until(
                lambda: user.get("/api/topics").status_code == 200, 60, "the page to see", 0.1
            )
            topics = user.get("/api/topics").json()["rows"]
            assert [one["topic"] for one in topics] == ["orders"]
            assert user.get("/api/records", params={"topic": "secret"}).status_code in (403, 404)
            answer = user.get("/records", params={"topic": "orders"})
            assert answer.status_code == 403
            assert "the user needs the permission READ on topic" in answer.text
            asked = {"topic": "orders", "value": "x", "dry_run": False}
            answer = user.post("/api/actions/produce", json=asked)
            assert answer.status_code == 502
            assert "Topic authorization failed" in answer.json()["error"]
