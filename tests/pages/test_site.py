"""The documentation as a site: each link leads somewhere, and nothing comes from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.support import ROOT


class Links(HTMLParser):
    """The links and the anchors of a page.

    :ivar loaded: addresses that the browser opens by itself
    """

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {"", "__skip"}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if "href" in given:
            (self.links if tag == "a" else self.loaded).append(given["href"])
        if "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_links(site: Path) -> None:
    pages = {page.resolve(): Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 30
    dead = []
    for page, found in pages.items():
        if page.name == "404.html":
            continue  # its links begin at the root of a server
        for link in found.links + found.loaded:
            address, anchor = urldefrag(link)
            if "://" in address or address.startswith("mailto:"):
                continue
            target = (page.parent / unquote(address)).resolve() if address else page
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            if not target.exists() or (known and unquote(anchor) not in known.anchors):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = [Links(page) for page in site.rglob("*.html")]
    assert [address for page in pages for address in page.loaded if "//" in address] == []


def test_the_reference_has_what_the_package_exports(site: Path) -> None:
    import headrace
    import headrace.admin
    import headrace.client
    import headrace.spark

    anchors = Links(site / "reference/index.html").anchors
    names = {anchor.rpartition(".")[2] for anchor in anchors}
    for package in (headrace, headrace.admin, headrace.client, headrace.spark):
        assert set(package.__all__) - names - {"__version__"} == set(), package.__name__
