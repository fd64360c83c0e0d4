"""The right answer of a loop that did not pass, given on its page or by command."""

from tests.cli.support import Desk
from tests.web.support import browsing, record_loop


def test_a_right_answer_is_given_on_the_page_of_a_loop(tmp_path):
    with browsing(tmp_path) as browser:
        record_loop(browser.api, "wrong", ["a", "b", "c", "d"], key="sort")
        browser.open(browser.api._all)
        note = browser.do("correct", id="wrong", accepted="a, b, c", why="sorted")
        again = browser.do("correct", id="wrong", accepted="a, b, c", why="sorted")
        lessons = browser.data("/lessons")["lessons"]
        refused = browser.post(
            "/do/correct", {"token": browser.token, "id": "wrong", "accepted": "a"}
        )

    assert note == "The next loops are told this answer."
    assert again == "It is known already."
    assert [lesson["trust"] for lesson in lessons] == ["user"]
    assert refused.status_code == 422


def test_a_right_answer_is_given_by_command(tmp_path):
    with browsing(tmp_path) as browser:
        record_loop(browser.api, "wrong", ["a", "b", "c", "d"], key="sort")
    desk = Desk(tmp_path)
    scope = {"HEEDFUL_TENANT": "acme", "HEEDFUL_PROJECT": "main"}
    line = "correct wrong 'a, b, c' --by ann --json"
    done = desk.heedful(line, HEEDFUL_DB="heedful.db", **scope)
    assert done.json["lessons"] == [1]
    again = desk.heedful(line, HEEDFUL_DB="heedful.db", **scope)
    assert again.json["lessons"] == []
