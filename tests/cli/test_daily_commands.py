"""The checks of `headrace topics`, `configs`, `produce`, `consume` and so on: options and lines,
without a broker.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import subprocess
import time
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NoReturn

import confluent_kafka
import pytest

from headrace.cli.commands import COMMANDS, load
from headrace.cli.console.produce import Sender
from headrace.cli.errors import Failure
from headrace.cli.main import main, parsed
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
        ("produce", "the following arguments are required: TOPIC"),
        ("produce t --whole", "--whole takes --file"),
        ("produce t --json -K :", "not allowed with argument --json"),
        ("produce t --key-separator=", "--key-separator cannot be empty"),
        ("produce t --header a", "'a' is not of the form NAME=VALUE"),
        ("produce t --keep-partitions", "--keep-partitions is for --json"),
        (
            "produce t --timestamp 1970-01-01T00:00:00Z",
            "--timestamp 0 cannot be written",
        ),
        ("produce t -X transactional.id=x", "begins no transactions: remove it"),
        ("consume", "the following arguments are required: TOPIC"),
        ("consume t --from 9223372036854775808", "'9223372036854775808' is not an offset"),
        ("consume t --from soon", "'soon' is not a time, such as -1h"),
        ("consume t --idle soon", "'soon' is not a duration"),
        ("consume t --max -1", "'-1' is not a whole number above 0"),
        ("consume t --format %q", "%q is no field: %s %S %k"),
        ("consume t --grep (", "'(' is not a regular expression"),
        ("consume ^(", "'(' is not a regular expression"),
        ("consume t --tail 5 --from -1h", "--tail and --from exclude each other"),
        ("consume t --share-group g --from 5", "earliest, latest or a time with --share-group"),
        ("consume t --share-group g --exit", "--share-group and --exit exclude each other"),
        ("consume ^t --share-group g", "--share-group takes names of topics"),
        ("consume t --outcome reject", "--outcome is for --share-group"),
        ("consume t --parse-json", "--parse-json is for -o json and jsonl"),
        ("consume t -o json -f %s", "--format and --raw are for text"),
        ("consume t -o jsonl --raw", "--format and --raw are for text"),
        ("perf share-consume t --members 0", "'0' is not a whole number above 0"),
        ("dlq show", "the following arguments are required: QUEUE"),
        ("groups describe g --in-flight --kafka-format", "not allowed with argument --in-flight"),
        ("groups list --state emtpy", "'emtpy' is not a list of states: assigning, "),
        ("groups list --kafka-format -o json", "--kafka-format prints a table: leave out -o"),
        ("groups list --kafka-format --type consumer", "is for share groups: leave out --type"),
        ("groups members g --kafka-format --type share", "is for share groups: leave out --type"),
        ("groups offsets g --kafka-format --type share", "is for share groups: leave out --type"),
        ("dlq show q --from -5", "--from and --to take no negative offset"),
        ("dlq redrive q --from latest --yes", "--from latest selects no letters"),
        ("top --iterations 0", "'0' is not a whole number above 0"),
        ("topics list --timeout 0", "'0' is not a duration of at least a millisecond"),
        ("topics list --timeout 3600.5", "3600.5 is more than 3600 seconds"),
        ("exporter --listen 9308", "'9308' is not of the form HOST:PORT or :PORT"),
        ("exporter --exclude-groups (", "'(' is not a regular expression"),
        ("completion tcsh", "invalid choice"),
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
        (["consume", ""], "the name of the topic is empty"),
        (["consume", "t", "--share-group", ""], "--share-group takes the id of a group"),
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
        ["consume", b"t\xff"],
        ["produce", "t", "--key", b"\xff"],
        ["produce", "t", "-X", b"client.id=\xff"],
        ["dlq", "list", b"\xff"],
        ["topics", "create", b"\xff"],
        ["consume", "t", "--share-group", b"\xff"],
        ["produce", "t", "--header", b"\xff=origin"],
    ],
)
def test_an_argument_that_is_not_utf8(words: list[str | bytes]) -> None:
    """librdkafka ended the process with SIGSEGV or SIGABRT."""
    command = [*HEADRACE, *words, "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(
        command, env=ENVIRONMENT, input="", capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "udcff" in done.stderr and "' is not UTF-8" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_whose_name_is_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / os.fsdecode(b"\xff")
    file.write_text("record\n")
    assert main(["produce", "", "--file", str(file)]) == 2
    assert "the name of the topic is empty" in capsys.readouterr().err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_password_that_is_not_utf8(
    errors: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\xff\n"), "utf-8", errors))
    assert main(["users", "add", "ann"]) == 2
    assert capsys.readouterr().err == "headrace users add: the password is not UTF-8\n"


def test_no_password_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ctrl_d(_: str) -> NoReturn:
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", ctrl_d)
    assert main(["users", "add", "ann"]) == 2
    assert capsys.readouterr().err == "headrace users add: the password is empty\n"


def test_a_second_ctrl_c_drops_records_that_no_broker_takes() -> None:
    class Interrupted(confluent_kafka.Producer):
        def flush(self, timeout: float = -1) -> int:
            signal.raise_signal(signal.SIGINT)
            return super().flush(timeout)

    options = parsed("produce", load("produce"), ["t"])
    producer = Interrupted({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(Failure, match="2 records were not acknowledged; 0 records were"):
        Sender(options, producer).run([("stdin", iter([b"one", b"two"]))])


def completed(script: str, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    line = " ".join(words)
    program = (
        f'headrace() {{ {shlex.join(HEADRACE)} "$@"; }}\n{script}\n'
        f"COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}; _headrace; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
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
        assert "headrace completion words" in script
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
