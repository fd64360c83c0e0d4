"""The page of keys shows what the API lists, and revokes a key."""

from __future__ import annotations

from tests.service.support import read_data
from tests.web.support import Browser


def test_keys_and_the_audit_are_those_of_the_api(browser: Browser):
    api = browser.api
    key = api.key("recall")
    data = browser.data("/keys")
    assert data["keys"] == read_data(api.get("/v1/keys"))["items"]
    assert data["audit"] == read_data(api.get("/v1/audit"))["items"]
    page = browser.get("/keys").text
    assert "key.create" in page
    assert key.rpartition("_")[2] not in page, "the secret"


def test_a_key_is_revoked_after_a_second_question(browser: Browser):
    api = browser.api
    api.key("recall")
    newest = browser.data("/keys")["keys"][0]
    page = browser.get("/keys").text
    form = page.partition(f'id="revoke-{newest["id"]}"')[2].partition("</form>")[0]
    assert 'type="checkbox" required' in form
    note = browser.do("revoke_key", id=newest["id"])
    assert f"quarantine revoke key:{newest['id']}" in note
    revoked = browser.data("/keys")["keys"][0]
    assert revoked["revoked"]
    assert browser.data("/keys")["audit"][0]["action"] == "key.revoke"
    assert f'id="revoke-{newest["id"]}"' not in browser.get("/keys").text


def test_a_key_of_other_projects_is_not_revoked(browser: Browser):
    other = browser.api.key("read", projects=("other",)).split("_")[1]
    form = {"token": browser.token, "id": other}
    assert browser.post("/do/revoke_key", form).status_code == 404
