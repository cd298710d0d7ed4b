"""Each client and command names the wrong setting, or the missing permission, on one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import headrace
from headrace import ShareConsumer
from headrace.admin import AdminClient
from headrace.cli.main import main
from headrace.client import AuthenticationFailed, ClientError, OrderedConsumer
from headrace.client.config import check_access, read_config
from headrace.secure_broker import SecureBroker
from tests.support import write_properties

pytestmark = pytest.mark.broker

Config = dict[str, str]
TOPIC, OTHER = "orders", "returns"
BOB = "bob"
"""A user whom nothing is allowed."""


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureBroker]:
    with SecureBroker(("alice", BOB, "carol")) as secure:
        with AdminClient(secure.client_config()) as admin:
            for future in admin.create_topics([NewTopic(TOPIC), NewTopic(OTHER)]).values():
                future.result(30)
        yield secure


def _plaintext(config: Config) -> Config:
    return {"bootstrap.servers": config["bootstrap.servers"]}


def _without_login(config: Config) -> Config:
    return {name: value for name, value in config.items() if "sasl" not in name} | {
        "security.protocol": "SSL"
    }


def _strange_ca(config: Config) -> Config:
    return {name: value for name, value in config.items() if name != "ssl.ca.location"}


MISTAKES: Mapping[str, tuple[Callable[[Config], Config], str]] = {
    "wrong password": (
        lambda config: config | {"sasl.password": "guess"},
        "refuses the login of 'admin': Authentication failed during authentication due to invalid "
        "credentials with SASL mechanism SCRAM-SHA-512: check sasl.username and sasl.password",
    ),
    "untrusted certificate": (
        _strange_ca,
        "set ssl.ca.location to the certificate of the authority that has signed it",
    ),
    "plaintext on a TLS port": (
        _plaintext,
        "speaks TLS, and security.protocol is without: set it to SSL or SASL_SSL",
    ),
    "no login": (
        _without_login,
        "requires a login: set security.protocol to SASL_SSL, and sasl.mechanism to "
        "SCRAM-SHA-256 or SCRAM-SHA-512",
    ),
}

mistakes = pytest.mark.parametrize("mistake", MISTAKES)


def mistaken(broker: SecureBroker, mistake: str) -> tuple[Config, str]:
    """Return a configuration with one mistake, and the text that names it."""
    change, text = MISTAKES[mistake]
    return change(broker.client_config()), text


# Our own clients ----------------------------------------------------------------------------------


@mistakes
def test_admin(broker: SecureBroker, mistake: str) -> None:
    """Calls over our own connections, of librdkafka, and those that wait."""
    config, text = mistaken(broker, mistake)
    with AdminClient({"log_level": 0, **config}) as admin:
        for call in (
            lambda: admin.list_all_groups().result(30),
            lambda: admin.create_topics([NewTopic("t")])["t"].result(30),
            lambda: admin.list_topics(),
        ):
            with pytest.raises(KafkaException) as refused:
                call()
            assert text in refused.value.args[0].str()


@mistakes
def test_ordered_consumer(broker: SecureBroker, mistake: str) -> None:
    config, text = mistaken(broker, mistake)
    with pytest.raises(ClientError) as refused:
        OrderedConsumer({"log_level": 0, "group.id": "g", **config}, [TOPIC])
    assert text in str(refused.value)


@mistakes
def test_share_consumer(broker: SecureBroker, mistake: str) -> None:
    config, text = mistaken(broker, mistake)

    async def join() -> None:
        async with ShareConsumer({"group.id": "g", **config}, [TOPIC]):
            pass

    with pytest.raises(ClientError) as refused:
        asyncio.run(join())
    assert text in str(refused.value)


def test_a_password_that_is_changed_meanwhile() -> None:
    """The consumer learns it when its session ends, and does not try for ever."""
    with SecureBroker(config={"connections.max.reauth.ms": 3000}) as broker:
        with AdminClient(broker.client_config()) as admin:
            admin.create_topics([NewTopic(TOPIC)])[TOPIC].result(30)
        broker.allow("alice", "READ", "TOPIC", TOPIC)
        broker.allow("alice", "READ", "GROUP", "g")
        # librdkafka waits for the end of its session when it closes.
        short = {"log_level": 0, "group.id": "g", "session.timeout.ms": 6000}
        conf = {**short, **broker.client_config("alice")}
        with OrderedConsumer(conf, [TOPIC]) as consumer:
            assert consumer.poll(0.1) is None
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            change = UserScramCredentialUpsertion("alice", info, b"another")
            with AdminClient(broker.client_config()) as admin:
                admin.alter_user_scram_credentials([change])["alice"].result(30)
            with pytest.raises(AuthenticationFailed, match=r"check sasl\.username"):
                consumer.poll(60)


def test_wishes_for_tls_at_a_port_without_it() -> None:
    with headrace.Broker() as broker:
        config = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SSL"}
        with pytest.raises(ClientError, match=r"does not speak TLS, .* set it to PLAINTEXT"):
            asyncio.run(check_access(read_config(config)))
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
        config |= {"security.protocol": "SASL_PLAINTEXT", **login}
        with pytest.raises(ClientError, match=r"takes no logins: set security\.protocol to PLAIN"):
            asyncio.run(check_access(read_config(config)))


# Permissions --------------------------------------------------------------------------------------


def test_permissions_of_admin(broker: SecureBroker) -> None:
    with AdminClient(broker.client_config(BOB)) as admin:
        for call, text in (
            (lambda: admin.describe_groups(["g"])["g"], "DESCRIBE on group 'g'"),
            (lambda: admin.delete_share_groups(["g"])["g"], "DESCRIBE on group 'g'"),
        ):
            with pytest.raises(KafkaException) as refused:
                call().result(30)
            assert f"the user needs the permission {text}" in refused.value.args[0].str()


def test_permissions_of_consumers(broker: SecureBroker) -> None:
    """Each next permission is named. The groups have the names of their users."""

    def ordered(user: str) -> None:
        with OrderedConsumer(broker.client_config(user) | {"group.id": user}, [OTHER]) as consumer:
            consumer.poll(20)

    def shared(user: str) -> None:
        async def read() -> None:
            config = broker.client_config(user) | {"group.id": user}
            async with ShareConsumer(config, [OTHER]) as queue:
                while True:
                    await queue.poll()

        asyncio.run(read())

    for scene, user, steps in (
        (ordered, "alice", ("DESCRIBE TOPIC", "READ GROUP", "READ TOPIC")),
        (shared, "carol", ("DESCRIBE TOPIC", "DESCRIBE GROUP", "READ GROUP", "READ TOPIC")),
    ):
        for step in steps:
            operation, kind = step.split()
            name = OTHER if kind == "TOPIC" else user
            with pytest.raises((ClientError, KafkaException)) as refused:
                scene(user)
            needs = f"needs the permission {operation} on {kind.lower()} '{name}'"
            assert needs in str(refused.value)
            broker.allow(user, operation, kind, name)


# Commands -----------------------------------------------------------------------------------------

COMMANDS = (
    "groups list",
    "groups describe g",
    "acls list",
    "users list",
    "lag show",
    f"consume {TOPIC}",
    f"consume {TOPIC} --share-group g",
    f"produce {TOPIC}",
    f"perf share-consume {TOPIC}",
    "dlq list",
    "lag history",
)


def run(
    command: str, config: Mapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Run a command with ``--command-config``; return its status and the last line of stderr."""
    file = write_properties(tmp_path / "client.properties", config)
    servers = config["bootstrap.servers"]
    status = main([*command.split(), "--bootstrap-server", servers, "--command-config", str(file)])
    errors = capsys.readouterr().err.splitlines()
    lines = [line for line in errors if not line.endswith(" records")]
    assert len(lines) <= 1, lines
    return status, "".join(lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(
    broker: SecureBroker, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mistake in MISTAKES:
        config, text = mistaken(broker, mistake)
        status, line = run(command, config, tmp_path, capsys)
        assert (status, text in line) == (1, True), (mistake, line)


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        ("groups describe g", "DESCRIBE on group 'g'"),
        ("groups reset g --type share --topic t --to latest --yes", "DESCRIBE on group 'g'"),
        ("configs describe group g", "DESCRIBE_CONFIGS on group 'g'"),
        ("quotas list", "DESCRIBE_CONFIGS on the cluster"),
        ("acls list", "DESCRIBE on the cluster"),
        ("lag show", "DESCRIBE on the cluster, or on each group"),
        ("lag show g", "DESCRIBE on group 'g'"),
        (
            "acls add User:x --operation read --topic t",
            "ALTER on the cluster",
        ),
        ("users list", "DESCRIBE on the cluster"),
        (f"consume {TOPIC}", f"DESCRIBE on topic '{TOPIC}'"),
        (f"consume {TOPIC} --share-group g", f"DESCRIBE on topic '{TOPIC}'"),
        (f"produce {TOPIC}", f"DESCRIBE on topic '{TOPIC}'"),
        (f"perf share-consume {TOPIC}", f"DESCRIBE on topic '{TOPIC}'"),
        (f"topics describe {TOPIC}", f"DESCRIBE on topic '{TOPIC}'"),
        (f"topics delete {TOPIC} --yes", f"DESCRIBE on topic '{TOPIC}'"),
        (f"dlq show {TOPIC}", f"DESCRIBE on topic '{TOPIC}'"),
    ],
)
def test_permissions_of_commands(
    broker: SecureBroker,
    command: str,
    needs: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, line = run(command, broker.client_config(BOB), tmp_path, capsys)
    assert status == 1
    assert f"the user needs the permission {needs}" in line


def test_acls_of_a_broker_without_an_authorizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with headrace.Broker() as open_to_all:
        config = {"bootstrap.servers": open_to_all.bootstrap_servers}
        status, line = run("acls list", config, tmp_path, capsys)
    assert status == 1
    assert "No Authorizer is configured" in line
