"""The broker under test, and what a machine must have for the suites that need more than Python."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.confluent import admin
from tests.peer import KafkaPeer, jars
from tests.secure_kafka import SecureKafka
from tests.support import COMMON_CONFIGS, HeadraceProcess, unique

SPARK_LOST_A_WORKER = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to begin, which cannot be set; and it takes whoever
connects to the port in that time for that process. Neither is anything of ours, so such a test has
a second try, which the summary shows."""

JAVA_MISSING = "Java is not installed (`make java` installs it)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target",
        choices=("headrace", "kafka"),
        default="headrace",
        help="the broker that real clients and conformance cases talk to (default: headrace)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    running = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    return (
        f"broker under test: {f'the one at {running}' if running else config.getoption('--target')}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_kafka = target_of(config) == "kafka"
    no_java = shutil.which("java") is None
    for item in items:
        if no_java and (item.get_closest_marker("java") or item.get_closest_marker("spark")):
            item.add_marker(pytest.mark.skip(reason=JAVA_MISSING))
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=[SPARK_LOST_A_WORKER]))
        if item.get_closest_marker("kafka") and not on_kafka:
            item.add_marker(
                pytest.mark.skip(reason="only against a real Apache Kafka: --target kafka")
            )


def target_of(config: pytest.Config) -> str:
    """What is under test: "kafka" also when HEADRACE_TEST_BOOTSTRAP points at a broker that already
    runs.
    """
    return "kafka" if os.environ.get("HEADRACE_TEST_BOOTSTRAP") else config.getoption("--target")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> str:
    """ "headrace" or "kafka": for the few cases whose expectation differs on purpose
    (docs/differences.md).
    """
    return target_of(request.config)


@pytest.fixture(scope="module", autouse=True)
def forgotten_admins() -> Iterator[None]:
    """A client whose broker has ended knocks at its port for ever, and whoever gets the port next
    is not asked.
    """
    yield
    admin.cache_clear()


@pytest.fixture(scope="session")
def headrace_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceProcess]:
    """One `headrace serve` process for the whole run, with a data directory. Use unique names in
    it.
    """
    with HeadraceProcess(tmp_path_factory.mktemp("headrace") / "data", COMMON_CONFIGS) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """One real Apache Kafka for the whole run."""
    if shutil.which("java") is None:
        pytest.skip(JAVA_MISSING)
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), COMMON_CONFIGS) as peer:
        yield peer


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """A real Apache Kafka with listeners for TLS and logins, for the whole run."""
    if shutil.which("java") is None:
        pytest.skip(JAVA_MISSING)
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: it makes the certificates")
    with SecureKafka(tmp_path_factory.mktemp("secure")) as secure:
        yield secure


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """host:port of the broker under test, chosen by --target or HEADRACE_TEST_BOOTSTRAP."""
    running = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    if running:
        return running
    server = request.getfixturevalue(f"{target_of(request.config)}_server")
    return str(server.bootstrap_servers)


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """The folder of Apache Kafka's jars: Java clients and tools."""
    if shutil.which("java") is None:
        pytest.skip(JAVA_MISSING)
    return jars()


@pytest.fixture
def topic_name() -> str:
    """A topic name that nobody else uses; the topic is not created."""
    return unique("topic")


@pytest.fixture
def group_id() -> str:
    """A group id that nobody else uses."""
    return unique("group")
