"""A mark that a check passed stands only where somebody recorded it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.support import read_data
from tests.web.support import Browser, words_of


def record(browser: Browser, name: str, *attempts: dict[str, Any]) -> None:
    """Record a loop whose attempts have these evaluations."""
    loop = {"task": name, "policy": "thorough"}
    read_data(browser.api.put(f"/v1/loops/{name}", json=loop), 201)
    for number, evaluation in enumerate(attempts, 1):
        body = {"output": str(number), "evaluation": evaluation}
        path = f"/v1/loops/{name}/attempts/{number}"
        read_data(browser.api.put(path, json=body))


def fails(*checks: str, **fields: float) -> dict[str, Any]:
    """Return an evaluation in which these checks found something."""
    findings = [{"check": check, "message": "no"} for check in checks]
    return {"findings": findings, **fields}


def cells_of(grid: dict[str, Any]) -> dict[str, list[str]]:
    """Return the texts of the rows of checks, by check."""
    return {
        row["name"]: [cell["text"] for cell in row["cells"]]
        for row in grid["rows"]
        if row["about"] == "check"
    }


def test_a_check_that_nobody_recorded_has_no_mark(browser: Browser):
    record(browser, "one", fails("facts", "tone"), fails("facts"))
    loop = browser.data("/loops/one")
    assert loop["made"][1]["checked"] == []
    cells = cells_of(loop["matrix"])
    assert cells == {"facts": ["✗", "✗"], "tone": ["✗", "none"]}
    assert "tone passed" not in words_of(browser.get("/loops/one").text)

    both = "/loops/one?against=1&attempt=2"
    rows = browser.data(both)["sides"]["rows"]
    statuses = {row["name"]: row["statuses"] for row in rows}
    assert statuses["tone"] == ["failed", "no finding"]


@pytest.mark.parametrize(("a", "b"), [("slow", "quick"), ("quick", "slow")])
def test_two_loops_with_the_same_evidence_have_the_same_mark(
    browser: Browser, a: str, b: str
):
    record(browser, "slow", fails("span", met=0), fails(met=1))
    record(browser, "quick", fails(met=1))
    pair = browser.data(f"/loops/compare?a={a}&b={b}")
    cells = {loop["id"]: cells_of(loop["matrix"])["span"] for loop in pair["loops"]}
    assert cells == {"slow": ["✗", "✓"], "quick": ["✓"]}
