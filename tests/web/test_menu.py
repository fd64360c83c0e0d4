"""The menu is one row with all lists, and says how many texts wait."""

from __future__ import annotations

import re

from heedful.web.menu import MENU
from tests.web.support import browsing, fill, words_of


def test_the_menu_holds_every_page_once(tmp_path):
    with browsing(tmp_path) as browser:
        addresses = [page.address for page in browser.site.pages]
    addresses.remove("/send/{id:path}")  # a file to send, without a menu
    for address in addresses:
        pages = [page for page in MENU if page.holds(address.partition("/{")[0])]
        assert len(pages) == 1, address


def test_a_page_is_marked_in_the_menu(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        for page in MENU:
            text = browser.get(page.address).text
            header = text.partition("</header>")[0]
            current = re.findall(r'aria-current="page">([^<]*)<', header)
            assert current == [page.name]
            for other in MENU:
                assert f">{other.name}</a>" in header


def test_the_inbox_has_the_number_that_waits(tmp_path):
    with browsing(tmp_path) as browser:
        fill(browser.api)
        browser.open(browser.api._all)
        assert "Inbox 1 Proof" in words_of(browser.get("/lessons").text)
