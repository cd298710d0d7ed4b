"""Hooks of MkDocs: the site has the repository's own pages too, and links between all of them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "vulnerabilities.md",
    "bench/RESULTS.md": "measurements.md",
    "deploy/README.md": "deploy.md",
    "examples/README.md": "examples.md",
}
"""Pages outside docs/ → their names on the site."""

FOLDERS = {
    "docs/behaviour": "behaviour/README.md",
    "docs/decisions": "decisions/index.md",
    "examples": "examples.md",
}
"""Folders that have a page on the site."""

_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside docs/, and a list of the decisions."""
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "decisions/index.md", content=_list_of_decisions()))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Let links lead to pages of the site. A link to another file becomes its text."""
    here = page.file.src_uri
    sources = {name: source for source, name in OUTSIDE.items()}
    folder = posixpath.dirname(sources.get(here, f"docs/{here}"))

    def follow(link: re.Match[str]) -> str:
        text, target, anchor = link.group(1), link.group(2), link.group(3) or ""
        meant = posixpath.normpath(posixpath.join(folder, target))
        found = _on_the_site(meant)
        if found is None:
            if not (ROOT / meant).exists():
                raise ValueError(f"{here}: {link.group()} leads nowhere")
            return text
        return f"[{text}]({posixpath.relpath(found, posixpath.dirname(here) or '.')}{anchor})"

    return _LINK.sub(follow, markdown)


def _on_the_site(path: str) -> str | None:
    """Return the page or picture of the site for a path of the repository."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path in FOLDERS:
        return FOLDERS[path]
    if path.startswith("docs/") and path.endswith((".md", ".png")):
        return path.removeprefix("docs/")
    return None


def _list_of_decisions() -> str:
    lines = ["# Decisions", "", "| | |", "|---|---|"]
    for file in sorted((ROOT / "docs/decisions").glob("*.md")):
        number, _, title = file.read_text(encoding="utf-8").partition("\n")[0][2:].partition(": ")
        lines.append(f"| {number} | [{title}]({file.name}) |")
    return "\n".join(lines) + "\n"


def on_page_content(html: str, **_others: Any) -> str:
    """Leave out the roles of docstrings, which Markdown does not know (``:class:`Name```)."""
    return re.sub(r":(?:attr|class|data|exc|func|meth|mod):(?=<code>)", "", html)
