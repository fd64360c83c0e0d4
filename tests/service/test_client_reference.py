"""The reference names every method of the client, with its defaults."""

import inspect
from pathlib import Path

import pytest

from heedful.service.client import Client

SECTION = (
    (Path(__file__).parents[2] / "docs" / "reference.md")
    .read_text(encoding="utf-8")
    .partition("\n## Client\n")[2]
    .partition("\n## ")[0]
)


def methods(kind):
    named = inspect.getmembers(kind, inspect.isfunction)
    return [pair for pair in named if not pair[0].startswith("_")]


def shown(name, function):
    _, *parameters = inspect.signature(function).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"{name}{inspect.Signature(plain)}".replace("'", '"')


@pytest.mark.parametrize(("name", "method"), methods(Client))
def test_every_method_is_there_with_its_defaults(name, method):
    usage = "Usage(calls=0, prompt_tokens=0, completion_tokens=0, cost=0.0, seconds=0.0)"
    assert f"`{shown(name, method).replace(usage, 'Usage()')}`" in SECTION


def test_so_is_the_client_itself():
    assert f"`heedful.{shown('Client', Client.__init__)}`" in SECTION
