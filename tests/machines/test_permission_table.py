"""The table of permissions in docs/behaviour/security.md is that of the registry of APIs."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.handlers import APIS, Api
from headrace.handlers.rules import Each, Inside, Need, Rule, Whole
from headrace.security.acls import ResourceType
from tests.support import ROOT

PAGE = ROOT / "docs/behaviour/security.md"
BEGIN, END = "<!-- permissions -->\n", "<!-- end of permissions -->\n"


def table() -> str:
    """Return the table, with a line for each rule. APIs with the same rules stand together."""
    apis: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for api in APIS.values():
        name = "".join(part.capitalize() for part in api.name.split("_"))
        rules = tuple(row(api, rule) for rule in api.rules) or (("none", "", ""),)
        apis.setdefault(rules, []).append(f"{name} ({api.key})")
    lines = ["| API | permission | checked for | without it |", "|---|---|---|---|"]
    for rules, names in apis.items():
        for number, cells in enumerate(rules):
            first = ", ".join(names) if number == 0 else ""
            lines.append(f"| {' | '.join((first, *cells))} |")
    return "\n".join(lines) + "\n"


def written(needs: Iterable[Need]) -> str:
    return " or ".join(f"{operation.name} {kind.name}" for operation, kind in needs)


def row(api: Api, rule: Rule) -> tuple[str, str, str]:
    """Return the permission, the resources, and the effect of a rule."""
    if isinstance(rule, Whole):
        needs = " or ".join(
            f"{operation.name} {kind.name}" for operation, kind in rule.alternatives
        )
        return needs, rule.of, ""
    if isinstance(rule, Inside):
        return written((rule.need,)), "", rule.effect
    needs = written(rule.needs)
    if rule.unless is not None:
        needs += f", unless {rule.unless.name} {ResourceType.CLUSTER.name}"
    return needs, f"each of `{rule.array}`", ""


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text()
    _, _, rest = text.partition(BEGIN)
    written, end, _ = rest.partition(END)
    assert end
    assert written == table()


def test_every_api_says_what_it_requires() -> None:
    for api in APIS.values():
        assert all(isinstance(rule, (Whole, Each, Inside)) for rule in api.rules), api.name
    nothing = {api.name for api in APIS.values() if not api.rules}
    assert nothing == {
        "api_versions",
        "sasl_authenticate",
        "sasl_handshake",
    }
