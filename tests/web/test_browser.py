"""The page in a real browser, on both brokers: every view, every form, no error, accessible."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
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
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert errors == []


def picture(browser: Any, name: str, width: int = 1320, scheme: str = "light") -> None:
    """Keep a picture of the whole page on a screen of a width, which shows it from then on.

    :param scheme: light or dark
    """
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    screen = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    height = min(browser.execute_script("return document.documentElement.scrollHeight"), 2400)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**screen, "height": height})
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}.png"
    assert browser.save_screenshot(str(path))
    assert path.stat().st_size > 10_000


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


def too_wide(browser: Any) -> list[str]:
    """Return what is wider than its place: tables by name, and the page itself."""
    script = (
        "return [...document.querySelectorAll('html, .scroll')]"
        ".filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel ?? 'the page')"
    )
    return list(browser.execute_script(script))


def text(browser: Any) -> str:
    """Return the text of the page."""
    return str(browser.execute_script("return document.querySelector('main')?.innerText ?? ''"))


def texts(browser: Any, selector: str) -> list[str]:
    """Return the texts of elements."""
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)"
    return list(browser.execute_script(script, selector))


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
    for name, typed in fields.items():
        browser.find_element("id", name).send_keys(typed)
    preview(browser, f"form[action='/action/{action}'] button:last-of-type")


def preview(browser: Any, button: str) -> None:
    """Send the form of a button, and wait for what it would change."""
    # In one step, as the part of the page that has it may be replaced at any time.
    click = "const button = document.querySelector(arguments[0]); button.click();"
    told = browser.execute_script(f"{click} return button.textContent", button)
    assert told.startswith("Preview")
    wait_for(browser, PLAN)


def confirm(browser: Any, outcome: str) -> None:
    """Confirm an action, and wait for its outcome."""
    browser.find_element("css selector", "main form button").click()
    # What would change may have the words of the outcome.
    wait_until(lambda: PLAN not in text(browser), PATIENCE_S, "the answer to the confirmation")
    wait_for(browser, outcome)


def addresses(world: World) -> dict[str, str]:
    return {
        "overview": "/",
        "groups": "/groups?sort=time_lag_ms",
        "share-group": f"/group?group_id={world.group}",
        "consumer-group": f"/group?group_id={world.consumers}",
        "topics": "/topics?internal=true",
        "topic": f"/topic?topic={world.topic}",
        "records": f"/records?topic={world.topic}&start=earliest",
        "record": f"/record?topic={world.topic}&partition=0&offset=1",
        "letters": f"/letters?queue={world.topic}",
        "search": f"/search?name={world.topic}",
        "tasks": "/tasks",
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
        for scheme, width in itertools.product(("light", "dark"), (1320, 390)):
            screen = f"{name}-{scheme}-{width}{'-kafka' if is_kafka else ''}"
            picture(browser, screen, width, scheme)
            assert violations(browser) == [], screen
            assert too_wide(browser) == [], screen
        outside = browser.execute_script(
            "return performance.getEntriesByType('resource').map(one => one.name)"
        )
        assert all(one.startswith(page.base) for one in outside), outside
    browser.get(page.base + addresses(world)["share-group"])
    bars = browser.find_elements("css selector", ".flight rect")
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
        assert "held by <b>worker</b> for" in bars[0].get_property("textContent")
        assert "delivered 1 time" in bars[0].get_property("textContent")
        earlier = "for (const key in seen.holds) seen.holds[key] -= 3600000; watch()"
        told = "drawAll(document); return document.querySelector('.flight rect').textContent"
        assert "for 1h 00m" in browser.execute_script(f"{earlier}; {told}")
    browser.get(page.base + addresses(world)["record"])
    stands = "unknown: " if is_kafka else "held by <b>worker</b> for "
    assert f"{world.group}: {stands}" in text(browser)
    browser.get(page.base + addresses(world)["records"])
    assert "<script>document.title='owned'</script>" in text(browser)
    assert browser.title.endswith(f"Records of {world.topic} · headrace")


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
    browser.find_element("id", "filter").send_keys(world.consumers)

    def rows() -> list[str]:
        return texts(browser, "#live-part tbody th")

    wait_until(lambda: rows() == [world.consumers], PATIENCE_S, "the filtered list")
    arrow = "return getComputedStyle(document.querySelector('th[aria-sort] a'), '::after').content"
    assert "↓" in browser.execute_script(arrow)
    assert f"filter={world.consumers}" in browser.current_url
    browser.find_element("css selector", "h1").click()
    browser.find_element("css selector", "body").send_keys("/")
    box = browser.switch_to.active_element
    assert box.get_attribute("id") == "search"
    box.send_keys(world.group)
    wait_until(
        lambda: browser.find_elements("css selector", "#hits:not([hidden]) a"), PATIENCE_S, "hits"
    )
    assert violations(browser) == []
    box.send_keys(Keys.ARROW_DOWN)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait_until(lambda: f"/group?group_id={world.group}" in browser.current_url, PATIENCE_S, "it")


def test_names_in_hits_and_pictures_are_printable(
    seen_world: World, page: Page, browser: Any
) -> None:
    prefix = unique("odd")
    commit(
        seen_world.bootstrap_servers, f"{prefix}\u202e\x1b\n\u2028é{'x' * 400}", seen_world.topic, 1
    )
    with client(page) as api:
        wait_until(
            lambda: api.get(f"/api/search?name={prefix}").json()["hits"], PATIENCE_S, "the group"
        )
    browser.get(f"{page.base}/groups")
    browser.find_element("id", "search").send_keys(prefix)
    wait_until(
        lambda: browser.find_elements("css selector", "#hits:not([hidden]) a"), PATIENCE_S, "hits"
    )
    (hit,) = texts(browser, "#hits a")
    assert f"{prefix}\\u202e\\u1b\\ua\\u2028éxxx" in hit
    assert len(hit) < 400
    span = {
        "first_offset": 1,
        "last_offset": 2,
        "state": "locked",
        "client_id": "a\u202eb",
        "held_ms": 1,
    }
    told = browser.execute_script("return told(arguments[0])", span)
    assert "held by a\\u202eb for" in told


def test_new_records_are_followed_and_json_is_coloured(
    seen_world: World, page: Page, browser: Any
) -> None:
    topic = create_topic(seen_world.bootstrap_servers, unique("followed"))
    produce(seen_world.bootstrap_servers, topic, [b'{"sku": "A-1", "big": 12345678901234567890}'])
    browser.get(f"{page.base}/records?topic={topic}")
    browser.find_element("link text", "Follow new records").click()
    wait_for(browser, "Stop following")
    produce(seen_world.bootstrap_servers, topic, [b'["<b>later</b>", -1.5e3, tru'])
    wait_for(browser, "<b>later</b>")
    kinds = "return [...document.querySelectorAll('pre span')].map(e => e.className)"
    coloured = zip(browser.execute_script(kinds), texts(browser, "pre span"), strict=True)
    assert [kind + text for kind, text in coloured] == [
        'json-text"<b>later</b>"',
        "json-number-1.5e3",
        'json-name"sku"',
        'json-text"A-1"',
        'json-name"big"',
        "json-number12345678901234567890",
    ]
    browser.get(f"{page.base}/record?topic={topic}&partition=0&offset=0")
    assert browser.find_element("css selector", "pre[data-format=json]").text == (
        '{\n  "sku": "A-1",\n  "big": 12345678901234567890\n}'
    )


def test_charts_tell_values_and_have_a_range(seen_world: World, page: Page, browser: Any) -> None:
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    browser.get(f"{page.base}/group?group_id={seen_world.consumers}")
    chart = "figure.chart svg"
    wait_until(lambda: browser.find_elements("css selector", chart), PATIENCE_S, "a chart")
    axis = "[...document.querySelectorAll('figure.chart .axis')].map(e => e.textContent)"
    times = "JSON.parse(document.querySelector('figure.chart').dataset.times)"
    marks, times_ms = browser.execute_script(f"return [{axis}, {times}]")
    assert f"now {datetime.fromtimestamp(times_ms[-1] / 1000, UTC):%H:%M:%S}" in marks
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
    # In one step each, as the part of the page that has the charts is replaced every two seconds.
    sizes = "[...document.querySelectorAll('svg .axis')].map(e => getComputedStyle(e).fontSize)"
    assert set(browser.execute_script(f"return {sizes}")) == {"11px"}
    place = browser.execute_script(
        "const {x, y, width, height} = document.querySelector(arguments[0])"
        ".getBoundingClientRect(); return [x + width / 2, y + height / 2]",
        chart,
    )
    told = "return document.querySelector('.drawing output')?.innerText"

    def values() -> str | None:
        pointer = ActionBuilder(browser)
        pointer.pointer_action.move_to_location(*map(int, place)).move_by(1, 0)
        pointer.perform()
        return str(browser.execute_script(told) or "")

    wait_until(values, PATIENCE_S, "the values under the pointer")
    browser.execute_script("document.querySelector('[data-range=\"60\"]').click()")
    pressed = "[data-range='60'][aria-pressed=true]"
    wait_until(lambda: browser.find_elements("css selector", pressed), PATIENCE_S, "the range")
    browser.execute_script("sessionStorage.clear()")


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
    field = browser.find_element("id", "value-share.session.timeout.ms")
    browser.execute_script("arguments[0].value = '46000'", field)
    preview(browser, "form:has([id='value-share.session.timeout.ms']) button")
    confirm(browser, "share.session.timeout.ms is 46000")
    browser.get(f"{page.base}/group?group_id={world.group}")
    if not is_kafka:
        browser.execute_script("document.querySelector('.flight-block details').open = true")
        form = "form[action='/action/release']"
        wait_until(lambda: browser.find_elements("css selector", form), PATIENCE_S, "the runs")
        assert violations(browser) == []
        picture(browser, "share-group-acting")
        preview(browser, "form[action='/action/release'] button")
        confirm(browser, "released")
    browser.get(f"{page.base}/topics")
    browser.execute_script("document.getElementById('new-topic').open = true")
    made = unique("made")
    fill(browser, "create-topic", {"create-topic-name": made, "create-topic-partitions": "2"})
    confirm(browser, "created")
    browser.get(f"{page.base}/topic?topic={made}")
    preview(browser, "form[action='/action/delete-topic'] button")
    confirm(browser, "deleted")
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
    address = f"/letters?queue={queue.name}"
    browser.get(page.base + address)
    assert not browser.find_elements("css selector", "form[action='/action/redrive']")
    log_in(browser, address)
    assert violations(browser) == []
    picture(browser, f"redrive{'-kafka' if is_kafka else ''}")
    records = browser.find_elements("css selector", "table.records td a[href^='/record?']")
    assert sorted(link.text for link in records) == [f"{source}-0@{n}" for n in range(3)]
    preview(browser, "[aria-label='Preview the redrive of letter 0@1']")
    assert "1 redriven" in text(browser)
    confirm(browser, "1 redriven")
    browser.get(page.base + address)
    wait_for(browser, "Redrive ended: 1 redriven")
    fill(browser, "redrive", {})
    confirm(browser, "2 redriven")
    browser.get(f"{page.base}/records?topic={source}&start=earliest")
    found = [one.text for one in browser.find_elements("css selector", "tbody pre.value")]
    assert sorted(found) == ["v0", "v1", "v2"]


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
