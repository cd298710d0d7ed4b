"""What a person sees in `headrace top`, key by key."""

from __future__ import annotations

import re
from argparse import Namespace

import pytest

from headrace.cli.main import main
from headrace.cli.output import Output
from headrace.cli.screen import keys
from headrace.cli.top import Browser, _Top
from headrace.client.cluster import Cluster
from headrace.client.groups import GroupMember
from headrace.client.lag.model import LagQuery, PartitionLag, Snapshot, group_lag
from headrace.client.lag.watch import LagWatch
from headrace.client.lag.work import GroupWork
from headrace.client.workers import WorkerWatch
from tests.support import story

MEMBER = GroupMember("m", "c", "h")


def browser(count: int = 50) -> Browser:
    """Groups of which the last has the largest lag; every second one has a member."""
    groups = [
        group_lag(
            f"group-{number:02}",
            "share",
            "Stable",
            [MEMBER] * (number % 2),
            [PartitionLag("t", 0, records=number * 10, seconds=float(count - number))],
        )
        for number in range(count)
    ]
    seen = Browser(Output(), "lag")
    seen.seen = Snapshot(groups=groups, warnings=["evil \x1b[2J"], at_ms=0)
    return seen


def pressed(typed: str, room: int = 10) -> list[str]:
    """Return what is shown after keys; the chosen row begins with >."""
    seen = browser()
    for key in keys(typed):
        seen.press(key)
    return [line.replace("\x1b[7m", ">") for line in seen.lines(room)]


def groups(lines: list[str]) -> list[str]:
    return re.findall(r"^>?group-\d\d", "\n".join(lines), re.MULTILINE)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", [">group-49", "group-48", "group-47", "group-46", "group-45"]),
        ("jk\x1b[B", ["group-49", ">group-48", "group-47", "group-46", "group-45"]),
        ("\x1b[B" * 6, ["group-47", "group-46", "group-45", "group-44", ">group-43"]),
        ("\x1b[A" * 3, [">group-49", "group-48", "group-47", "group-46", "group-45"]),
        ("s", [">group-00", "group-01", "group-02", "group-03", "group-04"]),
        ("a", [">group-49", "group-47", "group-45", "group-43", "group-41"]),
        ("/P-0", [">group-09", "group-08", "group-07", "group-06", "group-05"]),
        ("/09\x7f\r", [">group-40", "group-30", "group-20", "group-10", "group-09"]),
        ("/qqq\x1b", [">group-49", "group-48", "group-47", "group-46", "group-45"]),
        ("/nothing\r\r", []),
    ],
)
def test_keys(typed: str, expected: list[str]) -> None:
    lines = pressed(typed)
    assert groups(lines) == expected
    assert len(lines) <= 10


def test_a_narrow_terminal_shows_what_matters() -> None:
    titles = pressed("")[1].split()
    assert titles[:5] == ["GROUP-ID", "LAG", "TIME-LAG", "DONE-PER-S", "PRODUCED-PER-S"]
    assert titles[5:] == ["ZERO-IN", "GROUP-STATE", "MEMBER-COUNT", "GROUP-TYPE"]


@pytest.mark.parametrize(
    ("age_ms", "titles"),
    [(None, "BREAKER MEMBER-COUNT"), (40_000, "BREAKER NUMBERS-AGE MEMBER-COUNT")],
)
def test_the_numbers_of_a_worker_that_was_killed_have_an_age(
    age_ms: int | None, titles: str
) -> None:
    seen = browser(1)
    seen.extras = {"group-00": {"breaker": "closed", "numbers_age_ms": age_ms}}
    _, head, row, *_ = seen.lines(10)
    assert titles in head.replace("  ", " ")
    assert (" 40 s " in row) == (age_ms is not None)


def test_a_narrow_terminal_has_the_first_columns_whole() -> None:
    seen = browser(3)
    whole = seen.lines(10)[1:4]
    seen.output.columns = len("GROUP-ID LAG TIME-LAG") + 1
    head, *rows = seen.lines(10)[1:4]
    assert head.split() == ["GROUP-ID", "LAG", "TIME-LAG"]
    assert all(shown[:10] == line[:10] for shown, line in zip(rows, whole[1:], strict=True))
    seen.output.columns -= 1
    assert seen.lines(10)[1].split() == ["GROUP-ID", "LAG"]
    seen.output.columns = 3  # one is always shown
    assert seen.lines(10)[1] == "GROUP-ID"


@pytest.mark.parametrize("room", [0, 1, 3, 5, 8])
def test_a_small_terminal(room: int) -> None:
    lines = pressed("jjj", room)
    assert len(lines) <= room
    assert room < 5 or ">group-46" in groups(lines)


def test_looking_into_a_group() -> None:
    seen = browser()
    for key in keys("j\r"):
        seen.press(key)
    assert seen.chosen == "group-48"
    assert "group-48  Escape: all groups" in seen.lines(10)[0]
    seen.press("escape")
    assert seen.chosen is None


def test_nothing_controls_the_terminal() -> None:
    lines = pressed("/\x07\x9b2J")
    assert "\x07" not in "".join(lines) and "\x1b[2J" not in "".join(lines)


def test_no_snapshot_yet() -> None:
    seen = Browser(Output(), "lag")
    for key in keys("js/x\r\ra\x1b"):
        seen.press(key)
    assert seen.lines(10) == []


@story
async def test_a_key_while_a_snapshot_without_a_group_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshots = [browser(count).seen for count in (2, 1)]
    top = _Top(Cluster("127.0.0.1:1"), LagQuery(), Namespace(output="table", sort="name"))
    drawn: list[str] = []

    async def snapshot(*_: object) -> Snapshot | None:
        return snapshots.pop(0)

    async def nothing(*_: object) -> list[str]:
        return []

    async def press(_: object) -> None:
        drawn[:] = top._browser.lines(10)

    monkeypatch.setattr(LagWatch, "snapshot", snapshot)
    monkeypatch.setattr(GroupWork, "end", nothing)
    monkeypatch.setattr(WorkerWatch, "look_or_tell", nothing)
    monkeypatch.setattr(top, "_look_into", press)
    for expected in ([], [">group-00", "group-01"]):
        top._browser.seen = await top._take()
        assert groups([line.replace("\x1b[7m", ">") for line in drawn]) == expected


@pytest.mark.parametrize("form", ["json", "wide"])
def test_forms_that_a_course_of_snapshots_does_not_have(form: str) -> None:
    assert main(["top", "-o", form]) == 2
