"""Settings: which source wins, and what is said of a wrong value."""

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from heedful.cli.settings import Settings, settings
from heedful.errors import UsageError


@pytest.fixture(autouse=True)
def no_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for field in fields(Settings):
        monkeypatch.delenv(f"HEEDFUL_{field.name.upper()}", raising=False)


def test_options_before_environment_before_files(monkeypatch):
    Path("pyproject.toml").write_text(
        '[tool.heedful]\nmodel = "a"\ndb = "a"\ntenant = "a"\nproject = "a"\n'
    )
    Path("heedful.toml").write_text('model = "b"\ndb = "b"\ntenant = "b"\n')
    monkeypatch.setenv("HEEDFUL_MODEL", "c")
    monkeypatch.setenv("HEEDFUL_DB", "c")
    effective = settings(model="d")
    assert effective.model == "d"
    assert effective.db == "c"
    assert effective.tenant == "b"
    assert effective.project == "a"
    assert effective.policy == "default"


def test_every_field_has_an_effect_from_the_environment(monkeypatch):
    values = {
        "model": "m,n",
        "prices": "0,0.5",
        "judge": "j",
        "embedder": "none",
        "db": "d",
        "cache": Path("c"),
        "tenant": "t",
        "project": "p",
        "policy": "stage",
        "memory": False,
        "holdout": 0.25,
        "threads": 3,
        "context": 100,
        "jobs": 2,
        "timeout": 0.5,
        "max_tokens": 9,
        "max_entries": 8,
        "checks": {"brief": {"name": "words", "at_most": 9}},
        "host": "h",
        "port": 1,
        "key_required": True,
        "root_path": "/heedful",
        "workers": 4,
        "rate": 0.5,
        "body": 2048,
        "traces": 4096,
        "drain": 5.0,
        "settled": 1.5,
        "trust": ("gh", "docs"),
        "strict": True,
        "forget": "9d",
        "forget_loops": "90d",
        "pins": {"a/*": ["brief"]},
        "outcomes": 5,
        "reflection_enabled": False,
        "reflection_mode": "lite",
        "hook": {"deny": True},
    }
    assert values.keys() == {field.name for field in fields(Settings)}
    for name, value in values.items():
        is_json = isinstance(value, dict | tuple)
        text = json.dumps(value) if is_json else str(value)
        monkeypatch.setenv(f"HEEDFUL_{name.upper()}", text)
    assert asdict(settings()) == values


def test_older_names_of_variables_come_after_the_new_ones(monkeypatch):
    Path("heedful.toml").write_text(
        'reflection_enabled = true\nreflection_mode = "full"\n'
    )
    monkeypatch.setenv("REFLECTIVE_MEMORY_ENABLED", "0")
    monkeypatch.setenv("REFLECTIVE_MEMORY_MODE", "lite")
    assert settings().reflection_enabled is False
    assert settings().reflection_mode == "lite"
    monkeypatch.setenv("HEEDFUL_REFLECTION_ENABLED", "true")
    monkeypatch.setenv("REFLECTIVE_MEMORY_MODE", "half")
    with pytest.raises(
        UsageError, match="REFLECTIVE_MEMORY_MODE in the environment is 'half'"
    ):
        settings()
    monkeypatch.setenv("HEEDFUL_REFLECTION_MODE", "full")
    assert settings().reflection_enabled is True
    assert settings().reflection_mode == "full"


WRONG_OPTIONS: dict[str, tuple[float, str]] = {
    "jobs": (0, "--jobs is 0; it must be at least 1"),
    "holdout": (1.0, "--holdout is 1.0; it must be less than 1"),
}
WRONG_VARIABLES = {
    "JOBS": "HEEDFUL_JOBS in the environment is 'x'; it must be a",
    "EMBEDDER": "it must be 'auto', 'minilm' or 'none'",
}
WRONG_FILES = {
    "a number as policy": (
        "heedful.toml",
        "policy = 5",
        "policy in heedful.toml is 5; it must be a text",
    ),
    "an unknown setting": (
        "heedful.toml",
        "modle = 'x'",
        r"modle in heedful.toml: .* \(did you mean 'model'\?\); there are",
    ),
    "a value in pyproject.toml": (
        "pyproject.toml",
        "[tool.heedful]\njobs = -1",
        r"jobs in pyproject.toml \[tool.heedful\]",
    ),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_a_wrong_option_is_named(name):
    value, message = WRONG_OPTIONS[name]
    with pytest.raises(UsageError, match=message):
        settings(**{name: value})


@pytest.mark.parametrize("name", WRONG_VARIABLES)
def test_a_wrong_variable_is_named(monkeypatch, name):
    monkeypatch.setenv(f"HEEDFUL_{name}", "x")
    with pytest.raises(UsageError, match=WRONG_VARIABLES[name]):
        settings()


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_value_in_a_file_is_named(case):
    file, text, message = WRONG_FILES[case]
    Path(file).write_text(text)
    with pytest.raises(UsageError, match=message):
        settings()
