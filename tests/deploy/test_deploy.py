"""What `deploy/` holds is what heedful takes: command lines, roles, settings, and no
secret.
"""

import asyncio
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, get_args
from urllib.error import URLError

import psycopg
import pytest
import typer
import yaml
from typer.testing import CliRunner

import heedful
from heedful.cli.app import app
from heedful.cli.printing import CURRENT_COMMAND, CommandLine
from heedful.cli.settings import Settings
from heedful.errors import RoleRefused
from heedful.store.postgres import in_database
from heedful_server.jobs import Depth, State, Workload
from heedful_server.setup import Metrics
from scripts import lock
from tests.postgres import rows, server
from tests.service.running import listening
from tests.service.support import served

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
UNITS = sorted(DEPLOY.glob("*.service"))
PASSWORDS = ("POSTGRES_PASSWORD", "HEEDFUL_OWNER_PASSWORD", "HEEDFUL_PASSWORD")


def parsed(words: list[str]) -> Any:
    """Return the command line as heedful takes it; raise what a user would see."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("heedful", list(words))
    rest = list(words)
    while rest and hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, list(rest), parent=context)
    return context


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile."""
    joined = re.sub(r"\\\n", "", DOCKERFILE)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in lines]


def unit(path: Path) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE):
        values.setdefault(name, []).append(value)
    return values


def test_the_image_runs_as_nobody_in_particular_and_knows_no_secret():
    last = [n for n, (name, _) in enumerate(steps()) if name == "FROM"][-1]
    final = steps()[last:]
    assert [value for name, value in final if name == "USER"] == ["10001"]
    assert all("${BASE}" in value for name, value in steps() if name == "FROM")
    # Nothing comes from the network but what the lock has the hash of.
    installs = [
        value.split("install", 1)[1]
        for name, value in steps()
        if "pip install" in value
    ]
    assert [
        "--require-hashes" in install or "--no-deps" in install for install in installs
    ] == [True, True]
    locked = (ROOT / "requirements.lock").read_text()
    assert (DEPLOY / "requirements.lock").read_text() == lock.for_image(locked)
    assert not re.search(
        r"(?i)password|secret|token|heedful_[0-9a-f]{12}", str(steps())
    )
    assert "HEALTHCHECK" in dict(final)


def test_the_image_begins_with_a_command_that_heedful_takes():
    words = dict(steps())
    assert yaml.safe_load(words["ENTRYPOINT"]) == ["heedful"]
    running = CommandLine()
    token = CURRENT_COMMAND.set(running)
    parsed(yaml.safe_load(words["CMD"]))
    CURRENT_COMMAND.reset(token)
    assert running.options["host"] == "0.0.0.0"
    assert running.options["key_required"] is True
    assert str(running.options["port"]) == words["EXPOSE"]


def test_the_image_knows_whether_it_lives(tmp_path):
    check = yaml.safe_load(dict(steps())["HEALTHCHECK"].partition("CMD ")[2])
    assert check[:2] == ["python", "-c"]

    def call(url: str) -> str:
        """Return the check of the service at a URL, which lives."""
        code = str(check[2]).replace("http://127.0.0.1:8765", url)
        exec(code, {})
        return code

    with served(tmp_path) as api:
        code = listening(api, call)
    with pytest.raises(URLError):
        exec(code, {})


