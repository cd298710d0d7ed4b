"""The report of a run of Kafka's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from .__main__ import BEGIN, END, full, load, render, save, write_page
from .runs import FAILED, NOT_APPLICABLE, PASSED, SKIPPED, ClassResult, Outcome, table, totals

NAME = "org.example.SomeTest"
LISTED = {"reaches": "reads memory", "listed": "needs three brokers", "needless": "none"}


def outcome(result: str, method: str) -> Outcome:
    return Outcome(result, 0.5, NAME, method, f"{method} [1]", "" if result == PASSED else "why")


def some_class() -> ClassResult:
    return ClassResult(
        NAME,
        [
            outcome(PASSED, "good"),
            outcome(FAILED, "bad"),
            outcome(PASSED, "listed"),
            outcome(FAILED, "listed"),
            outcome(NOT_APPLICABLE, "reaches"),
            outcome(NOT_APPLICABLE, "new"),
            outcome(SKIPPED, "needless"),
            outcome(PASSED, "needless"),
        ],
        LISTED,
    )


def test_listed_tests_may_fail_and_nothing_else() -> None:
    result = some_class()
    assert [one.method for one in result.failures] == ["bad"]
    assert (result.passed, result.not_applicable) == (3, 3)
    assert result.unlisted == ["new"]
    assert result.needless == ["needless"]
    assert totals([result, result]) == {"run": 14, "passed": 6, "failed": 2, "not_applicable": 6}


def test_the_page_has_the_last_results(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    results = [some_class()]
    write_page(page, results)
    assert page.read_text() == f"before\n{BEGIN}\n{render(results)}\n{END}\nafter\n"
    lines = render(results).splitlines()
    assert lines[0] == "7 tests: 3 passed, 1 failed, 3 not applicable."
    assert "Passed, of all: `SomeTest` 3/7." in lines
    assert "| needs three brokers | 1 |" in lines
    assert lines[-1] == "Failed: `SomeTest.bad`."


def test_outcomes_are_kept_for_another_run(tmp_path: Path) -> None:
    file = tmp_path / "outcomes.json"
    assert load(file) == load(None) == {}
    kept = {NAME: some_class().outcomes}
    save(file, kept)
    assert load(file) == kept


def test_each_method_that_is_not_applicable_has_a_reason() -> None:
    assert table()
    assert all(reason for methods in table().values() for reason in methods.values())


def test_the_package_of_a_class_may_be_left_out() -> None:
    known = [NAME, "org.example.OtherTest"]
    assert full("SomeTest", known) == full(NAME, known) == NAME
    assert full("SomeTest#good", known) == f"{NAME}#good"
    assert full("org.example.NewTest#good", known) == "org.example.NewTest#good"
    with pytest.raises(ValueError, match="NewTest is no class"):
        full("NewTest#good", known)
