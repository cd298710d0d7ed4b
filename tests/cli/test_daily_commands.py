"""The checks of `headrace topics`, `configs`, `produce`, `consume` and so on: options and lines,
without a broker.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from headrace.cli.commands import COMMANDS
from headrace.cli.console.record_input import JsonReader, LineReader, MalformedLine, NewRecord
from headrace.cli.errors import BadUsage
from headrace.cli.main import main
from tests.cli.command import ENVIRONMENT, HEADRACE

HELP_S, ATTEMPTS = 0.3, 5


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("topics list --partitions 3", "unrecognized arguments: --partitions"),
        ("topics create t --partitions 0", "'0' is not a whole number above 0"),
        ("topics create t --partitions 2147483648", "'2147483648' is more than 2147483647"),
        ("topics create t --replication-factor 32768", "'32768' is more than 32767"),
        ("topics alter t", "the following arguments are required: --partitions"),
        ("topics delete (", "'(' is not a regular expression"),
        ("configs describe users", "invalid choice: 'users' (choose from 'topic', "),
        ("configs alter topic t", "name a config to set, as NAME=VALUE, or to --delete"),
        ("configs alter topic t a", "'a' is not of the form KEY=VALUE"),
        ("configs describe broker x", "'x' is not the number of a broker"),
        ("produce", "name a topic"),
        ("produce t --whole-files", "--whole-files takes files"),
        ("produce t --reader-property parse.keys=true", "unknown reader property parse.keys"),
        ("produce t --json --reader-property parse.key=true", "--reader-property is for lines"),
        ("produce t --timestamp 0", "--timestamp 0 cannot be written"),
        ("produce t --command-property transactional.id=x", "begins no transactions: remove it"),
        (
            "perf produce --topic t --num-records 1 --record-size 1 "
            "--command-property transactional.id=x",
            "begins no transactions: remove it",
        ),
        ("consume", "name one topic"),
        ("consume t u", "name one topic"),
        ("consume t --offset 3", "--offset takes --partition"),
        (
            "consume t --partition 0 --offset 9223372036854775808",
            "'9223372036854775808' is not an offset",
        ),
        ("consume t --from-beginning --from-time 5", "exclude each other"),
        ("consume t --group g --to-end", "--to-end and --group exclude each other"),
        ("consume t --from-time yesterday", "'yesterday' is neither milliseconds nor"),
        ("consume --include (", "--include is not a regular expression"),
        ("top --iterations 0", "--iterations takes a number above 0"),
        ("topics list --timeout 0", "'0' is not a number of seconds above 0"),
        ("topics list --timeout 3600.5", "3600.5 is more than 3600 seconds"),
        ("exporter --listen 9308", "'9308' is not of the form HOST:PORT or :PORT"),
        ("exporter --exclude-groups (", "--exclude-groups is not a regular expression"),
        ("completion tcsh", "invalid choice"),
        (
            "console-share-consumer --topic t --command-property fetch.max.bytes=2147483648",
            "fetch.max.bytes is '2147483648', not a number from 1 to 2147483647",
        ),
    ],
)
def test_bad_usage_is_one_line(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and complaint in err
    assert err.startswith(f"headrace {line.split()[0]}") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["produce", ""], "the name of the topic is empty"),
        (["consume", "", "--from-beginning"], "the name of the topic is empty"),
        (["consume", "t", "--group", ""], "--group takes the id of a group, which is not empty"),
        (
            ["perf", "produce", "--topic", "", "--num-records", "1", "--record-size", "1"],
            "the name of the topic is empty",
        ),
        (
            ["groups", "delete-offsets", "g", "--topic", ""],
            "'' is not of the form TOPIC or TOPIC:0,1,2",
        ),
        (
            ["groups", "reset", "g", "--topic", ":1", "--to", "latest"],
            "':1' is not of the form TOPIC or TOPIC:0,1,2",
        ),
    ],
)
def test_an_empty_name_is_one_line(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name may be that of a shell's variable that is not set."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and complaint in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["consume", b"t\xff", "--from-beginning"],
        ["produce", "t", "--key", b"\xff"],
        ["dlq", "list", b"\xff"],
        ["topics", "create", b"\xff"],
        ["console-share-consumer", "--topic", "t", "--group", b"\xff"],
        ["produce", "t", "--header", b"origin=\xff"],
        ["consume", "t", "--command-property", b"client.id=\xff"],
        ["consume", "t", "--formatter-property", b"key.separator=\xff"],
        ["console-share-consumer", "--topic", "t", "--command-property", b"client.id=\xff"],
    ],
)
def test_an_argument_that_is_not_utf8(words: list[str | bytes]) -> None:
    """librdkafka ended the process with SIGSEGV or SIGABRT."""
    command = [*HEADRACE, *words, "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(
        command, env=ENVIRONMENT, input="", capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "udcff' is not UTF-8" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_whose_name_is_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / os.fsdecode(b"\xff")
    file.write_text("record\n")
    assert main(["produce", "", str(file)]) == 2
    assert "the name of the topic is empty" in capsys.readouterr().err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_password_that_is_not_utf8(
    errors: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\xff\n"), "utf-8", errors))
    assert main(["users", "add", "ann"]) == 2
    assert capsys.readouterr().err == "headrace users add: the password is not UTF-8\n"


LINE_PROPERTIES = {"parse.key": "true", "parse.headers": "true", "null.marker": "N"}


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"a:1,b:2\tk\tv", NewRecord(b"k", b"v", [("a", b"1"), ("b", b"2")])),
        (b"N\tN\tN", NewRecord(None, None, [])),
        (b"a:N\t\t", NewRecord(b"", b"", [("a", None)])),
        (b"a:x:y\tk\tv\tw", NewRecord(b"k", b"v\tw", [("a", b"x:y")])),
    ],
)
def test_lines(line: bytes, record: NewRecord) -> None:
    assert LineReader(LINE_PROPERTIES).record(line) == record


def test_malformed_lines() -> None:
    reader = LineReader(LINE_PROPERTIES)
    for line in (b"", b"a:1", b"a:1\tk", b"a\tk\tv", b"N:1\tk\tv", b"\xff:1\tk\tv", b"\0:1\tk\tv"):
        with pytest.raises(MalformedLine):
            reader.record(line)
    lenient = LineReader({**LINE_PROPERTIES, "ignore.error": "true"})
    assert lenient.record(b"only").value == b"only"
    for properties in ({"key.separator": ""}, {"parse.headers": "true", "headers.separator": "\t"}):
        with pytest.raises(BadUsage):
            LineReader(properties)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"[]", "not a JSON object"),
        (b'"text"', "to send the line itself as the value, leave out --json"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b"\xff", "it is not UTF-8"),
        (b'{"id": 1}', "unknown field 'id'; to send the line itself as the value, leave out --j"),
        (b'{"vlaue": "x"}', "unknown field 'vlaue'; did you mean 'value'?"),
        (b'{"value": "x", "Key": "k"}', "unknown field 'Key'; did you mean 'key'?"),
        (b"{}", "no field 'value'; to send the line itself as the value, leave out --json; a tom"),
        (b'{"key": "k"}', 'a tombstone is "value": null'),
        (b'{"value": "x", "value": "y"}', "the field 'value' occurs twice"),
        (b'{"value": {"a": 1, "a": 2}}', "the field 'a' occurs twice"),
        (b'{"value": "x", "valueBase64": "eA=="}', "both value and valueBase64"),
        (b'{"value": "x", "key": null, "keyBase64": "eA=="}', "both key and keyBase64"),
        (b'{"valueBase64": null}', 'valueBase64 is null: give "value": null'),
        (b'{"valueBase64": "!"}', "valueBase64 is not Base64"),
        (b'{"valueBase64": 5}', "valueBase64 is not Base64"),
        (b'{"value": NaN}', 'NaN is not JSON: give it as a string, "NaN"'),
        (b'{"value": [-Infinity]}', "-Infinity is not JSON"),
        (b'{"value": 1e999}', "the number '1e999' is too large"),
        (b'{"value": ' + b"1" * 5000 + b"}", "a number has too many digits"),
        (b'{"value": "\\ud800"}', "value has half a surrogate pair"),
        (b'{"value": "x", "headers": [1]}', "headers is not"),
        (b'{"value": "x", "headers": ""}', "headers is not"),
        (b'{"value": "x", "headers": false}', "headers is not"),
        (b'{"value": "x", "headers": [{"value": "x"}]}', "a header has no key"),
        (b'{"value": "x", "headers": [{"key": "a"}]}', 'a null one is "value": null'),
        (b'{"value": "x", "headers": [{"key": "a", "valeu": "b"}]}', "did you mean 'value'?"),
        (b'{"value": "x", "headers": [{"key": "a\\u0000b", "value": "c"}]}', "a NUL"),
        (b'{"value": "x", "headers": {"a\\u0000b": "c"}}', "a NUL"),
        (b'{"value": "x", "headers": [{"key": "\\ud800", "value": "c"}]}', "half a surrogate"),
        (b'{"value": "x", "timestamp": "now"}', "timestamp is not a number from 0 on"),
        (b'{"value": "x", "timestamp": true}', "timestamp is not a number from 0 on"),
        (b'{"value": "x", "timestamp": 0}', "timestamp is 0"),
    ],
)
def test_malformed_json(line: bytes, complaint: str) -> None:
    with pytest.raises(MalformedLine) as raised:
        JsonReader(keep_partitions=False).record(line)
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b'{"value": null, "key": "k"}', NewRecord(b"k", None, [])),
        (b'\xef\xbb\xbf{"value": "x"}', NewRecord(None, b"x", [])),
        (b'{"value": {"a": [1, 2.5, null]}}', NewRecord(None, b'{"a": [1, 2.5, null]}', [])),
        (
            b'{"value": "x", "headers": {"a": "b", "n": null, "i": 1}}',
            NewRecord(None, b"x", [("a", b"b"), ("n", None), ("i", b"1")]),
        ),
        (
            b'{"topic": "t", "partition": 1, "offset": 7, "timestamp": -1, "timestampType": '
            b'"CreateTime", "deliveryCount": 2, "keyBase64": "/w==", "value": "x", "headers": '
            b'[{"key": "a", "valueBase64": "/w=="}]}',
            NewRecord(b"\xff", b"x", [("a", b"\xff")]),
        ),
        (b"", None),
        (b" \t", None),
    ],
)
def test_json_records(line: bytes, record: NewRecord | None) -> None:
    assert JsonReader(keep_partitions=False).record(line) == record


def completed(script: str, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    listed = " ".join(f"'{word}'" for word in words)
    program = (
        f"{script}\nCOMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _headrace; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "headrace", "to") == ["top", "topics"]
    assert completed(script, "headrace", "lag", "") == ["show", "history"]
    assert completed(script, "headrace", "topics", "de") == ["describe", "delete"]
    assert completed(script, "headrace", "topics", "create", "--par") == ["--partitions"]
    assert completed(script, "headrace", "top", "--sort", "") == ["lag", "time", "rate", "name"]
    for shell in ("zsh", "fish"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert "topics" in script and "partitions" in script
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=script, text=True, check=True)


def help_s(command: str) -> float:
    """Return the time that the help of a command takes."""
    before, started_s = os.times(), time.perf_counter()
    line = [*HEADRACE, *command.split(), "--help"]
    subprocess.run(line, stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=True)
    elapsed_s, after = time.perf_counter() - started_s, os.times()
    cpu_s = after.children_user + after.children_system
    # A machine with other work to do makes it slower, but does not add to its CPU time.
    return min(elapsed_s, cpu_s - before.children_user - before.children_system)


@pytest.mark.slow
@pytest.mark.alone
def test_help_takes_less_than_a_third_of_a_second() -> None:
    took = dict.fromkeys([*COMMANDS, "topics list"], math.inf)
    for name in took:
        for _ in range(ATTEMPTS):
            took[name] = min(took[name], help_s(name))
            if took[name] <= HELP_S:
                break
    print({name: f"{seconds:.2f}" for name, seconds in took.items()})
    assert {name: seconds for name, seconds in took.items() if seconds > HELP_S} == {}
