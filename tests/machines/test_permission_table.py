"""The table of permissions in docs/behaviour/security.md is that of the registry of APIs."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.handlers import APIS
from headrace.net.api import CLUSTER, GROUP, TOPIC, Each, Inside, Need, Rule, Whole
from tests.support import ROOT

PAGE = ROOT / "docs/behaviour/security.md"
BEGIN, END = "<!-- permissions -->\n", "<!-- end of permissions -->\n"


def table() -> str:
    """Return the table, with a line for each set of rules."""
    apis: dict[str, list[str]] = {}
    for api in APIS.values():
        name = "".join(part.capitalize() for part in api.name.split("_"))
        permissions = "; ".join(permission(rule) for rule in api.rules) or "none"
        apis.setdefault(permissions, []).append(name)
    rows = (f"| {', '.join(names)} | {permissions} |" for permissions, names in apis.items())
    return "\n".join(("| API | permissions |", "|---|---|", *rows, ""))


def permission(rule: Rule) -> str:
    """Return the permission of a rule and its effect. A star: each item is refused on its own."""
    if isinstance(rule, Inside):
        return f"{written(((rule.operation, rule.kind),))} ({rule.effect})"
    if isinstance(rule, Whole):
        return written(rule.alternatives)
    instead = f" (or {rule.unless.name} CLUSTER)" if rule.unless else ""
    kinds = (TOPIC, GROUP, CLUSTER) if rule.kind is None else (rule.kind,)
    return f"{written((rule.operation, kind) for kind in kinds)}*{instead}"


def written(needs: Iterable[Need]) -> str:
    return " or ".join(f"{operation.name} {kind.name}" for operation, kind in needs)


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
