"""Which calls break a rule, and which keep it."""

from heedful.lessons.rule_calls import acts_of, judge
from heedful.lessons.rule_parts import parts_of
from tests.tables import cases

PATCH = """*** Begin Patch
*** Update File: src/cart.ts
-const total = sum(prices)
+const total: any = sum(prices)
*** End Patch"""


def edit(path, old, new):
    """Return an edit of a file as Claude Code makes it."""
    return ("Edit", {"file_path": path, "old_string": old, "new_string": new})


COMMANDS = {
    "a program": ("never use npm", "npm ci", "broken"),
    "another program": ("never use npm", "pnpm ci", ""),
    "what it wants": ("we use pnpm, never npm", "pnpm add zod", "kept"),
    "both": ("we use pnpm, never npm", "pnpm i && npm run x", "broken"),
    "a folder of the program": ("never use npm", "/usr/bin/npm ci", "broken"),
    "a version of the program": ("never use pip", "pip3 install x", "broken"),
    "a version that is named": ("use python3, never python2", "python3 a.py", "kept"),
    "behind a folder": ("never git checkout", "cd a && git checkout b", "broken"),
    "another subcommand": ("never git checkout", "git status", ""),
    "an option before it": ("never git checkout", "git -C a checkout b", "broken"),
    "an argument with its name": ("never git checkout", "git log checkout", ""),
    "a message with its name": (
        "never git checkout",
        "git commit -m 'no git checkout'",
        "",
    ),
    "a search for it": ("never use npm", "grep -r 'npm install' docs", ""),
    "sudo": ("never systemctl restart", "sudo systemctl restart nginx", "broken"),
    "a variable": ("never npm publish", "TAG=next npm publish", "broken"),
    "bash -c": ("never npm publish", "bash -c 'npm publish'", "broken"),
    "another computer": (
        "never systemctl restart",
        'ssh web1 "sudo systemctl restart nginx"',
        "broken",
    ),
    "a container": (
        "never alembic downgrade",
        "docker compose exec api alembic downgrade -1",
        "broken",
    ),
    "what runs it": ("use uv, never python", "uv run python a.py", "kept"),
    "what may not run it": ("use docker, never sudo", "sudo docker ps", "broken"),
    "the longer part": ("use pnpm, never pnpm publish", "pnpm publish", "broken"),
    "the shorter part": ("use npm ci, never npm", "npm ci", "kept"),
    "an option": ("never git push --force", "git push --force origin a", "broken"),
    "without the option": ("never git push --force", "git push origin a", ""),
    "a like option": (
        "never git push --force",
        "git push --force-with-lease",
        "",
    ),
    "the option in short": ("never git push --force", "git push -f", "broken"),
    "an option of any program": (
        "never use --no-verify",
        "git push --no-verify",
        "broken",
    ),
    "its short form there": ("never use --no-verify", "git commit -n -m x", "broken"),
    "an option said in short": ("never use -f", "git push --force", "broken"),
    "a verb for an option": ("never amend commits", "git commit --amend", "broken"),
    "without that option": ("never amend commits", "git commit -m x", ""),
    "a verb of git": ("never rebase", "git -C a rebase main", "broken"),
    "a word that git is given": ("never use npm", "git log npm", ""),
    "a kind of the program": ("never the system gradle", "gradle build", "broken"),
    "its wrapper": ("never the system gradle", "./gradlew build", ""),
    "letters": ("never rm -rf", "rm -fr build", "broken"),
    "letters apart": ("never rm -rf", "rm -r -f build", "broken"),
    "one of the letters": ("never rm -rf", "rm -r build", ""),
    "an option with a value": (
        "never terraform apply -auto-approve",
        "terraform apply --auto-approve=true",
        "broken",
    ),
    "the option of another program": ("never curl -k", "pytest -k curl", ""),
    "a branch": ("never push to main", "git push origin HEAD:main", "broken"),
    "another branch": ("never push to main", "git push origin docs", ""),
    "several goals": ("never mvn install", "mvn clean install", "broken"),
    "a script": ("never run scripts/drop.sh", "bash scripts/drop.sh", "broken"),
    "a sign of the shell": ("never chain with &&", "make a && make b", "broken"),
    "without the sign": ("never chain with &&", "make a", ""),
    "a file is removed": ("never edit vendor/", "rm vendor/a.go", "broken"),
    "a file is changed": ("never edit vendor/", "sed -i s/a/b/ vendor/a.go", "broken"),
    "a file is written": ("never edit vendor/", "echo x > vendor/a.go", "broken"),
    "a file is read": ("never edit vendor/", "cat vendor/a.go", ""),
    "a check of files": ("never edit vendor/", "go vet ./vendor/...", ""),
    "a document of the shell": (
        "don't use `any`",
        "cat > a.ts <<'EOF'\nlet a: any = 1\nEOF",
        "broken",
    ),
}


