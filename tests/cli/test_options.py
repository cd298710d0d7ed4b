"""Addresses, settings and properties files, and the names of commands."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.commands import COMMANDS, load
from headrace.cli.errors import BadUsage
from headrace.cli.main import main, parsed
from headrace.cli.nouns import Noun, Verb
from headrace.cli.options import Address, address, properties_file, setting
from headrace.properties import properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:9092", Address("::1", 9092)),
    ],
)
def test_addresses_are_read_and_printed_alike(text: str, expected: Address) -> None:
    assert address(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "9092", ":9092", "host:", "host:x", "host:65536", "host:-1", "::1:9092", "h:1:2"),
        *("a..b:9092", "x" * 64 + ":9092"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        address(text)


@pytest.mark.parametrize(
    "line",
    [
        "lag history --since 99999999999999d",
        "lag history --target-drain 0s",
        "configs describe broker ²",
    ],
)
def test_numbers_that_cannot_be_used_are_bad_usage(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def commands() -> Iterator[tuple[str, Verb]]:
    for name in COMMANDS:
        command = load(name)
        if isinstance(command, Noun):
            yield from ((f"{name} {verb}", one) for verb, one in command.verbs.items())
        else:
            yield name, command


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_the_examples_of_a_help_can_be_pasted(
    name: str, command: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), "--help"]) == 0
    _, _, after = capsys.readouterr().out.partition("\nexamples:")
    examples, _, _ = after.partition("\n\n")
    for example in re.sub(r"\\\n +", "", examples.strip()).splitlines():
        assert not re.search(r"\S {3,}[^ #]", example)
        part = next(part for part in example.split(" | ") if f"headrace {name}" in part)
        words = shlex.split(re.split(" [<>] ", part)[0], comments=True)
        parsed(name, command, words[len(name.split()) + 1 :])


def test_settings_keep_what_follows_the_first_equals_sign() -> None:
    assert setting("a.b = c=d ") == ("a.b", "c=d")
    assert setting("a=") == ("a", "")
    for text in ("a", "=b", " =b"):
        with pytest.raises(ArgumentTypeError):
            setting(text)


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = r"""
# a comment
! another
plain=value
  spaced.key  =  value with = and : in it
colon:value
only.space value
empty=
bare
long=one,\
     two,\
  three
path=C:\\dir\ttab
caf\u00e9=\u20ac
pair=\ud83d\ude00
key\=with\:signs=x
twice=1
twice=2
ends.in.backslash=\\
"""
    assert properties(text) == {
        "plain": "value",
        "spaced.key": "value with = and : in it",
        "colon": "value",
        "only.space": "value",
        "empty": "",
        "bare": "",
        "long": "one,two,three",
        "path": "C:\\dir\ttab",
        "café": "€",
        "pair": "😀",
        "key=with:signs": "x",
        "twice": "2",
        "ends.in.backslash": "\\",
    }


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a=1\n=S3CRET", "line 2 has no key"),
        (b": S3CRET", "line 1 has no key"),
        (b"# a\n\nkey=S3CRET\\u12", "line 3 has a broken escape in the value of 'key'"),
        (b"a=1\\\n  2\nsasl.password=S3CRET\\users", "line 3 has a broken escape in the value of"),
        (b"key=\\ud83dS3CRET", "line 1 has a broken escape in the value of 'key'"),
        (b"k\\u1=S3CRET", "line 1 has a broken escape in its key"),
        (b"a=1\r\nb=S3CRET\xfc", "line 2 is not UTF-8"),
    ],
)
def test_a_broken_properties_file_names_the_line_and_shows_no_value(
    content: bytes, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(content)
    with pytest.raises(BadUsage) as raised:
        properties_file(path)
    assert str(raised.value).startswith(f"cannot read {path}: {complaint}")
    assert "S3CRET" not in str(raised.value)


def test_a_properties_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"\xef\xbb\xbfkey=value\r\n")
    assert properties_file(path) == {"key": "value"}
