"""What the check `coverage` says where there are no figures of this code."""

import os

import pytest

from scripts import room_coverage
from scripts.check import NOT_MEASURED


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one module, and no data."""
    monkeypatch.setattr(room_coverage, "ROOT", tmp_path)
    monkeypatch.setattr(room_coverage, "DATA", tmp_path / ".coverage")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    return tmp_path


@pytest.mark.parametrize("is_older", [False, True], ids=["no data", "older data"])
@pytest.mark.parametrize(
    ("cover", "code"),
    [pytest.param("", 0, id="told"), pytest.param("1", 1, id="an error with COVER=1")],
)
def test_without_figures_of_this_code(
    checkout, monkeypatch, capsys, is_older, cover, code
):
    monkeypatch.setenv("COVER", cover)
    if is_older:
        room_coverage.DATA.touch()
        os.utime(room_coverage.DATA, (0, 0))
    assert room_coverage.main() == code
    assert capsys.readouterr().out.startswith(NOT_MEASURED)


def test_data_that_are_newer_than_the_code_are_of_this_code(checkout):
    room_coverage.DATA.touch()
    assert not room_coverage.is_outdated()
