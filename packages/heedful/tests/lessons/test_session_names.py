"""Names that a session gives to what it makes are no part of an error."""

from heedful.lessons.mistake import Call, Fix, Mistake
from heedful.lessons.session_names import (
    MadeNames,
    fits_other_names,
    made_names,
    without_names,
)
from tests.tables import cases

CONTENT = {"content": "print()"}


@cases(
    "command, branches, files",
    {
        "checkout": ("git checkout -q -b feat/x", {"feat/x"}, set()),
        "branch": ("git branch fix main", {"fix"}, set()),
        "not made": ("git checkout main", set(), set()),
        "folder": ("mkdir -p build/cart", set(), {"cart"}),
        "message": ("git commit -m fix", set(), set()),
    },
)
def test_a_command_makes_branches_and_files(command, branches, files):
    names = made_names([command])
    assert names.branches == branches
    assert names.files == files


@cases(
    "calls, files",
    {
        "new": ([{"file_path": "/r/a/cart.py", **CONTENT}], {"cart.py"}),
        "read before": (
            [{"file_path": "/r/a/cart.py"}, {"file_path": "/r/a/cart.py", **CONTENT}],
            set(),
        ),
    },
)
def test_a_file_is_new_if_it_was_not_read_before(calls, files):
    assert made_names(calls).files == files


@cases(
    "error, call, bare",
    {
        "branch": (
            "fatal: a branch named 'feat/x' already exists",
            "git checkout -b feat/x",
            "fatal: a branch named '<branch>' already exists",
        ),
        "branch that git names": (
            "fatal: The current branch docs has no upstream branch.",
            "git push",
            "fatal: The current branch <branch> has no upstream branch.",
        ),
        "branch that git refuses": (
            "! [rejected] main -> main (fetch first)",
            "git push",
            "! [rejected] <branch> -> <branch> (fetch first)",
        ),
        "plain word without git": (
            "sed: cannot fix the text",
            "sed -i s/a/b/ x",
            "sed: cannot fix the text",
        ),
        "file of the call": (
            "run: no task in a/cart.py",
            "run cart.py",
            "run: no task in <file>",
        ),
        "file that the call does not name": (
            "run: no task in a/cart.py",
            "run all",
            "run: no task in a/cart.py",
        ),
    },
)
def test_an_error_without_names_of_the_session(error, call, bare):
    names = MadeNames(frozenset({"feat/x", "fix"}), frozenset({"cart.py"}))
    assert names.named_in(error, call).masked(error) == bare


NO_KIND = 'no matches for kind "Pool" in "pool.yaml"'


@cases(
    "command, error, kind, fix, fits",
    {
        "a step without the names": ("apply pool", NO_KIND, "step", "install", True),
        "a step with a name": ("apply pool", NO_KIND, "step", "add Pool", False),
        "an option": (
            "build -p a",
            "wants `rust` 2 or more",
            "command",
            "build +new -p a",
            True,
        ),
        "quotes": (
            "run b[1]",
            "sh: no matches found: b[1]",
            "command",
            "run 'b[1]'",
            True,
        ),
        "another value": (
            "get a.x",
            "unknown name in a.x",
            "command",
            "get a.y",
            False,
        ),
        "an edit": ("apply pool", NO_KIND, "edit", "-a", False),
    },
)
def test_a_fix_without_the_names_of_the_error_fits_others(
    command, error, kind, fix, fits
):
    mistake = Mistake(
        action=Call(tool="Bash", text=command),
        error=error,
        fix=Fix(kind=kind, calls=(Call(tool="Bash", text=fix),)),
    )
    assert fits_other_names(mistake) is fits


def test_an_error_of_names_only_is_that_of_no_others():
    assert without_names('KeyError: "Pool"') == ""
