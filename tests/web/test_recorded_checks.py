"""A mark that a check passed stands only where somebody recorded it."""

from __future__ import annotations

from typing import Any

from tests.service.support import read_data
from tests.web.support import Browser, words_of


def record(browser: Browser, name: str, *attempts: dict[str, Any]) -> None:
    """Record a loop whose attempts have these evaluations."""
    body: dict[str, Any] = {"task": "sort", "policy": "thorough"}
    read_data(browser.api.put(f"/v1/loops/{name}", json=body), 201)
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
        row["name"]: [cell.get("text", "") for cell in row["cells"]]
        for row in grid["rows"]
        if row["about"] == "check"
    }


def test_a_check_that_nobody_recorded_has_no_mark(browser: Browser):
    record(browser, "one", fails("facts", "tone"), fails("facts"))
    loop = browser.data("/loops/one")
    checks = loop["tried"]["attempts"][1]["checks"]
    assert [check["check_name"] for check in checks] == ["facts"]
    cells = cells_of(loop["matrix"])
    assert cells == {"facts": ["✗", "✗"], "tone": ["✗", ""]}
    assert "tone passed" not in words_of(browser.get("/loops/one").text)


def test_a_check_that_failed_once_and_then_all_that_ran_passed_has_a_mark(
    browser: Browser,
):
    record(browser, "slow", fails("span", met=0), fails(met=1))
    grid = browser.data("/loops/slow")["matrix"]
    assert cells_of(grid)["span"] == ["✗", "✓"]
