"""Addresses of pages take the beginning of an id, as the commands do."""

import pytest

from tests.service.support import read_data
from tests.web.support import browsing


@pytest.mark.both_nightly
def test_the_beginning_of_an_id_leads_to_its_loop(tmp_path):
    ids = [f"{short:f<32}" for short in ("0cb7fbdb", "0cb7fb00")]
    with browsing(tmp_path) as browser:
        api = browser.open(browser.api._all).api
        for id in ids:
            answer = api.put(f"/v1/loops/{id}", json={"task": "t"})
            read_data(answer, 201)
        page = browser.data("/loops/0cb7fbdb")
        assert page["name"] == ids[0]
        assert browser.get("/loops/0cb7fb00").status_code == 200

        ambiguous = browser.get("/loops/0cb7fb")
        assert ambiguous.status_code == 422
        assert all(id in ambiguous.text for id in ids)
        assert browser.get("/loops/0cb7fbd0").status_code == 404


def test_the_data_of_the_address_of_home_are_those_of_home(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open(browser.api._all)
        data = browser.get(".json?project=main").json()
        assert data == browser.data("/home?project=main")
