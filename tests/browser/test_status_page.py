# SPDX-License-Identifier: Apache-2.0
"""The status page in a headless Chromium: no errors, fit for phones and for 500 tables."""

import time

import pytest

from ingest.observe.http_server import Control, HttpServer
from ingest.state.ownership import Pause
from ingest.state.request_files import Answer, RequestFiles
from storage.clock import SystemClock
from storage.io.local import LocalFileIO
from tests.browser.boards import busy_board, fresh_board
from tests.browser.chromium import Browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        Browser.found() is None, reason="no Chromium on the PATH (Debian package chromium)"
    ),
]

TOKEN = "operators-may-pause-this"
LOADED = "document.querySelector('#pipeline')?.textContent === 'shop'"


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def show(browser):
    """Opens the page of a board; at the end, nothing may have gone wrong in it."""
    open_now = []

    def opened(board, metrics, control=None, **screen):
        server = HttpServer(metrics, board, host="127.0.0.1", port=0, control=control).start()
        tab = browser.open(f"{server.url}/?every=1", **screen)
        open_now.append((server, tab))
        tab.wait(LOADED)
        return tab

    yield opened
    for server, tab in open_now:
        tab.close()
        server.close()
        assert tab.troubles == []


def text(tab, selector):
    return tab.ask(f"document.querySelector({selector!r})?.textContent ?? ''")


def count(tab, selector):
    return tab.ask(f"document.querySelectorAll({selector!r}).length")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(375, 800), (1280, 900)], ids=["phone", "desktop"])
def test_a_busy_board_fits_the_screen_and_can_be_read(show, width, height, dark):
    board, metrics, _ = busy_board(40)
    tab = show(board, metrics, width=width, height=height, dark=dark)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    cut = tab.ask(
        "[...document.querySelectorAll('h1, h2, .card .value, #rows td.name')]"
        ".filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)"
    )
    assert cut == []
    poor = tab.ask(_CONTRAST)
    assert poor == [], "text that is hard to read against its background"
    assert "lakeward resume -c CONFIG crm.payments" in text(tab, "#parked")
    assert "which is not there" in text(tab, "#parked")
    assert "RuntimeError" in text(tab, "#errors")
    assert "refused" in text(tab, "#schema")
    assert count(tab, "#batches .col") >= 30
    assert "envelope" in text(tab, "#bad")


def test_five_hundred_tables_are_searched_sorted_and_opened(show):
    board, metrics, _ = busy_board(500, parked=7, minutes=10)
    tab = show(board, metrics)
    assert text(tab, "#count") == "500 tables"
    assert count(tab, "#rows tr") == 50
    began = time.monotonic()
    tab.ask("document.querySelector('#all').click()")
    assert count(tab, "#rows tr") == 500
    # a machine that runs other suites beside takes 1.7 s
    assert time.monotonic() - began < 15
    tab.ask(
        "(() => { const i = document.querySelector('#search'); i.value = 'orders WARE';"
        " i.dispatchEvent(new Event('input')); })()"
    )
    names = "[...document.querySelectorAll('#rows .name')].map((e) => e.textContent)"
    found = tab.ask(names)
    assert found
    assert all("orders" in name and "ware" in name for name in found)
    tab.ask("document.querySelector('#columns th button').click()")
    assert tab.ask(names) == sorted(found)
    assert text(tab, "#columns th[aria-sort='ascending']") == "Table"
    tab.ask("document.querySelector('#columns th button').click()")
    assert tab.ask(names) == sorted(found, reverse=True)
    tab.ask("document.querySelector('#rows .name button').click()")
    tab.wait("document.querySelector('#rows tr.more dl') !== null")
    assert "level 5" in text(tab, "#rows tr.more")
    assert tab.ask("document.querySelector('#rows .name button').ariaExpanded") == "true"


def test_a_daemon_that_has_just_begun_has_a_page(show):
    board, metrics, _ = fresh_board()
    tab = show(board, metrics, width=375, height=800)
    assert "starting" in text(tab, "#state")
    assert "session is not ready yet" in text(tab, "#notes")
    assert "No table has been written yet" in text(tab, "#none")


