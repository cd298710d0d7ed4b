"""Files with secrets: others who can read them are told, and errors have no secret."""

from __future__ import annotations

import io
import os
import re
from argparse import Namespace
from pathlib import Path

import pytest

from headrace.cli import secret_files
from headrace.cli.broker_process import new_users
from headrace.cli.errors import BadUsage
from headrace.cli.metrics_access import metrics_access
from headrace.cli.options import properties_file
from headrace.cli.ui.command import credentials_of_files
from headrace.net.scram_users import NewUser
from tests.cli.command import run


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_files, "_told", set())


def written(path: Path, text: str, mode: int) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604, 0o644])
def test_a_file_with_secrets_that_others_can_read_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    passwords = written(tmp_path / "client.properties", "sasl.password=4711\n", mode)
    for _ in range(2):
        properties_file(passwords)
    warning = f"warning: {passwords} may have secrets, and other users can read it: chmod 600 "
    told = f"{warning}{passwords}\n" if mode & 0o077 else ""
    assert capsys.readouterr().err == told
    assert "4711" not in told


@pytest.mark.parametrize(
    "line",
    [
        "sasl.jaas.config=x",
        "ssl.key.password=x",
        "listener.name.a.ssl.keystore.key=x",
        "sasl.oauthbearer.client.secret=x",
        "ssl.key.pem=x",
    ],
)
def test_keys_of_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    properties_file(written(tmp_path / "file", line, 0o644))
    assert "may have secrets" in capsys.readouterr().err


def test_a_file_without_secrets_may_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "bootstrap.servers=a:9092\nssl.keystore.location=broker.pem\nsecurity.protocol=SSL\n"
    properties_file(written(tmp_path / "file", line, 0o644))
    assert capsys.readouterr().err == ""


def test_files_of_users_and_tokens_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = written(tmp_path / "users", "ann:4711\n", 0o644)
    token = written(tmp_path / "token", "4711\n", 0o644)
    metrics = written(tmp_path / "metrics", "ann:4711\n", 0o644)
    scram = written(tmp_path / "scram", "SCRAM-SHA-512=[name=a,password=4711]", 0o644)
    credentials_of_files(Namespace(users=users, token_file=token, actions=False))
    metrics_access(Namespace(metrics_tls=None, metrics_users=metrics, allow_host=()))
    new_users(scram)
    told = re.findall("warning: (.+) may have secrets", capsys.readouterr().err)
    assert told == [str(path) for path in (users, token, metrics, scram)]


def test_a_password_may_have_any_characters_but_line_ends(tmp_path: Path) -> None:
    lines = "# who\r\nSCRAM-SHA-512=[name=a,password=4\u20287\x0b11]\r\n"
    (user,) = new_users(written(tmp_path / "scram", lines, 0o600))
    assert user.password == "4\u20287\x0b11"


def test_first_users_come_from_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# first\n\nSCRAM-SHA-512=[name=a,password=b,c]\nSCRAM-SHA-256=[name=d,password=e]\n"
    expected = [NewUser.parse(line) for line in text.splitlines()[2:]]
    assert new_users(written(tmp_path / "users", text, 0o600)) == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert new_users(Path("-")) == expected
    assert new_users(None) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "has no users"),
        ("# \n", "has no users"),
        ("\nSCRAM-SHA-1=[name=a,password=4711]", "line 2 of .*: expected MECHANISM="),
        ("SCRAM-SHA-512=[name=4711]", "line 1 of .*: a user needs name and password"),
        ("4711", "line 1 of .*: expected MECHANISM="),
    ],
)
def test_errors_about_first_users_have_no_password(tmp_path: Path, text: str, error: str) -> None:
    path = written(tmp_path / "users", text, 0o600)
    with pytest.raises(BadUsage, match=error) as raised:
        new_users(path)
    assert "4711" not in str(raised.value)


@pytest.mark.parametrize(
    "arguments", [["topics", "list", "--command-config"], ["serve", "--config"]]
)
@pytest.mark.parametrize("text", ["sasl.password=TOPSECRET\\users\n", "=TOPSECRET\n"])
def test_errors_about_properties_have_no_password(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    path = written(tmp_path / "file", f"a=b\n{text}", 0o600)
    status, output, errors = run(*arguments, str(path))
    assert (status, output, len(errors)) == (2, b"", 1)
    assert "line 2" in errors[0] and "TOPSECRET" not in errors[0]


def test_files_of_commands_are_for_their_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        data_dir = tmp_path / "made" / "data"
        run("serve", "--data-dir", str(data_dir), "--listen", "256.1.1.1:0")
    finally:
        os.umask(before)
    made = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert len(made) > 2
    assert not [path for path in made if path.stat().st_mode & 0o077]
