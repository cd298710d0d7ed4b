"""Listeners: names, addresses, protocols, and the configs of one listener."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace import ConfigError
from headrace.broker.config import rules
from headrace.broker.config.broker_config import Config
from headrace.net.listeners import Listener
from headrace.protocol.errors import ErrorCode


def listeners(text: str, **configs: str) -> list[Listener]:
    given = {name.replace("_", "."): value for name, value in configs.items()}
    return list(Config({"listeners": text, **given}).listeners("this.host"))


def test_names_and_addresses() -> None:
    first, second = listeners(
        "plaintext://127.0.0.1:9092, INSIDE://[::1]:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,Inside:plaintext",
        advertised_listeners="INSIDE://broker.example:9999",
    )
    assert first.advertised == "PLAINTEXT://127.0.0.1:9092"
    assert (second.name, second.host, second.port) == ("INSIDE", "::1", 0)
    assert second.advertised == "INSIDE://broker.example:9999"


def test_a_listener_on_all_addresses_advertises_this_host() -> None:
    (one,) = listeners("PLAINTEXT://:9092")
    assert (one.host, one.advertised) == ("", "PLAINTEXT://this.host:9092")


def test_listeners_of_controllers_are_left_out() -> None:
    (one,) = listeners(
        "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        controller_listener_names="CONTROLLER",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    )
    assert one.name == "PLAINTEXT"


def test_no_listeners_are_configured_by_default() -> None:
    assert Config().listeners("this.host") == ()


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"listeners": "localhost:9092"}, "Unable to parse localhost:9092 to a broker endpoint"),
        ({"listeners": "PLAINTEXT://localhost"}, "Unable to parse"),
        ({"listeners": "PLAINTEXT://localhost:99999"}, "Unable to parse"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "Unable to parse"),
        ({"listeners": "OUTSIDE://localhost:9092"}, "No security protocol defined for listener"),
        (
            {"listeners": "PLAINTEXT://localhost:1,PLAINTEXT://localhost:2"},
            "Each listener must have a different name",
        ),
        (
            {
                "listeners": "PLAINTEXT://localhost:1,B://localhost:1",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "Each listener must have a different port",
        ),
        (
            {
                "listeners": "PLAINTEXT://localhost:1",
                "advertised.listeners": "PLAINTEXT://a:1,SSL://a:2",
            },
            "must be equal to or a subset of the ones defined in listeners. Found SSL",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "set advertised.listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
        ({"listener.security.protocol.map": "A:TLS"}, "maps A to TLS"),
        ({"listener.security.protocol.map": "A"}, "maps A to nothing"),
        ({"listener.security.protocol.map": "A:SSL,,B:SSL"}, "maps  to nothing"),
    ],
)
def test_errors(configs: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(configs).listeners("this.host")


def test_a_config_of_one_listener_precedes() -> None:
    config = Config(
        {
            "ssl.client.auth": "requested",
            "listener.name.outside.ssl.client.auth": "required",
            "listener.name.OUTSIDE.scram-sha-256.connections.max.reauth.ms": "5",
            "listener.name.outside.connections.max.reauth.ms": "7",
        }
    )
    assert config.listener_value("OUTSIDE", "ssl.client.auth") == "required"
    assert config.listener_value("INSIDE", "ssl.client.auth") == "requested"
    reauth = "connections.max.reauth.ms"
    assert config.listener_value("OUTSIDE", reauth, "SCRAM-SHA-256") == 5
    assert config.listener_value("OUTSIDE", reauth, "PLAIN") == 7
    assert config.listener_value("INSIDE", reauth, "PLAIN") == 0


def test_a_config_of_one_listener_is_validated() -> None:
    with pytest.raises(ConfigError, match="String must be one of"):
        Config({"listener.name.outside.ssl.client.auth": "perhaps"})


def test_configs_of_listeners_at_run_time() -> None:
    config = Config()
    name = "listener.name.outside.ssl.client.auth"
    assert rules.check_broker_changes("1", {name: "required"}, config) is None
    refusal = rules.check_broker_changes("1", {name: "perhaps"}, config)
    assert refusal is not None
    assert refusal.code == ErrorCode.INVALID_REQUEST
    for name in ("listeners", "listener.security.protocol.map"):
        refusal = rules.check_broker_changes("1", {name: "PLAINTEXT:PLAINTEXT"}, config)
        assert refusal is not None
        assert refusal.code == ErrorCode.INVALID_REQUEST


def test_a_configuration_with_changes() -> None:
    config = Config({"listener.name.outside.ssl.client.auth": "required"})
    changed = config.with_changes({"listener.name.outside.ssl.client.auth": "none"})
    assert changed.listener_value("outside", "ssl.client.auth") == "none"
    assert config.listener_value("outside", "ssl.client.auth") == "required"
