"""The recipes of the docs survive what a model may first answer instead."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import run_docs

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"
BLOCKS = list(run_docs.blocks(PAGE.read_text("utf-8")))
RECIPES = [block for block in BLOCKS if block.title]
BAD_FIRST_ANSWERS = {
    "prose around JSON": 'Of course! Here you are: {"number": "1", "total": 2.5}. Bye.',
    "a fence": '```json\n{"number": "1", "total": 2.5}\n```',
    "cut JSON": '{"number": "1", "tot',
    "a list": '["1", 2.5]',
    "null": "null",
    "a number for a text": '{"number": 1, "total": 2.5}',
    "nothing": "",
    "a refusal in prose": "I am sorry, but I cannot help with that.",
}


def printed_by(recipe: run_docs.Block) -> list[str]:
    """The lines that the docs show below the program, without counts of attempts."""
    console = next(
        block
        for block in BLOCKS
        if block.line > recipe.line and block.language == "console"
    )
    printed = next(text for _, text in run_docs.steps(console.body))
    return without_counts(printed)


def without_counts(output: str) -> list[str]:
    return [re.sub(r" \d+$", "", line) for line in output.strip().splitlines()]


def program_of(recipe: run_docs.Block) -> Any:
    """The program, whose function `model` is wrapped as soon as it is defined."""
    tree = ast.parse(recipe.body)
    names = [getattr(statement, "name", "") for statement in tree.body]
    wrapping = ast.parse("model = wrap(model)").body
    place = names.index("model") + 1
    tree.body[place:place] = wrapping
    return compile(ast.fix_missing_locations(tree), recipe.title, "exec")


@pytest.mark.parametrize("answer", BAD_FIRST_ANSWERS)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_survives_a_bad_first_answer(
    recipe: run_docs.Block,
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = [BAD_FIRST_ANSWERS[answer]]

    def wrap(model: Callable[[str], str]) -> Callable[[str], str]:
        return lambda prompt: answers.pop() if answers else model(prompt)

    monkeypatch.chdir(tmp_path)
    exec(program_of(recipe), {"wrap": wrap, "__name__": "recipe"})
    assert answers == []
    assert without_counts(capsys.readouterr().out) == printed_by(recipe)
