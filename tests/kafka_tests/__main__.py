"""``python -m tests.kafka_tests [CLASS[#METHOD] ...]``: run Kafka's own tests against headrace.

Without names, all classes of ``classes.toml`` run, and the results in docs/conformance.md are
renewed. With ``--outcomes``, a run that was stopped goes on where it was, and named classes and
methods run again. A test that fails and is not listed as not applicable makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.support import ROOT

from .runs import FAILED, NOT_APPLICABLE, PASSED, ClassResult, Outcome, outcomes, table, totals

PAGE = ROOT / "docs" / "conformance.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
LINK = "[difference](differences.md)"
SIGNS = {PASSED: ".", FAILED: "F", NOT_APPLICABLE: "n"}


def run(name: str, listed: dict[str, str], *, details: bool) -> ClassResult:
    """Run one class and print a sign for each test, then its failures."""
    class_name, _, method = name.partition("#")
    result = ClassResult(class_name, listed=listed)
    print(f"{name} ", end="", flush=True)
    started = time.monotonic()
    for outcome in outcomes([name]):
        result.outcomes.append(outcome)
        print(SIGNS.get(outcome.result, ""), end="", flush=True)
    print(
        f" {result.passed} passed, {len(result.failures)} failed, {result.not_applicable} not "
        f"applicable, {time.monotonic() - started:.0f} s",
        flush=True,
    )
    for failure in result.failures:
        print(f"  FAILED {failure.name.partition(' [')[0]}: {failure.first_line[:300]}")
        if details:
            print(failure.reason)
    for unlisted in result.unlisted:
        print(f"  NOT LISTED {unlisted}: asks for objects of the broker; name it in classes.toml")
    if not method:
        for needless in result.needless:
            print(f"  LISTED FOR NOTHING {needless}: it passes; remove it from classes.toml")
    return result


def short(name: str) -> str:
    return name.rpartition(".")[2]


def full(name: str, known: Iterable[str]) -> str:
    """Return ``CLASS[#METHOD]`` with the class's package, which may be left out.

    :param known: the classes of classes.toml; another one needs its package
    :raises ValueError: the class is not known
    """
    class_name, hash_sign, method = name.partition("#")
    if "." not in class_name:
        found = [one for one in known if short(one) == class_name]
        if len(found) != 1:
            raise ValueError(f"{class_name} is no class of classes.toml: name its package, too")
        class_name = found[0]
    return f"{class_name}{hash_sign}{method}"


def render(results: Sequence[ClassResult]) -> str:
    """Return the results of a run in Markdown: passed and all tests of each class, and reasons."""
    total = totals(results)
    ran = [result for result in results if result.outcomes]
    whole = [result for result in ran if not result.not_applicable and not result.failures]
    in_part = [result for result in ran if result not in whole]
    reasons = Counter(reason for result in results for reason in result.listed.values())
    rows = (
        f"| {reason.replace('docs/differences.md', LINK)} | {count} |"
        for reason, count in reasons.most_common()
    )
    failures = sorted({f"`{short(r.name)}.{bad.method}`" for r in results for bad in r.failures})
    parts = (
        f"{total['run']} tests: {total['passed']} passed, {total['failed']} failed, "
        f"{total['not_applicable']} not applicable.",
        listing("All passed", (f"`{short(r.name)}` {r.passed}" for r in whole)),
        listing("Passed, of all", (f"`{short(r.name)}` {r.passed}/{r.run}" for r in in_part)),
        listing("Not run", (f"`{short(r.name)}`" for r in results if not r.outcomes)),
        "\n".join(("| not applicable, because a test | methods |", "|---|--:|", *rows)),
        listing("Failed", failures),
    )
    return "\n\n".join(part for part in parts if part)


def listing(title: str, items: Iterable[str]) -> str:
    """Return a paragraph, or nothing without items."""
    text = ", ".join(items)
    return f"{title}: {text}." if text else ""


def write_page(page: Path, results: Sequence[ClassResult]) -> None:
    """Replace the results in the page."""
    text = page.read_text()
    head, rest = text.split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{render(results)}\n{END}{rest.partition(END)[2]}")


def load(file: Path | None) -> dict[str, list[Outcome]]:
    """Return the outcomes of earlier runs by class."""
    if file is None or not file.exists():
        return {}
    kept = json.loads(file.read_text())
    return {name: [Outcome(**one) for one in found] for name, found in kept.items()}


def save(file: Path, kept: Mapping[str, Sequence[Outcome]]) -> None:
    rows = {name: [one._asdict() for one in found] for name, found in kept.items()}
    file.write_text(json.dumps(rows, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_tests", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CLASS[#METHOD]", help="default: all classes")
    parser.add_argument(
        "--outcomes",
        type=Path,
        help="keep the outcomes of classes in this file; without names, run those it does not have",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print stack traces")
    options = parser.parse_args()
    known = table()
    try:
        names = [full(name, known) for name in options.names]
    except ValueError as error:
        parser.error(str(error))
    kept = load(options.outcomes)
    results = []
    try:
        for name in names or [name for name in known if name not in kept]:
            class_name, _, method = name.partition("#")
            result = run(name, known.get(class_name, {}), details=options.verbose)
            results.append(result)
            if not method or class_name in kept:
                others = [one for one in kept.get(class_name, []) if method not in ("", one.method)]
                kept[class_name] = others + result.outcomes
                if options.outcomes:
                    save(options.outcomes, kept)
    except KeyboardInterrupt:
        print(" stopped")
        return 130
    if options.outcomes or kept.keys() >= known.keys():
        results = [ClassResult(name, kept.get(name, []), known[name]) for name in known]
        write_page(PAGE, results)
        print(f"written to {PAGE.relative_to(ROOT)}")
    total = totals(results)
    print(
        f"{total['run']} runs: {total['passed']} passed, {total['failed']} failed, "
        f"{total['not_applicable']} not applicable"
    )
    is_good = not total["failed"] and all(one.outcomes and not one.unlisted for one in results)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
