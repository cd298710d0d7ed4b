"""The frame of the command line: nouns and verbs, times, output, and questions before changes."""

from __future__ import annotations

import inspect
import io
import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace

import pytest

from headrace.cli import main as frame
from headrace.cli.commands import COMMANDS, load
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.main import command_of, main
from headrace.cli.nouns import Noun
from headrace.cli.options import arg, one_of, switch
from headrace.cli.output import Output, confirm
from headrace.times import duration_ms, time_ms

NOUN = Noun()


@NOUN.verb(
    "count",
    "count things",
    arg("things", nargs="*"),
    arg("--from", dest="start", type=int, default=0),
    one_of(switch("--up", "upwards"), switch("--down", "downwards")),
    examples="headrace things count a b --from -3",
)
def count(options: Namespace) -> int:
    """Print what was given; the number of things is the status."""
    print(options.start, *options.things, "up" * options.up + "down" * options.down)
    return len(options.things)


@pytest.fixture(autouse=True)
def things(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a noun to the commands."""
    monkeypatch.setattr(frame, "COMMANDS", {**COMMANDS, "things": "count things"})
    monkeypatch.setattr(frame, "load", lambda name: NOUN if name == "things" else load(name))


@pytest.mark.parametrize(
    ("line", "status", "out"),
    [
        ("things count a --from -3 b --up", 2, "-3 a b up\n"),
        ("things count", 0, "0 \n"),
        ("things count --down", 0, "0 down\n"),
        ("things count -- -a", 1, "0 -a \n"),
        ("things count a --up -- --down --", 3, "0 a --down -- up\n"),
    ],
)
def test_a_verb_gets_its_options(
    line: str, status: int, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == status
    assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("things cuont", "headrace: things has no verb 'cuont': did you mean count?"),
        ("things xyz", "headrace: things has no verb 'xyz': it is one of count"),
        ("topcs list", "headrace: no command 'topcs': did you mean topics?"),
        ("-x", "headrace: unrecognized arguments: -x; see headrace --help"),
        ("things count --up --down", "headrace things count: argument --down: not allowed with"),
        ("things count --from x", "headrace things count: argument --from: invalid int value: 'x'"),
    ],
)
def test_bad_usage_is_one_line(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(complaint) and err.count("\n") == 1


@pytest.mark.parametrize(
    ("streams", "line", "status", "complaint"),
    [
        (">&-", "completion bash", 0, ""),
        (">&- 2>&-", "topcs", 2, ""),
        ("1</dev/null", "completion bash", 1, "headrace completion: Bad file descriptor"),
        ("<&-", "users add ann", 2, "headrace users add: the password is empty"),
        ("<&-", "produce t", 1, "headrace produce: no broker answers"),
    ],
)
def test_closed_streams_are_empty_and_others_may_fail(
    streams: str, line: str, status: int, complaint: str
) -> None:
    command = f"exec {sys.executable} -m headrace {line} {streams}"
    environment = {**os.environ, "HEADRACE_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert done.stderr.startswith(complaint) and done.stderr.count("\n") == bool(complaint)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", "  serve   "),
        ("--help", "  serve   "),
        ("things --help", "  count  count things\n"),
        ("topics", "  create    create topics\n"),
        ("users", "\nList, add and delete the users of SCRAM.\n"),
        ("lag -h", "  show "),
        ("context", "  use "),
    ],
)
def test_a_bare_noun_prints_its_help(
    line: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.startswith("usage: headrace") and word in out


def test_what_is_no_verb_of_lag_is_a_group() -> None:
    assert command_of(["lag", "packers", "--partitions"])[::2] == (
        "lag show",
        ["packers", "--partitions"],
    )
    with pytest.raises(BadUsage, match="did you mean show"):
        command_of(["lag", "shwo"])


NOUNS = {name: noun for name in COMMANDS if isinstance(noun := load(name), Noun)}


@pytest.mark.parametrize(("name", "noun"), NOUNS.items())
def test_the_functions_of_verbs_take_the_options_that_are_declared(name: str, noun: Noun) -> None:
    for verb in noun.verbs.values():
        parser = ArgumentParser()
        verb.declare(parser)
        assert verb.summary and f"headrace {name} " in verb.examples
        declared = {action.dest for action in parser._actions} - {"help"}
        parameters = inspect.signature(verb.execute).parameters
        several = {
            "cluster": {"bootstrap_server", "command_config", "context", "timeout"},
            "output": {"output", "make_output", "dry_run", "yes"} & declared,
        }
        taken = set[str]().union(*(several.get(name, {name}) for name in parameters))
        is_open = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        if is_open or "options" in parameters:
            taken |= declared  # options that it passes on
        assert declared <= taken <= declared | set(parameters)


ROWS = [
    {"topic": "o\nrders", "partition": 10, "lag": None, "isr": (1, 2), "host": "h"},
    {"topic": "b", "partition": 2, "lag": 7, "isr": (), "host": "h"},
]


def test_rows_in_each_form(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(form: str) -> str:
        Output(form).rows(ROWS, wide=("host",))
        return capsys.readouterr().out

    assert printed("table") == (
        "TOPIC    PARTITION LAG ISR\no\\nrders 10        -   1,2\nb        2         7   -\n"
    )
    assert printed("wide").splitlines()[1].endswith("1,2 h")
    assert json.loads(printed("json")) == json.loads(json.dumps(ROWS))
    assert len(printed("json").splitlines()) == len(ROWS)
    assert [json.loads(line) for line in printed("jsonl").splitlines()] == json.loads(
        json.dumps(ROWS)
    )


GROUPS = [
    {"group_id": "billing", "group_state": "Empty", "partition": 0, "lag": 0},
    {"group_id": "packers", "group_state": "Stable", "partition": 12000, "lag": 12345},
    {"group_id": "Dead", "group_state": "Stable", "partition": 1, "lag": None},
    {"group_id": "audit", "group_state": "Dead", "partition": 2, "lag": 70000},
]
GREEN, RED, OFF = "\x1b[32m", "\x1b[31m", "\x1b[m"


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "form", "lines"),
    [
        (False, False, "table", ["billing Empty 0 0", "packers Stable 12000 12345"]),
        (True, True, "table", ["audit Dead 2 70,000", "packers Stable 12000 12,345"]),
        (
            True,
            False,
            "table",
            [f"audit {RED}Dead{OFF} 2 70,000", f"packers {GREEN}Stable{OFF} 12000 12,345"],
        ),
        (True, True, "wide", ["audit Dead 2 70,000", "packers Stable 12000 12,345"]),
    ],
)
def test_tables_on_a_terminal_are_for_people(
    is_terminal: bool,
    no_color: bool,
    form: str,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The largest lag comes first, what has none is folded, and states have colors."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    Output(form).rows(GROUPS)
    out, err = capsys.readouterr()
    rows = [" ".join(line.split()) for line in out.splitlines()[1:]]
    assert rows[:2] == lines
    is_folded = is_terminal and form == "table"
    assert len(rows) == 4 - is_folded
    assert err == ("and 1 without a lag: -o wide\n" if is_folded else "")


def test_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    for form, out, err in (("table", "", "none\n"), ("json", "[]\n", ""), ("jsonl", "", "")):
        Output(form).rows([], nothing="none")
        assert capsys.readouterr() == (out, err)


def test_cells(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows([{"a": True, "b": {"x": [0, 1], "y": [2]}, "c": {"k": "v"}, "d": 2.0, "e": 0.5}])
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "yes",
        "x:0,1;y:2",
        "k=v",
        "2",
        "0.5",
    ]


@pytest.mark.parametrize(
    ("answer", "is_changed"), [(b"Yes\n", True), (b"n\n", False), (b"", False), (b"\xff\n", False)]
)
def test_a_question_on_a_terminal(
    answer: bytes,
    is_changed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(answer), "utf-8")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    if is_changed:
        confirm("Delete them?", ["a", "b\x1b[2J"], yes=False)
    else:
        with pytest.raises(Failure, match="nothing was changed"):
            confirm("Delete them?", ["a", "b\x1b[2J"], yes=False)
    assert capsys.readouterr().err == "  a\n  b\\x1b[2J\nDelete them? [y/N] "


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    confirm("Delete them?", ["a"], yes=True)
    with pytest.raises(BadUsage, match="give --yes"):
        confirm("Delete them?", ["a"], yes=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("1w", 604_800_000)]
    + [("500ms", 500), ("0.5s", 500), ("1.5h", 5_400_000), ("5", 5000), ("0.5", 500)],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "-1h", "1x", "1h 30m", "h", "PT1H", "1h30", "99999999999h", "0s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T08:00:00.123Z", 1_795_161_600_123),
        ("2026-11-20T08:00:00.123", 1_795_161_600_123),
        ("2026-11-20T09:00:00.123+01:00", 1_795_161_600_123),
        ("2026-11-20", 1_795_132_800_000),
        ("1969-12-31T23:59:59.9995Z", -1),
        ("1795161600123", 1_795_161_600_123),
    ],
)
def test_times_are_exact_and_in_utc(text: str, expected: int) -> None:
    assert time_ms(text) == expected


def test_times_that_depend_on_now() -> None:
    now_ms = time.time() * 1000
    for text, ago_ms in (("now", 0), ("1h", 3_600_000), ("-1h", 3_600_000), ("-2d", 172_800_000)):
        assert 0 <= time_ms(text) + ago_ms - now_ms + 1 < 60_000
    assert time_ms("today") - time_ms("yesterday") == 86_400_000
    assert time_ms("today") % 86_400_000 == 0


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "2026-13-01T00:00:00", "12:00", "-", "--1h", "-1"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        time_ms(text)


def test_completing_words_imports_neither_the_broker_nor_the_clients() -> None:
    program = (
        "import sys; from headrace.cli.commands import COMMANDS, load; list(map(load, COMMANDS))\n"
        "print(sorted({'headrace.client', 'headrace.broker', 'headrace.log', 'headrace.web', "
        "'confluent_kafka', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
