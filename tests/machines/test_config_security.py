"""Settings that promise security: refused while they are not served."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace import ConfigError
from headrace.broker.config import rules
from headrace.broker.config.broker_config import Config
from headrace.broker.config.keys import config_keys
from headrace.protocol.errors import ErrorCode

REFUSED = [
    ("principal.builder.class", "com.example.Builder"),
    ("sasl.kerberos.service.name", "kafka"),
    ("security.providers", "com.example.Provider"),
    ("ssl.engine.factory.class", "com.example.Engines"),
    ("ssl.provider", "BCFIPS"),
    ("delegation.token.secret.key", "s3cret"),
    ("client.quota.callback.class", "com.example.Quotas"),
    ("quota.producer.default", "1048576"),
    ("quota.consumer.default", "1048576"),
    ("create.topic.policy.class.name", "com.example.Policy"),
    ("alter.config.policy.class.name", "com.example.Policy"),
    ("listener.name.external.principal.builder.class", "x"),
    ("listener.name.external.ssl.provider", "x"),
    ("listener.name.external.ssl.client.atuh", "required"),
    ("listener.name.external.plain.sasl.jaas.confg", "x"),
    ("listener.name.external.max.connections.per.ip", "5"),
]
ACCEPTED = [
    ("sasl.login.retry.backoff.ms", "100"),
    ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
    ("security.inter.broker.protocol", "SASL_SSL"),
    ("listener.name.external.tcp.keepalive", "x"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_setting_for_security_that_is_not_served_refuses_the_start(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config({"num.partitions": "3", name: value})
    message = str(refused.value)
    assert message.startswith(name)
    assert "Remove" in message
    assert "s3cret" not in message
    assert "\n" not in message


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_a_setting_that_promises_nothing_is_accepted(name: str, value: str) -> None:
    assert Config({name: value}).without_effect == (name,)


def test_every_default_is_accepted() -> None:
    for key in config_keys("broker").values():
        if key.default is not None and key.name not in ("node.id", "broker.id"):
            Config({key.name: key.default})


@pytest.mark.parametrize(
    "setting",
    [
        ("principal.builder.class", "com.example.Builder"),
        ("listener.name.external.max.connections.per.ip", "10"),
    ],
)
def test_such_a_setting_is_refused_at_run_time_too(setting: tuple[str, str]) -> None:
    refusal = rules.check_broker_changes("1", dict([setting]), Config())
    assert refusal is not None
    assert refusal.code == ErrorCode.INVALID_REQUEST
    assert refusal.message is not None
    assert refusal.message.startswith(setting[0])


def test_a_default_is_accepted_at_run_time() -> None:
    assert rules.check_broker_changes("1", {"ssl.client.auth": "none"}, Config()) is None


class Stored:
    """Configs that an earlier version has accepted."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        self._configs = configs

    def configs(self, kind: str, name: str) -> Mapping[str, str]:
        return self._configs if (kind, name) == ("broker", "") else {}


def test_stored_settings_are_named_and_start() -> None:
    """No broker could remove them if they refused the start."""
    config = Config()
    assert list(config.warnings([])) == []
    config.attach(
        Stored({"principal.builder.class": "com.example.B", "log.retention.ms": "5"}).configs
    )
    (warning,) = config.warnings([])
    assert warning.startswith("principal.builder.class")


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set.",
        ),
        (
            {"max.connections.per.ip.overrides": "127.0.0.1"},
            "Invalid value 127.0.0.1 for configuration max.connections.per.ip.overrides: expected "
            "ADDRESS:NUMBER,...",
        ),
        (
            {"max.connections.per.ip.overrides": "127.0.0.1:x"},
            "Invalid value 127.0.0.1:x for configuration max.connections.per.ip.overrides: "
            "expected ADDRESS:NUMBER,...",
        ),
        (
            {"max.connections.per.ip.overrides": "127.0.0.1:1,,::1:2"},
            "Invalid value 127.0.0.1:1,,::1:2 for configuration max.connections.per.ip.overrides: "
            "expected ADDRESS:NUMBER,...",
        ),
        (
            {"max.connections.per.ip.overrides": "a b:3"},
            "max.connections.per.ip.overrides contains invalid addresses : a b",
        ),
    ],
)
def test_limits_of_connections_are_validated(configs: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(configs)
    assert str(refused.value) == message


def test_limits_of_connections_have_an_effect() -> None:
    given = {"max.connections.per.ip": "3", "max.connections.per.ip.overrides": "::1:5,localhost:7"}
    assert Config(given).without_effect == ()