@pytest.mark.parametrize("name", ["migrate", "serve", "worker"])
def test_each_of_the_containers_begins_with_a_command_that_heedful_takes(name):
    service = COMPOSE["services"][name]
    assert parsed(service["command"]).info_name == name
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_two_services_and_three_workers_wait_for_the_schema_and_it_for_the_database():
    services = COMPOSE["services"]
    urls = {
        name: services[name].get("environment", {}).get("HEEDFUL_DB")
        for name in services
    }
    for name, replicas in (("serve", 2), ("worker", 3)):
        assert services[name]["deploy"]["replicas"] == replicas
        needs = services[name]["depends_on"]
        assert needs == {"migrate": {"condition": "service_completed_successfully"}}
        assert "//heedful:${HEEDFUL_PASSWORD" in urls[name]
        assert "OWNER" not in str(services[name])
    assert "//heedful_owner:${HEEDFUL_OWNER_PASSWORD" in urls["migrate"]
    assert services["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert services["migrate"]["restart"] == "no"
    assert services["db"]["healthcheck"]["test"][1] == "pg_isready"
    assert services["db"]["volumes"][0].split(":")[0] in COMPOSE["volumes"]


def test_every_password_has_to_be_given_and_the_commands_are_those_of_heedful():
    text = (DEPLOY / "compose.yaml").read_text()
    assert sorted(set(re.findall(r"\$\{(\w+):\?", text))) == sorted(PASSWORDS)
    assert not re.findall(r"\$\{\w+\}|\$\{\w+:-", text.replace("${name}", ""))
    assert not [
        part for part in re.findall(r"//\w+:([^@\s]+)@", text) if part[0] != "$"
    ]
    (command,) = re.findall(
        r"run --build --rm serve (.*)", text.partition("name: heedful")[0]
    )
    assert [*parsed(shlex.split(command)).params["may"]] == ["read,write,approve,admin"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_begins_with_a_command_of_heedful_may_do_little_and_holds_no_secret(
    path,
):
    values = unit(path)
    # What follows the @ in the name of a unit, such as heedful@8766.
    start = values["ExecStart"][0].replace("%i", "8766")
    program, *words = shlex.split(start)
    assert program == "/usr/local/lib/heedful/bin/heedful"
    assert parsed(words).info_name in ("serve", "worker")
    for name in (
        "NoNewPrivileges",
        "PrivateTmp",
        "DynamicUser",
        "ProtectHome",
        "LockPersonality",
    ):
        assert values[name] == ["yes"]
    assert values["ProtectSystem"] == ["strict"]
    assert values["CapabilityBoundingSet"] == [""]
    assert values["EnvironmentFile"] == ["-/etc/heedful/heedful.env"]
    assert values["Environment"] == ["HEEDFUL_CACHE=/var/lib/heedful/cache"]
    # The units share a folder, which belongs to one user.
    assert values["User"] == values["StateDirectory"] == ["heedful"]


def test_the_unit_of_the_service_listens_on_the_port_of_its_name():
    (start,) = unit(DEPLOY / "heedful@.service")["ExecStart"]
    running = CommandLine()
    token = CURRENT_COMMAND.set(running)
    parsed(shlex.split(start.replace("%i", "8766"))[1:])
    CURRENT_COMMAND.reset(token)
    assert running.options["port"] == 8766
    assert running.options["key_required"] is True


def test_the_function_of_the_page_runs_a_command_as_the_service_does():
    page = (ROOT / "docs" / "howto" / "deploy.md").read_text("utf-8")
    (function,) = re.findall(
        r"^# heedful\(\) \{ (.*?); \}$", page, re.DOTALL | re.MULTILINE
    )
    words = shlex.split(function.replace("\\\n", " "))
    properties = [words[n + 1] for n, word in enumerate(words) if word == "-p"]
    values = unit(DEPLOY / "heedful@.service")

    assert words[0] == "systemd-run"
    assert words[-2:] == ["/usr/local/lib/heedful/bin/heedful", "$@"]
    assert len(properties) == 7
    for declared in properties:
        name, _, setting = declared.partition("=")
        assert values[name] == [setting], name


def test_alerts_watch_metrics_that_a_service_prints():
    metrics = Metrics()
    metrics.requests.labels("GET", "/healthz", "200").inc()
    metrics.refuse("/v1/loops", 401, "0123456789ab")
    metrics.seconds.labels("GET", "/healthz").observe(0.1)
    metrics.decided(heedful.Again())
    states = [
        Depth(queue="loops", state=state, number=1, oldest=2.0)
        for state in get_args(State)
    ]
    text = metrics.text(Workload(depths=states, workers=1)).decode()
    printed = set(re.findall(r"^(heedful_\w+)", text, re.MULTILINE))

    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names))
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}
        watched = set(re.findall(r"heedful_\w+", rule["expr"]))
        assert watched or "up{" in rule["expr"]
        assert watched <= printed, rule["alert"]
        for state in re.findall(r'state="(\w+)"', rule["expr"]):
            assert f'state="{state}"' in text, rule["alert"]


