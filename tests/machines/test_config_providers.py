"""Variables in a broker's configuration, and the config providers that replace them.

Apache Kafka 4.4 gives the same values in each example of :func:`test_a_variable_is_replaced`; where
nothing replaces a variable, it keeps the text.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.config import rules
from headrace.broker.config.broker_config import Config
from headrace.broker.config.providers import MAX_PROVIDED_BYTES, has_variable, resolve
from headrace.protocol.errors import ConfigError, ErrorCode

CLASS = "org.apache.kafka.common.config.provider.{}ConfigProvider"
ENVIRONMENT = {
    "NAME": "3",
    "OTHER": "x",
    "NESTED": "${env:NAME}",
    "EMPTY": "",
    "a": "A",
    "": "E",
}
PROVIDERS = {
    "config.providers": "env, file,dir",
    "config.providers.env.class": CLASS.format("EnvVar"),
    "config.providers.file.class": CLASS.format("File"),
    "config.providers.dir.class": CLASS.format("Directory"),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", ENVIRONMENT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folders for what may be read and what must not be; links from one to the other."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (tmp_path / "inside-not").mkdir()
    for place, text in ((inside, "one"), (outside, "s3cret"), (tmp_path / "inside-not", "s3cret")):
        (place / "key").write_text(f"{text}\n")
        (place / "some.properties").write_text(f"# a file\nkey = {text}\n")
    (inside / "..data").mkdir()
    (inside / "..data" / "mounted").write_text("m")
    (inside / "mounted").symlink_to(Path("..data") / "mounted")
    (inside / "link").symlink_to(outside / "key")
    (inside / "link.properties").symlink_to(outside / "some.properties")
    (inside / "links").symlink_to(outside)
    (inside / "large").write_bytes(b"a" * (MAX_PROVIDED_BYTES + 1))
    (inside / "binary").write_bytes(b"\xff")
    os.mkfifo(inside / "pipe")
    return tmp_path


def broken(text: str, folder: Path, configs: Mapping[str, str] | None = None) -> str:
    """Return why nothing replaces the variable of a value, with files limited to ``inside``."""
    limits = {
        f"config.providers.{name}.param.allowed.paths": str(folder / "inside")
        for name in ("file", "dir")
    }
    settings = {**PROVIDERS, **limits, **(configs or {}), "broker.rack": text}
    (problem,) = resolve(settings).problems
    assert "s3cret" not in problem
    return problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:NAME}", "3"),
        ("a${env:NAME}b${env:OTHER}${env:EMPTY}c", "a3bxc"),
        ("${file:inside/some.properties:key}", "one"),
        ("${dir:inside:key}", "one\n"),
        ("${dir:inside:mounted}", "m"),
        ("$env:NAME ${NAME} {env:NAME}", "$env:NAME ${NAME} {env:NAME}"),
    ],
)
def test_a_variable_is_replaced(
    folder: Path, text: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    resolved = resolve({**PROVIDERS, "broker.rack": text})
    assert resolved.problems == ()
    assert resolved.values["broker.rack"] == value


def test_what_a_provider_gives_is_not_replaced_again() -> None:
    resolved = resolve({**PROVIDERS, "broker.rack": "${env:NESTED}"})
    assert resolved.values["broker.rack"] == "${env:NAME}"
    assert resolved.problems == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${env:MISSING}", "the environment of the broker does not have it"),
        ("${env:a:NAME}", "environment variables have no path"),
        ("${vault:secret}", "name vault in config.providers"),
        ("${:x}", "nothing replaces"),
        ("${file:key}", "it has no path"),
        ("${dir:key}", "it has no path"),
        ("${file:IN/some.properties:missing}", "does not have that key"),
        ("${file:IN/none:key}", "No such file"),
        ("${file:IN/../outside/some.properties:key}", "not within allowed.paths"),
        ("${file:IN-not/some.properties:key}", "not within allowed.paths"),
        ("${file:IN/link.properties:key}", "not within allowed.paths"),
        ("${file:/etc/passwd:root}", "not within allowed.paths"),
        ("${file:IN/a\0b:key}", "null character"),
        ("${file:IN:key}", "cannot read"),
        ("${file:IN/binary:key}", "is not UTF-8"),
        ("${dir:IN:none}", "No such file"),
        ("${dir:IN:link}", "not within allowed.paths"),
        ("${dir:IN/links:key}", "not within allowed.paths"),
        ("${dir:IN:../outside/key}", "must be the name of a file"),
        ("${dir:IN:..}", "must be the name of a file"),
        ("${dir:IN:pipe}", "is no regular file"),
        ("${dir:IN:..data}", "cannot read"),
        ("${dir:IN:large}", "is larger than"),
        ("${dir:/dev:zero}", "not within allowed.paths"),
    ],
)
def test_a_variable_that_nothing_replaces_is_a_problem(
    folder: Path, text: str, reason: str
) -> None:
    problem = broken(text.replace("IN", str(folder / "inside")), folder)
    assert problem.startswith("broker.rack: ")
    assert reason in problem


def test_a_variable_in_a_variable_is_a_problem(folder: Path) -> None:
    for text in ("${env:${env:NAME}}", "${file:${env:NAME}/x:key}"):
        assert "a variable in a variable" in broken(text, folder)


def test_many_beginnings_of_variables_take_linear_time() -> None:
    """The texts of AlterConfigs are searched, too: this one would take hours."""
    assert not has_variable("${a:b:" * 1_000_000)


def test_a_socket_and_a_device_are_not_read(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "inside" / "socket"))
        assert "cannot read" in broken(f"${{dir:{folder}/inside:socket}}", folder)
    settings = {**PROVIDERS, "broker.rack": "${dir:/dev:zero}"}
    assert "is no regular file" in resolve(settings).problems[0]


@pytest.mark.parametrize(("pattern", "is_allowed"), [("NA.*", True), ("NA", False), (".*E", True)])
def test_the_environment_is_limited_to_names_that_match(pattern: str, is_allowed: bool) -> None:
    """As a whole, as in Apache Kafka."""
    limit = {"config.providers.env.param.allowlist.pattern": pattern}
    resolved = resolve({**PROVIDERS, **limit, "broker.rack": "${env:NAME}"})
    assert (resolved.problems == ()) is is_allowed


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"config.providers": "env"}, "config.providers.env.class must be one of"),
        (
            {"config.providers": "v", "config.providers.v.class": "com.example.Vault"},
            "config.providers.v.class must be one of",
        ),
        ({"config.providers.env.class": CLASS.format("EnvVar")}, "does not name"),
        (
            {**PROVIDERS, "config.providers.file.param.allowed.path": "/"},
            "config.providers.file.param.allowed.path is no config",
        ),
        ({**PROVIDERS, "config.providers.dir.param.allowed.paths": "a"}, "must be absolute"),
        ({**PROVIDERS, "config.providers.dir.param.allowed.paths": "/none"}, "and exist"),
        ({**PROVIDERS, "config.providers.env.param.allowlist.pattern": "("}, "regular expression"),
        ({**PROVIDERS, "config.providers.env.class": "${env:NAME}"}, "cannot have a variable"),
        ({"broker.rack": "${env:NAME}"}, "config.providers.env.class, such as org.apache"),
        ({"num.partitions": "${env:NAME}"}, "config.providers.env.class, such as org.apache"),
    ],
)
def test_a_broker_does_not_start_with_a_provider_that_it_does_not_have(
    configs: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(configs)
    assert reason in str(refused.value)
    assert ";" not in str(refused.value)


def test_no_message_has_the_value_of_a_provider(folder: Path) -> None:
    variable = f"${{dir:{folder}/outside:key}}"
    with pytest.raises(ConfigError) as refused:
        Config({**PROVIDERS, "num.partitions": variable, "log.retention.ms": variable})
    assert str(refused.value) == (
        "Invalid value from a provider for configuration num.partitions; "
        "Invalid value from a provider for configuration log.retention.ms"
    )


@pytest.mark.parametrize(
    "name", ["log.cleanup.policy", "listener.name.a.plain.sasl.jaas.config", "num.io.threads"]
)
def test_a_variable_is_refused_at_run_time(name: str) -> None:
    """Whoever may change configs must not read the files and the environment of the broker."""
    refusal = rules.check_broker_changes("1", {name: "x${env:HOME}"}, Config())
    assert refusal is not None
    assert refusal.code == ErrorCode.INVALID_REQUEST
    assert f"[{name}]" in (refusal.message or "")


@given(st.text(alphabet="${}:ab/.\n", max_size=30))
def test_any_text_is_replaced_or_a_problem(text: str) -> None:
    resolved = resolve({**PROVIDERS, "broker.rack": text})
    assert resolved.problems or has_variable(text) == ("broker.rack" in resolved.replaced)
