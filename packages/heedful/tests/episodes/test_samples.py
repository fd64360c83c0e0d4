"""What is read of files of each format.

The folder `samples` has a text for each format. A sample in it begins with `===` and
what it shows; then comes the content of a file, and behind `---` its episodes: a line
for the run and one for each event, with the fields that are not empty. A result that
is a failure is marked with `!`, a call that nobody allowed with `x`; a result says the
call that it is `of`. `pytest --golden` writes the episodes again.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

from heedful.episodes import read
from heedful.episodes.course import course
from heedful.episodes.episode import Episode, Event
from tests.tables import cases, read_samples, write_sample

FOLDER = Path(__file__).parent / "samples"


def describe_fields(record: Event | Episode) -> str:
    """Return the fields of a record that differ from their defaults."""
    texts = []
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in ("type", "events") and value not in (field.default, {}):
            data = value if not hasattr(value, "category") else asdict(value)
            texts.append(f"{field.name}={json.dumps(data, ensure_ascii=False)}")
    return " ".join(texts)


def describe(episode: Episode) -> Iterator[str]:
    yield f"run {describe_fields(episode)}"
    run = course(episode)
    call_of = {result: call for call, result in enumerate(run.result)}
    for position, event in enumerate(run.events):
        line = event.type
        if run.failure[position]:
            line += " !"
        if position in run.unfinished:
            line += " x"
        if position in call_of:
            line += f" of {run.events[call_of[position]].id}"
        yield f"{line} {describe_fields(event)}".rstrip()


SAMPLES = {
    f"{path.stem}: {name}": (path, name)
    for path in sorted(FOLDER.glob("*.txt"))
    for name in read_samples(path)
}


@cases("path, name", SAMPLES)
def test_a_file_is_read_as_the_sample_says(path, name, golden):
    content, expected = read_samples(path)[name]
    episodes = read(f"{content}\n".encode())
    text = "\n".join(line for episode in episodes for line in describe(episode))
    if golden:
        write_sample(path, name, [text])
        return
    assert text == expected
