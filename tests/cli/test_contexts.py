"""`headrace context`: connections with names."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.cli.client_options import client_config
from headrace.cli.main import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a file of its own, with the contexts ``prod`` (with a client id) and ``test``."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("BOOTSTRAP_SERVERS", "CONFIG", "CONTEXT"):
        monkeypatch.delenv(f"HEADRACE_{name}", raising=False)
    (tmp_path / "prod.properties").write_text("client.id=prod\n")
    monkeypatch.chdir(tmp_path)
    assert (
        main(["context", "add", "prod", "-b", "prod:1", "--command-config", "prod.properties"]) == 0
    )
    assert main(["context", "add", "test", "-b", "test:1"]) == 0
    return tmp_path


def connection(**options: object) -> str:
    """Return the address and the client id that options give."""
    unset = dict.fromkeys(("bootstrap_server", "command_config", "context"))
    config = client_config(Namespace(**{**unset, **options}))
    return " ".join(filter(None, (config["bootstrap.servers"], config.get("client.id"))))


def test_the_life_of_a_context(capsys: Captured) -> None:
    assert connection() == "127.0.0.1:9092"
    assert main(["context", "use", "prod"]) == 0
    assert connection() == "prod:1 prod"
    capsys.readouterr()
    assert main(["context", "list", "-o", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["context"], first["current"], second["current"]) == ("prod", True, False)
    assert Path(first["command_config"]).is_absolute()
    assert main(["context", "remove", "prod"]) == 0
    assert connection() == "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("environment", "options", "expected"),
    [
        ({}, {"context": "test"}, "test:1"),
        ({"HEADRACE_CONTEXT": "test"}, {}, "test:1"),
        ({"HEADRACE_CONTEXT": "test"}, {"context": "prod"}, "prod:1 prod"),
        ({"HEADRACE_BOOTSTRAP_SERVERS": "env:1"}, {"context": "prod"}, "prod:1 prod"),
        ({"HEADRACE_BOOTSTRAP_SERVERS": ""}, {}, "prod:1 prod"),
        ({}, {"context": "prod", "bootstrap_server": "other:1"}, "other:1 prod"),
        # The credentials of the current context go to no other server.
        ({}, {"bootstrap_server": "other:1"}, "other:1"),
        ({"HEADRACE_BOOTSTRAP_SERVERS": "env:1"}, {}, "env:1"),
    ],
)
def test_what_comes_before_the_current_context(
    environment: dict[str, str],
    options: dict[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main(["context", "use", "prod"])
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert connection(**options) == expected


def test_a_user_without_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> NoReturn:
        raise KeyError(uid)

    main(["context", "use", "prod"])
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert connection() == "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("context use prdo", "no context 'prdo': did you mean prod?"),
        ("context remove x", "no context 'x': headrace context list shows them"),
        ("topics list --context prdo", "no context 'prdo': did you mean prod?"),
        ("topics list --context=", "no context '': headrace context list shows them"),
        ("context add x -b x:1 --command-config none", "none is not a file"),
        ("context add x", "the following arguments are required: -b/--bootstrap-server"),
    ],
)
def test_bad_usage_is_one_line(line: str, complaint: str, capsys: Captured) -> None:
    main(["context", "use", "prod"])
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and complaint in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[]", "[" * 100_000, "\0"),
        '{"named": {"a": 5}, "current": null}',
        '{"named": {}, "current": 7}',
        '{"named": {}, "current": ["a"]}',
        '{"named": {"a": {"bootstrap_servers": 5}}, "current": "a"}',
        '{"named": {"a": {"bootstrap_servers": null}}, "current": "a"}',
        '{"named": {"a": {"bootstrap_servers": "a:1", "command_config": {}}}, "current": "a"}',
    ],
)
def test_a_file_of_something_else(content: str, config_home: Path, capsys: Captured) -> None:
    (config_home / "headrace/contexts.json").write_text(content)
    assert main(["context", "list"]) == 2
    assert "is not what headrace context writes: delete it" in capsys.readouterr().err


def test_a_file_that_cannot_be_written(config_home: Path, capsys: Captured) -> None:
    (config_home / "headrace/contexts.new").mkdir()
    assert main(["context", "use", "prod"]) == 1
    assert "contexts.json: Is a directory" in capsys.readouterr().err
