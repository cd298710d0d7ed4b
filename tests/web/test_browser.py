"""The page in a real browser, on both brokers: every view, every form, no error, accessible."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.clients.confluent import create_topic, gone_records, produce
from tests.clients.test_dlq import Queue
from tests.support import HeadraceProcess, unique, wait_until
from tests.web.serving import (
    PICTURES,
    TOKEN,
    Page,
    World,
    browser_missing,
    client,
    commit,
    served,
    show_whole,
)
from tests.web.test_api import settled

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(browser_missing() is not None, reason=str(browser_missing())),
]

PATIENCE_S = 60
PLAN = "Nothing has changed yet"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


@pytest.fixture(autouse=True)
def quiet(browser: Any) -> Iterator[None]:
    """Fail if a page has logged an error; leave it, so that it does not poll a page that ends."""
    browser.get_log("browser")
    yield
    errors = [one for one in browser.get_log("browser") if one["level"] in ("WARNING", "SEVERE")]
    browser.get("about:blank")
    browser.delete_all_cookies()
    assert errors == []


def picture(browser: Any, name: str, width: int = 1320) -> Path:
    """Keep a picture of the whole page."""
    show_whole(browser, width)
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}.png"
    assert browser.save_screenshot(str(path))
    assert path.stat().st_size > 10_000
    return path


def violations(browser: Any) -> list[str]:
    """Return what axe finds against the accessibility of the page."""
    axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    # As a program of the browser, not of the page, whose policy admits only its own.
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "const done = arguments[1];"
        "axe.run(document, {runOnly: arguments[0]}).then(found => done(found.violations));",
        _RULES,
    )
    return [f"{one['id']}: {json.dumps([n['target'] for n in one['nodes']])}" for one in found]


def text(browser: Any) -> str:
    """Return the text of the page."""
    return str(browser.execute_script("return document.querySelector('main')?.innerText ?? ''"))


def wait_for(browser: Any, wanted: str) -> None:
    """Wait until a text is on the page."""
    wait_until(lambda: wanted in text(browser), PATIENCE_S, f"{wanted!r} on the page", 0.2)


def log_in(browser: Any, address: str) -> None:
    """Log in on a page, and wait until it is back there."""
    browser.find_element("link text", "Log in to act").click()
    browser.find_element("id", "password").send_keys(TOKEN)
    browser.find_element("css selector", "main button").click()
    wait_until(lambda: address in browser.current_url, PATIENCE_S, "the page again")


def fill(browser: Any, action: str, fields: Mapping[str, str]) -> None:
    """Fill in the form of an action, send it, and wait for what it would change.

    :param fields: id → text
    """
    form = browser.find_element("css selector", f"form[action='/action/{action}']")
    for name, typed in fields.items():
        form.find_element("id", name).send_keys(typed)
    form.find_element("css selector", "button").click()
    wait_for(browser, PLAN)


def confirm(browser: Any, outcome: str) -> None:
    """Confirm an action, and wait for its outcome."""
    browser.find_element("css selector", "button.danger").click()
    # What would change may have the words of the outcome.
    wait_until(lambda: PLAN not in text(browser), PATIENCE_S, "the answer to the confirmation")
    wait_for(browser, outcome)


def addresses(world: World) -> dict[str, str]:
    return {
        "overview": "/",
        "groups": "/groups?sort=time",
        "share-group": f"/group?group_id={world.group}",
        "consumer-group": f"/group?group_id={world.consumers}",
        "topics": "/topics?internal=yes",
        "topic": f"/topic?topic={world.topic}",
        "records": f"/records?topic={world.topic}&start=earliest",
        "record": f"/record?topic={world.topic}&partition=0&offset=1",
        "tasks": "/tasks",
        "actions": "/actions",
        "api": "/api",
        "login": "/login",
    }


def test_every_view(seen_world: World, page: Page, browser: Any, is_kafka: bool) -> None:
    world = seen_world
    with client(page) as api:
        settled(api, world.consumers)
    for name, address in addresses(world).items():
        browser.get(page.base + address)
        assert browser.find_elements("css selector", "main h1"), name
        if not is_kafka or name == "share-group":
            assert violations(browser) == [], name
            picture(browser, f"{name}{'-kafka' if is_kafka else ''}")
        outside = browser.execute_script(
            "return performance.getEntriesByType('resource').map(one => one.name)"
        )
        assert all(one.startswith(page.base) for one in outside), outside
    browser.get(page.base + addresses(world)["share-group"])
    bars = browser.find_elements("css selector", "svg.flight rect")
    if is_kafka:
        assert "this broker does not tell which records are held" in text(browser)
        assert not bars
    else:
        assert [one.get_attribute("class").split()[0] for one in bars] == [
            "locked",
            "available",
            "locked",
            "finished",
            "locked",
        ]
        assert "held by <b>worker</b> 127.0.0.1 for" in bars[0].get_property("textContent")
    browser.get(page.base + addresses(world)["records"])
    assert "<script>document.title='owned'</script>" in text(browser)
    assert browser.title == f"Records of {world.topic} · headrace"


def test_a_page_follows_what_happens(seen_world: World, page: Page, browser: Any) -> None:
    world = seen_world
    with client(page) as api:
        settled(api, world.consumers)
    browser.get(f"{page.base}/topic?topic={world.topic}")
    browser.execute_script("window.notReloaded = true")
    before = int(text(browser).partition("\n1\t")[2].split("\t")[1].replace(",", ""))
    produce(world.bootstrap_servers, world.topic, [b"later"] * 3, partition=1)
    cells = "tbody tr:nth-child(2) td:nth-of-type(2)"
    selector = f"section[aria-labelledby=partitions] {cells}"
    wait_until(
        lambda: (
            int(browser.execute_script(f"return document.querySelector('{selector}').innerText"))
            == before + 3
        ),
        PATIENCE_S,
        "the new end offset",
        0.2,
    )
    assert browser.execute_script("return window.notReloaded")


def test_filters_and_keys(seen_world: World, page: Page, browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    world = seen_world
    with client(page) as api:
        settled(api, world.consumers)
    browser.get(f"{page.base}/groups")
    # The first stop of the Tab key is the link past the navigation.
    browser.find_element("css selector", "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("class") == "skip"
    box = browser.find_element("id", "filter")
    box.send_keys(world.consumers, Keys.ENTER)
    wait_until(lambda: f"filter={world.consumers}" in browser.current_url, PATIENCE_S, "the filter")
    rows = browser.find_elements("css selector", "#live-part tbody tr")
    assert [row.text.split()[0] for row in rows] == [world.consumers]
    link = browser.find_element("css selector", "#live-part tbody a")
    link.send_keys(Keys.ENTER)
    wait_until(lambda: "/group?group_id=" in browser.current_url, PATIENCE_S, "the group")


def test_actions_are_shown_confirmed_and_listed(
    seen_world: World, page: Page, browser: Any, is_kafka: bool
) -> None:
    world = seen_world
    group = f"/group?group_id={world.consumers}"
    browser.get(page.base + group)
    assert not browser.find_elements("css selector", "form[action^='/action/']")
    log_in(browser, group)
    assert browser.find_elements("css selector", "form[action='/action/reset-offsets']")
    assert violations(browser) == []
    fill(browser, "reset-offsets", {"reset-offsets-to": "5"})
    assert violations(browser) == []
    picture(browser, f"confirm{'-kafka' if is_kafka else ''}")
    confirm(browser, "1 partition set")
    leaving = commit(world.bootstrap_servers, unique("leaving"), world.topic, 3)
    browser.get(f"{page.base}/group?group_id={leaving}")
    fill(browser, "delete-offsets", {})
    confirm(browser, "the offsets of 1 partition are deleted")
    browser.get(f"{page.base}/topic?topic={world.topic}")
    fill(browser, "produce", {"produce-value": "from the page", "produce-partition": "1"})
    confirm(browser, f"written to {world.topic}-1 at offset")
    browser.get(f"{page.base}/group?group_id={world.group}")
    assert violations(browser) == []
    option = "select[name=name] option[value='share.session.timeout.ms']"
    browser.find_element("css selector", option).click()
    fill(browser, "set-config", {"set-config-value": "46000"})
    confirm(browser, "share.session.timeout.ms is 46000")
    browser.get(f"{page.base}/group?group_id={world.group}")
    releases = browser.find_elements("css selector", "form[action='/action/release']")
    assert bool(releases) is not is_kafka
    if releases:
        picture(browser, "share-group-acting")
        fill(browser, "release", {"release-partition": "0", "release-first": "9"})
        confirm(browser, "released")
    else:
        assert "This broker cannot release records that members hold." in text(browser)
    browser.get(f"{page.base}/actions")
    assert "Set the offsets of group" in text(browser)
    assert "Delete the offsets of group" in text(browser)
    assert violations(browser) == []
    picture(browser, f"actions-done{'-kafka' if is_kafka else ''}")
    browser.find_element("css selector", "header form button").click()
    wait_until(
        lambda: browser.find_elements("link text", "Log in to act"), PATIENCE_S, "the log-out"
    )


def test_dead_letters_are_redriven(
    seen_world: World, page: Page, browser: Any, is_kafka: bool
) -> None:
    servers = seen_world.bootstrap_servers
    source = create_topic(servers, unique("scans"))
    gone_records(servers, source, 1, 3)
    queue = Queue({"bootstrap.servers": servers}, create_topic(servers, unique("dlq.scans")))
    queue.serve(source)
    for offset in range(3):
        queue.write(source, offset, b"v%d" % offset)
    queue.flush()
    address = f"/topic?topic={queue.name}"
    browser.get(page.base + address)
    assert not browser.find_elements("css selector", "form[action='/action/redrive']")
    log_in(browser, address)
    assert violations(browser) == []
    picture(browser, f"redrive{'-kafka' if is_kafka else ''}")
    fill(browser, "redrive", {"redrive-source": source, "redrive-max": "2"})
    assert "2 redriven" in text(browser)
    confirm(browser, "2 redriven")
    browser.get(page.base + address)
    fill(browser, "redrive", {})
    confirm(browser, "1 redriven")
    browser.get(f"{page.base}/records?topic={source}&start=earliest")
    found = [one.text for one in browser.find_elements("css selector", "tbody pre.value")]
    assert sorted(found) == ["v0", "v1", "v2"]


def test_dark_and_narrow(seen_world: World, page: Page, browser: Any, is_kafka: bool) -> None:
    if is_kafka:
        pytest.skip("the colours are those of the other broker")
    with client(page) as api:
        settled(api, seen_world.consumers)
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    try:
        for name in ("overview", "share-group"):
            browser.get(page.base + addresses(seen_world)[name])
            assert violations(browser) == [], name
            picture(browser, f"{name}-dark")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    for name in ("overview", "share-group", "records"):
        browser.set_window_size(500, 900)
        browser.get(page.base + addresses(seen_world)[name])
        assert browser.execute_script(wide) == 0, name
        picture(browser, f"{name}-narrow", width=500)


def test_a_dead_broker_looks_dead_until_it_is_back(browser: Any, tmp_path: Path) -> None:
    broker = HeadraceProcess(data_dir=tmp_path / "data")
    with broker, served(tmp_path, "--bootstrap-server", broker.bootstrap_servers) as page:
        create_topic(broker.bootstrap_servers, "orders")
        commit(broker.bootstrap_servers, "billing", "orders", 0)
        for address in ("/", "/group?group_id=billing"):
            browser.get(page.base + address)
            wait_until(lambda: state(browser) == "live", PATIENCE_S, "a live page")
            broker.kill()
            wait_for(browser, "no answer")
            assert is_grey(browser)
            browser.get_log("browser")  # answers with the status 502
            browser.refresh()
            wait_for(browser, "The cluster does not answer")
            assert state(browser) != "live"
            broker.start()
            wait_until(
                lambda: state(browser) == "live" and not is_grey(browser),
                PATIENCE_S,
                "a live page again",
            )
            assert "does not answer" not in text(browser)
        browser.get_log("browser")


def state(browser: Any) -> str | None:
    """Return what the page says of itself."""
    script = "return document.querySelector('#live')?.innerText"
    said = browser.execute_script(script)
    return None if said is None else str(said)


def is_grey(browser: Any) -> bool:
    """Return whether the numbers of the page are greyed."""
    script = "return getComputedStyle(document.querySelector('#live-part dl.tiles')).filter"
    return bool(browser.execute_script(script) == "grayscale(1)")