@cases("rule, command, judgement", COMMANDS)
def test_a_command_breaks_or_keeps_a_rule(rule, command, judgement):
    acts = acts_of("Bash", {"command": command})
    assert judge(parts_of(rule), acts) == judgement
    assert judge(parts_of(rule), acts_of("shell", command)) == judgement


CODE = {
    "a member": ("never use unwrap", edit("a.rs", "get(id)?", "get(id).unwrap()")),
    "a member with its dot": (
        "never use .forEach(",
        edit("a.ts", "", "rows.forEach(show)"),
    ),
    "a type": ("never use any", edit("a.ts", "", "let a: any = 1")),
    "a cast": ("never use `as any`", edit("a.ts", "", "(window as any).x = 1")),
    "a declaration": ("use const instead of var", edit("a.js", "", "for (var i = 0;")),
    "a property": ("never set innerHTML", edit("a.ts", "", "node.innerHTML = html")),
    "a mark": ("never write !important", edit("a.css", "", "color: red !important;")),
    "a function": ("never use eval()", edit("a.py", "", "eval(text)")),
    "a reference": (
        "never use datetime.utcnow()",
        edit("a.py", "", "default_factory=datetime.utcnow"),
    ),
    "any variable": (
        "don't use df.iterrows()",
        edit("a.py", "", "for _, r in frame.iterrows():"),
    ),
    "an import": ("never import moment", edit("a.ts", "", "import m from 'moment'")),
    "a module": ("never use ioutil", edit("a.go", "", "ioutil.ReadFile(name)")),
    "a keyword": ("no `unsafe` blocks", edit("a.rs", "", "unsafe { *p }")),
    "a new file": (
        "no console.log",
        ("Write", {"file_path": "a.ts", "content": "console.log(1)"}),
    ),
    "several edits": (
        "never use any",
        ("MultiEdit", {"file_path": "a", "edits": [{"new_string": "x: any;"}]}),
    ),
    "a patch": ("never use any", ("apply_patch", {"input": PATCH})),
    "a patch in a shell": (
        "never use any",
        ("shell", {"command": ["apply_patch", PATCH]}),
    ),
    "capitals of SQL": ("never write `SELECT *`", edit("a.sql", "", "select * from t")),
    "a file": ("never edit *.lock", edit("/repo/yarn.lock", "a", "b")),
    "a file of an ending": ("no changes in .pb.go files", edit("/r/a.pb.go", "", "b")),
    "a folder": ("never edit generated/", edit("/repo/generated/a.ts", "a", "b")),
    "a patch of a file": ("never edit src/", ("apply_patch", {"input": PATCH})),
    "a file of a server": ("never edit .env", ("fs__write_file", {"path": ".env"})),
    "a tool": ("never use create_invoice", ("create_invoice", {})),
    "a tool of a server": ("never call create_issue", ("mcp__gh__create_issue", {})),
    "outside of a place": (
        "Never use unwrap outside of tests.",
        edit("src/a.rs", "", "x.unwrap()"),
    ),
}


@cases("rule, call", CODE)
def test_a_name_in_code_or_a_file_breaks_a_rule(rule, call):
    assert judge(parts_of(rule), acts_of(*call)) == "broken"


OTHER_CODE = {
    "what is replaced": ("never use unwrap", edit("a.rs", "x.unwrap()", "x?")),
    "what stays": ("never use unwrap", edit("a.rs", "x.unwrap()", "y; x.unwrap()")),
    "a word of a sentence": ("never use any", edit("a.ts", "", "// if any")),
    "a longer name": ("never use unwrap", edit("a.rs", "", "x.unwrap_or(1)")),
    "another word after it": ("never `as any`", edit("a.ts", "", "// as any other")),
    "a member of this name": ("never use eval()", edit("a.py", "", "model.eval()")),
    "a function of CSS": ("no `var`", edit("a.css", "", "color: var(--c)")),
    "prose": ("never use console.log", edit("a.md", "", "console.log(1)")),
    "a program in prose": ("never use npm", edit("a.yml", "", "run: npm ci")),
    "reading": ("never edit .env", ("Read", {"file_path": ".env"})),
    "a search": ("never edit .env", ("Grep", {"path": ".env", "pattern": "A"})),
    "a like file": ("never edit .env", edit(".env.example", "a", "b")),
    "a file with its words": (
        "never write to .env",
        edit("src/env.ts", "", "process.env.PORT"),
    ),
    "another folder": ("never edit generated/", edit("src/a.ts", "a", "b")),
    "in the place": (
        "Never use unwrap outside of tests.",
        edit("tests/a.rs", "", "x.unwrap()"),
    ),
    "a query": ("never use delete", ("sql", {"command": "delete from t"})),
    "no arguments": ("never use npm", ("Bash", {})),
    "a call that names it": ("never use npm", ("note", {"text": "no npm here"})),
}


@cases("rule, call", OTHER_CODE)
def test_other_calls_break_nothing(rule, call):
    assert judge(parts_of(rule), acts_of(*call)) == ""
