"""The broker under test, markers that follow from fixtures, and the time that each suite takes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest

from headrace.log_lines import LIMITER
from headrace.secure_broker import SecureBroker
from tests import logins
from tests.clients.confluent import admin
from tests.conformance.world import World
from tests.peer import KafkaPeer, jars
from tests.secure_kafka import SecureKafka
from tests.support import (
    COMMON_CONFIGS,
    ROOT,
    RUN_SEED,
    SHORT_LIVED_JVM,
    SHORT_LIVED_SPARK,
    HeadraceProcess,
    unique,
)

os.umask(0o077)
"""The files that tests write have passwords, and commands warn of those that others can read. Tests
of modes choose another.
"""

# How long an example takes says nothing on a busy machine.
hypothesis.settings.register_profile("headrace", deadline=None)
hypothesis.settings.load_profile("headrace")

JAVA_FIXTURES = frozenset({"kafka_server", "secure_kafka"})
BROKER_FIXTURES = JAVA_FIXTURES | {
    "bootstrap_servers",
    "headrace_beside",
    "headrace_broker",
    "headrace_secure_broker",
    "headrace_server",
    "secured",
    "small_server",
}
"""Fixtures that serve a broker on a socket: a test that uses one is marked `broker`."""

IMPURE = ("alone", "broker", "java", "spark", "slow", "kafka")
"""A test with none of these markers is marked `pure`."""

MEASURED = (ROOT / "tests/machines", ROOT / "tests/protocol")
"""`make check` measures coverage in these suites only, and only in tests that are not random:
measured in all tests it would double the time.
"""

SLOWEST_TESTS = 15

JAVA_MISSING = "Java is not installed (`make java` installs it)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target",
        choices=("headrace", "kafka"),
        default="headrace",
        help="the broker that real clients and conformance cases talk to (default: headrace)",
    )
    parser.addoption(
        "--listener",
        choices=("plaintext", "sasl_ssl"),
        default="plaintext",
        help="sasl_ssl: conformance cases log in over TLS, with ACLs that just suffice",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let SIGINT end commands under test, also when a shell that runs the tests in its background
    ignores it; let clients log in, if they shall; and let Spark and Apache Kafka start with less
    work.
    """
    if is_secured(config):
        logins.install()
    # also of commands and of examples
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED_JVM)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_SPARK)
    os.environ.setdefault("KAFKA_SHORT_LIVED", "1")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let a worker tell of its reruns at once: pytest-rerunfailures sends two small messages before
    each test, and by Nagle's algorithm the second one would wait 40 ms.
    """
    reruns = getattr(session.config, "failures_db", None)
    if hasattr(session.config, "workerinput") and hasattr(reruns, "sock"):
        reruns.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_report_header(config: pytest.Config) -> list[str]:
    running = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    broker = f"the one at {running}" if running else config.getoption("--target")
    return [f"broker under test: {broker}", f"HEADRACE_TEST_SEED={RUN_SEED}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_kafka = target_of(config) == "kafka"
    no_java = shutil.which("java") is None
    for item in items:
        if BROKER_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)
        if no_java and (item.get_closest_marker("java") or item.get_closest_marker("spark")):
            item.add_marker(pytest.mark.skip(reason=JAVA_MISSING))
        if item.get_closest_marker("kafka") and not on_kafka:
            item.add_marker(
                pytest.mark.skip(reason="only against a real Apache Kafka: --target kafka")
            )
        cannot = logins.why_not(item.path.stem, getattr(item, "originalname", item.name))
        if is_secured(config) and cannot is not None:
            item.add_marker(pytest.mark.skip(reason=f"with a login: {cannot}"))
        if not any(map(item.get_closest_marker, IMPURE)):
            item.add_marker(pytest.mark.pure)
        is_random = item.name == "runTest" or hypothesis.is_hypothesis_test(item.obj)
        if any(map(item.path.is_relative_to, MEASURED)) and not is_random:
            item.add_marker(pytest.mark.measured)
    if hasattr(config, "workerinput"):
        # Workers take files in this order: none is left alone with a long one at the end.
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        live = {item.path for item in items if not item.get_closest_marker("pure")}
        items.sort(key=lambda item: (item.path not in slow, item.path not in live))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the seconds of each suite and of the slowest tests, with setup and teardown."""
    by_test: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                by_test[report.nodeid] += report.duration
    by_suite: Counter[str] = Counter()
    tests_in: Counter[str] = Counter()
    for test, seconds in by_test.items():
        suite = test.partition("::")[0].rpartition("/")[0]
        by_suite[suite] += seconds
        tests_in[suite] += 1
    terminalreporter.section("seconds per suite")
    for suite, seconds in by_suite.most_common():
        terminalreporter.line(f"{seconds:8.1f}  {suite} ({tests_in[suite]} tests)")
    terminalreporter.section(f"slowest {SLOWEST_TESTS} tests")
    for test, seconds in by_test.most_common(SLOWEST_TESTS):
        terminalreporter.line(f"{seconds:8.1f}  {test}")


def target_of(config: pytest.Config) -> str:
    """Return "headrace" or "kafka": "kafka" also for HEADRACE_TEST_BOOTSTRAP, a broker that runs
    already.
    """
    return "kafka" if os.environ.get("HEADRACE_TEST_BOOTSTRAP") else config.getoption("--target")


def is_secured(config: pytest.Config) -> bool:
    """Return whether cases log in over TLS."""
    return bool(config.getoption("--listener") == "sasl_ssl")


def headrace_process(
    config: pytest.Config, data_dir: Path, configs: Mapping[str, str]
) -> HeadraceProcess:
    """Return the broker under test, which is not started yet."""
    if is_secured(config):
        return logins.SecuredProcess(data_dir, configs)
    return HeadraceProcess(data_dir, configs)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> str:
    """Return "headrace" or "kafka", for cases whose expectation differs (docs/differences.md)."""
    return target_of(request.config)


@pytest.fixture(scope="module", autouse=True)
def forgotten_admins() -> Iterator[None]:
    """Close admin clients after each module: one whose broker has ended would connect to whatever
    gets its port next.
    """
    yield
    admin.cache_clear()


@pytest.fixture(autouse=True)
def forgotten_lines() -> None:
    """Forget the lines of earlier tests, which would keep the same lines out of the log."""
    LIMITER.clear()


@pytest.fixture(scope="session")
def headrace_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceProcess]:
    """One `headrace serve` process for the whole run, with a data directory. Use unique names in
    it.
    """
    data_dir = tmp_path_factory.mktemp("headrace") / "data"
    with headrace_process(request.config, data_dir, COMMON_CONFIGS) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """One real Apache Kafka for the whole run."""
    if shutil.which("java") is None:
        pytest.skip(JAVA_MISSING)
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), COMMON_CONFIGS) as peer:
        # A new Kafka answers NOT_COORDINATOR until somebody has looked for a coordinator.
        world = World(peer.bootstrap_servers, "kafka")
        world.warm_up()
        world.close()
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


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, target: str) -> Iterator[dict[str, str]]:
    """The client configuration of a broker with SASL_SSL, in Kafka's names."""
    if target == "headrace":
        with SecureBroker() as broker:
            yield broker.client_config()
    else:
        secure: SecureKafka = request.getfixturevalue("secure_kafka")
        yield {
            "bootstrap.servers": secure.sasl_tls,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "s3cret",
            "ssl.ca.location": str(secure.folder / "ca.pem"),
        }


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