def test_the_page_on_http_lists_every_metric():
    page = (ROOT / "docs" / "http.md").read_text("utf-8")
    text = Metrics().text(Workload(depths=(), workers=1)).decode()
    for name in re.findall(r"^# TYPE (heedful_\w+)", text, re.MULTILINE):
        if not name.endswith("_created"):
            assert f"`{name}" in page, name


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_a_proxy_asks_two_services_and_passes_what_they_take(name):
    text = (DEPLOY / name).read_text()
    for port in (8765, 8766):
        assert f"127.0.0.1:{port}" in text
    assert re.search(r"/metrics (?:403|\{\s+return 403)", text)
    limit = re.search(r"(?:client_max_body_size|max_size) (\d+)[mM]", text)
    assert limit is not None
    assert int(limit[1]) * 1024**2 == Settings().traces
    assert re.search(r"(proxy_read_timeout|response_header_timeout) 300s", text)
    assert re.search(r"(client_header_timeout|read_header) 10s", text)


def test_the_roles_make_a_database_that_heedful_migrates_and_serves(
    tmp_path, monkeypatch
):
    for name in PASSWORDS[1:]:
        monkeypatch.setenv(name, "a password with 'quotes'")
    owner = f"deploy_owner_{os.getpid()}"
    service = f"deploy_{os.getpid()}"
    script = (DEPLOY / "roles.sql").read_text()
    script = script.replace("heedful_owner", owner).replace(
        "heedful", service
    )  # beside others
    psql = server()._server.bin_path / "psql"
    words = [str(psql), "--quiet", server().url()]
    try:
        without_pgvector = script.replace("name = 'vector'", "name = 'absent'")
        failed = psql_output(words, without_pgvector)
        assert failed.returncode == 3
        assert "no pgvector: install it first" in failed.stderr
        with monkeypatch.context() as unset:
            unset.delenv(PASSWORDS[-1])
            failed = psql_output(words, script)
            assert failed.returncode == 3
            assert f"set {PASSWORDS[-1]}, the password of" in failed.stderr
        # What is missing is made, and what exists stays.
        for _ in range(2):
            assert psql_output(words, script).returncode == 0

        # A second database for the same roles, such as one to restore into.
        monkeypatch.setenv("HEEDFUL_DATABASE", f"{service}_copy")
        assert psql_output(words, script).returncode == 0
        migrate = ["db", "migrate", "--db", server().url(f"{service}_copy", owner)]
        assert CliRunner().invoke(app, migrate).exit_code == 0

        owned = server().url(service, owner)
        served = server().url(service, service)
        assert (
            CliRunner()
            .invoke(app, ["db", "migrate", "--db", owned, "--role", service])
            .exit_code
            == 0
        )
        with pytest.raises(RoleRefused, match="owns"):
            asyncio.run(remember_once(owned))
        assert asyncio.run(remember_once(served)) == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            rows(served, "create temporary table a (b int)")
        query = (
            "select rolpassword like 'SCRAM-SHA-256%' from pg_authid where rolname = "
        )
        assert [server().run(f"{query}'{role}'") for role in (owner, service)] == [
            [(True,)]
        ] * 2
    finally:
        for database in (service, f"{service}_copy"):
            server().run(f"drop database if exists {database} with (force)")
        for role in (owner, service):
            server().run(f"drop role if exists {role}")


def psql_output(words: list[str], script: str) -> subprocess.CompletedProcess[str]:
    """Run a script of psql, and return its exit code and what it writes."""
    return subprocess.run(
        words, input=script, capture_output=True, text=True, check=False
    )


async def remember_once(url: str) -> int:
    """How many lessons there are after one was remembered."""
    store = in_database(url)
    try:
        memory = heedful.Memory(store)
        await memory.remember("unit", "no unit")
        return await memory.count()
    finally:
        await store.close()
