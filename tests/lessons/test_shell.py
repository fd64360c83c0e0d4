"""Shell: which programs a command line runs, and what nobody can tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.lessons.shell import read_command


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        pytest.param("go test ./... 2>&1 | tail -20", "go tail", id="a pipe"),
        pytest.param("A=1 /usr/bin/git log > x; cd y && make", "git make", id="a path"),
        pytest.param("for f in *.py; do pytest $f; done", "pytest", id="a loop"),
        pytest.param("if [ -f x ]; then npm test; fi", "npm", id="a condition"),
        pytest.param("cd a && (make; npm t) > x 2>&1", "make npm", id="a group"),
        pytest.param("'curl' x", "curl", id="quotes"),
        pytest.param('c"ur"l x', "curl", id="quotes within a word"),
        pytest.param("\\curl x", "curl", id="a backslash"),
        pytest.param("make `curl x`", "make curl", id="backticks"),
        pytest.param("echo \"don't $(curl x) can't\"", "curl", id="in double quotes"),
        pytest.param("make <(curl x)", "make curl", id="a process as a file"),
        pytest.param("a=$(make) && echo $a", "make", id="an assignment"),
        pytest.param("sh -c 'wget x; make'", "sh wget make", id="a shell"),
        pytest.param("bash -o pipefail -c 'make'", "bash make", id="options before"),
        pytest.param("env A=1 curl x", "env curl", id="env"),
        pytest.param("timeout -k 5 60 make", "timeout make", id="timeout"),
        pytest.param("nohup sh -c 'curl x'", "nohup sh curl", id="two runners"),
        pytest.param("rg 'a|b; c' src", "rg", id="a text in quotes is no program"),
        pytest.param("make # curl x", "make", id="a comment is no program"),
        pytest.param("python - <<E\nimport os; a()\nE", "python", id="a document"),
        pytest.param(
            "git commit -m \"$(cat <<'E'\nmend: a; b | c\nE\n)\"",
            "git cat",
            id="a document in a substitution",
        ),
        pytest.param("sh -ce 'curl x'", "sh curl", id="a shell with two options"),
        pytest.param("xargs -0 -n 1 curl x", "xargs curl", id="options of a runner"),
        pytest.param("sudo 7curl x", "sudo 7curl", id="a program with a number"),
        pytest.param("find . -exec curl x", "find curl", id="a program for files"),
        pytest.param("cat <<-E\n\tE\ncurl x", "cat curl", id="a margin"),
        pytest.param("watch curl x", "watch curl", id="a program that repeats another"),
        pytest.param(". bin/env && make", ". make", id="a script for this shell"),
        pytest.param("source env; make", "source make", id="a script by its long word"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_every_program_of_a_line_is_named(line, programs):
    command = read_command(line)
    assert command.programs == tuple(programs.split())
    assert command.clear


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("$GET page", id="a variable as a program"),
        pytest.param("{curl,page}", id="braces"),
        pytest.param("/usr/bin/c?rl page", id="a pattern"),
        pytest.param("$'cu\\x72l' page", id="quotes with escapes"),
        pytest.param("f() { curl x; }; f", id="a function"),
        pytest.param("echo 'curl x' | sh", id="a shell that reads commands"),
        pytest.param("sh <<'E'\ncurl x\nE", id="a document for a shell"),
        pytest.param('sh -c "make $X"', id="a variable in the text of a shell"),
        pytest.param("sh -c", id="a shell without its text"),
        pytest.param("cat <<E\n$(curl x)\nE", id="a substitution in a document"),
        pytest.param("make ${X:-$(curl x)}", id="a default with a substitution"),
        pytest.param("tail < $X", id="a file by a variable"),
        pytest.param("make 'x", id="an open quote"),
        pytest.param("make $(curl x", id="an open substitution"),
        pytest.param("case $1 in a) curl x;; esac", id="a case"),
        pytest.param("[[ -f a && -d b ]] && make", id="a test of bash"),
        pytest.param("$(" * 20 + "make" + ")" * 20, id="too deep"),
        pytest.param("pwsh -Command 'curl x'", id="another shell's option"),
        pytest.param("fish --command 'curl x'", id="a long option of a shell"),
        pytest.param("bash -c -- 'curl x'", id="an option before a shell's text"),
        pytest.param("bash -oc pipefail 'curl x'", id="a value before a shell's text"),
        pytest.param("cat x | bash -o pipefail", id="a shell with a value only"),
        pytest.param("sh /dev/stdin < x", id="a script from elsewhere"),
        pytest.param("env -u make curl x", id="a value of env"),
        pytest.param("xargs -a make curl x", id="a value of xargs"),
        pytest.param("xargs -n make curl x", id="a value that is no number"),
        pytest.param("env -S'curl x'", id="a text that env splits"),
        pytest.param("sudo --user make curl x", id="a long option of sudo"),
        pytest.param("cat <<E-F\nE-F\ncurl x\nE", id="a sign in a delimiter"),
        pytest.param("cat <<E\n E\n: <<Z\n", id="a margin that is none"),
        pytest.param("time -p curl x", id="an option of time"),
        pytest.param("time -- curl x", id="the end of options of time"),
        pytest.param("exec -a make curl x", id="an option of exec"),
        pytest.param("builtin eval 'curl x'", id="a word of the shell behind another"),
        pytest.param("source /dev/stdin < x", id="a script from standard input"),
        *(
            pytest.param(f"{word} curl x", id=f"behind {word}")
            for word in "eval coproc trap busybox parallel flock su Powershell.EXE "
            "./tmux".split()
        ),
        pytest.param("function f { curl x; }; f", id="a function by its word"),
        pytest.param("alias make=curl; make x", id="an alias"),
    ],
)
def test_what_cannot_be_told_is_not_clear(line):
    assert not read_command(line).clear


@pytest.mark.parametrize(
    ("line", "has_address"),
    [
        pytest.param("make docs URL=https://a.test", True, id="in an argument"),
        pytest.param("make 'https://a.test'", True, id="in quotes"),
        pytest.param("tail < /dev/tcp/a.test/80", True, id="a connection"),
        pytest.param("make $(echo https://a.test)", True, id="in a substitution"),
        pytest.param("git commit -m 'see https://a.test'", False, id="in a message"),
        pytest.param("make docs", False, id="none"),
        pytest.param("npm i 'a@https://a.test'", True, id="after a name"),
        pytest.param("npm i '--registry=https://a.test'", True, id="of an option"),
        pytest.param("make URL=HTTPS://a.test", True, id="in capital letters"),
        pytest.param("git commit -am 'see https://a.test'", False, id="two options"),
        pytest.param("gh pr create --body='see ftp://a'", False, id="a long message"),
        pytest.param("echo 'see https://a.test'", False, id="in a text to print"),
        pytest.param("git clone git@a.test:x/y", True, id="of another computer's user"),
        pytest.param("npm i @a/b.c@1.2.3 x@1.2:3", False, id="a version"),
    ],
)
def test_an_address_is_found(line, has_address):
    assert read_command(line).address is has_address


@given(st.text(alphabet="ab=1 \n\t'\"`$(){}[]<>|;&#\\-/!*?~", max_size=60))
def test_any_line_is_read_to_its_end(line):
    command = read_command(line)
    assert all(command.programs)
    assert "" not in command.programs


@pytest.mark.parametrize(
    "piece", ["$(", "'\"`", ">", "<<a ", "make;", "\\", "(", "`a`", "${a", '"$(a)"']
)
def test_a_long_line_is_read_within_the_time_of_a_test(piece):
    assert len(read_command(piece * 30_000).programs) <= 2