def test_names_and_reasons_are_text_and_never_markup(show):
    board, metrics, _ = fresh_board()
    evil = "<img src=x onerror=alert(1)>"
    board.set_table_states({f"shop.{evil}": {"state": "parked", "reason": evil, "by": "stream"}})
    board.failed(RuntimeError(evil))
    tab = show(board, metrics)
    assert count(tab, "img") == 0
    assert evil in text(tab, "#parked")
    assert evil in text(tab, "#rows")


def test_it_says_since_when_the_daemon_cannot_be_reached_and_comes_back(browser):
    board, metrics, _ = busy_board(5, minutes=5)
    server = HttpServer(metrics, board, host="127.0.0.1", port=0).start()
    port = server.port
    tab = browser.open(f"{server.url}/?every=1")
    tab.wait(LOADED)
    server.close()
    tab.wait("!document.querySelector('#gone').classList.contains('hide')")
    assert "The daemon has been unreachable since" in text(tab, "#gone")
    assert text(tab, "#count") == "5 tables", "what it said last stays"
    with HttpServer(metrics, board, host="127.0.0.1", port=port):
        tab.wait("document.querySelector('#gone').classList.contains('hide')")
        assert text(tab, "#state") == "running"
        tab.close()
    assert all("ERR_CONNECTION_REFUSED" in each for each in tab.troubles)


def test_refreshing_stops_when_it_is_told_to(show):
    board, metrics, _ = busy_board(5, minutes=5)
    tab = show(board, metrics)
    tab.ask("document.querySelector('#hold').click()")
    assert text(tab, "#hold") == "Resume refresh"
    board.set_state("draining")
    time.sleep(2)
    assert text(tab, "#state") == "running"
    tab.ask("document.querySelector('#hold').click()")
    tab.wait("document.querySelector('#state').textContent === 'draining'")


def test_buttons_need_the_token_and_tell_what_became_of_it(show, tmp_path):
    board, metrics, clock = busy_board(5, parked=1, minutes=5)
    files = RequestFiles(LocalFileIO(durable=False), str(tmp_path), "shop")
    control = Control(TOKEN, files, drain=lambda: None, wake=lambda: None, clock=SystemClock())
    tab = show(board, metrics, control)
    assert count(tab, "#actions button") == 0
    assert count(tab, "#parked .cmd button") == 1, "only that which copies"

    def enter(token):
        tab.ask(f"document.querySelector('#token').value = '{token}'")
        tab.ask("document.querySelector('#token-form button').click()")

    enter(TOKEN)
    tab.wait("document.querySelectorAll('#actions button').length === 4")
    assert tab.ask("document.cookie") == ""
    assert tab.ask("localStorage.length") == 0
    tab.ask("document.querySelectorAll('#parked .cmd button')[1].click()")
    tab.wait("document.querySelector('#said').textContent.includes('between two batches')")
    (asked,) = files.pending()
    assert (asked.kind, asked.arguments) == ("resume", {"tables": ["crm.payments"]})
    board.answered(
        Answer(id=asked.id, kind="resume", state="done", text="resumed crm.payments", at_ms=1)
    )
    tab.wait("document.querySelector('#said').textContent.endsWith('resumed crm.payments')")
    board.set_paused(Pause(reason="vacuum", since_ms=clock.now_ms()))
    board.set_state("paused")
    tab.wait("document.querySelector('#actions button').textContent === 'Resume stream'")
    assert "vacuum" in text(tab, "#notes")


_CONTRAST = """
(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const rgb = parse(getComputedStyle(node).backgroundColor);
      if (rgb.length === 3 || rgb[3] > 0.9) return rgb;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || /SCRIPT|STYLE/.test(parent.tagName)) continue;
    if (!parent.getClientRects().length) continue;
    const one = light(parse(getComputedStyle(parent).color)), two = light(behind(parent));
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) poor.push(node.textContent.trim().slice(0, 40) + " " + ratio.toFixed(2));
  }
  return [...new Set(poor)];
})()
"""
