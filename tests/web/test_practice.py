"""The pages and the routes leave practices out, and link a practice and its loop."""

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.store import loops
from tests.practising import practise_in_vain
from tests.service.support import read_data
from tests.web.support import browsing

SCOPE = Scope("acme", "main")


async def practise(memory: Memory) -> list[str]:
    """Practise a task that stays unsolved; return the ids: of the user's loop, then of
    the practice.
    """
    await practise_in_vain(memory, policy="default, attempts.limit=1")
    newest, _ = await memory.store.read(memory.scope, loops.newest, 9, practices=True)
    return [loop.id for loop in reversed(newest)]


@pytest.mark.both_nightly
def test_pages_count_no_practice_and_link_it_with_its_loop(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        old, new = api.run(practise(Memory(api.setup.store, SCOPE)))
        browser.open(api._all)
        [row] = browser.data("/loops")["loops"]
        assert row["id"] == old
        for page in ("", "/loops", "/proof"):
            assert new not in browser.get(page).text
        home = browser.data("/home")
        assert [loop["id"] for loop in home["unsolved"]] == [old]

        assert f"/loops/{new}" in browser.get(f"/loops/{old}").text
        assert f"/loops/{old}" in browser.get(f"/loops/{new}").text


@pytest.mark.both_nightly
def test_routes_list_no_practice_and_name_it_in_the_record(tmp_path):
    with browsing(tmp_path) as browser:
        api = browser.api
        old, new = api.run(practise(Memory(api.setup.store, SCOPE)))
        listed = read_data(api.get("/v1/loops"))
        assert [loop["id"] for loop in listed["items"]] == [old]
        assert read_data(api.get(f"/v1/loops/{old}"))["practices"] == [new]
        assert read_data(api.get(f"/v1/loops/{new}"))["practises"] == old
