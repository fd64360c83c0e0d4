"""Actions: which calls are the same action."""

from heedful.lessons.call_marks import whole_call
from tests.tables import cases

BUILD = {"command": "npm run build --prefix /srv/ann/app --port 8080"}
CALLS = {
    "description and timeout": (
        ("Bash", BUILD),
        ("Bash", {**BUILD, "description": "Build it", "timeout": 9}),
        True,
    ),
    "the beginning of its output": (
        ("Bash", BUILD),
        ("Bash", {"command": f"{BUILD['command']} 2>&1 | head -20"}),
        True,
    ),
    "no tool": (
        ("Bash", BUILD),
        ("", "npm run build --prefix ./app --port 8081"),
        False,
    ),
    "a list as one text": (
        ("shell", {"command": ["ls", "a b"]}),
        ("", "ls 'a b'"),
        True,
    ),
    "another command": (
        ("Bash", BUILD),
        ("", "npm run lint --prefix /srv/ann/app --port 8080"),
        False,
    ),
    "another tool": (("Read", {"path": "x.py"}), ("Write", {"path": "x.py"}), False),
}


@cases("first, second, same", CALLS)
def test_the_same_action_in_other_particulars_or_another_action(first, second, same):
    assert (whole_call(*first) == whole_call(*second)) == same


def test_no_secret_is_in_the_text():
    mark = whole_call("", "aws --key AKIAIOSFODNN7EXAMPLE ls")
    assert "AKIAIOSFODNN7EXAMPLE" not in mark.name
