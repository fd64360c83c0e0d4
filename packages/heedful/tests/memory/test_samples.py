"""What a run teaches by rules alone.

The folder `samples` has a text for each subject. A sample in it begins with `===` and
what it shows; then come the fields of the run and a line for each event, behind the
first `---` what `learn_session` learns of it as a session, and behind the second what
`reflect` says of it: "the same" if these are the words of a session. `pytest --golden`
writes both again.
"""

from collections.abc import Iterator
from pathlib import Path

import heedful
from heedful.lessons import render
from heedful.memory.reflect import Reflected
from heedful.memory.sessions import Learned
from tests.tables import cases, read_run, read_samples, write_sample

SAMPLES = {
    f"{path.stem}: {name}": (path, name)
    for path in sorted((Path(__file__).parent / "samples").glob("*.txt"))
    for name in read_samples(path)
}


def describe_learned(learned: Learned) -> Iterator[str]:
    for mistake in learned.mistakes:
        yield render.lesson(mistake)
    for rule in learned.rules:
        yield f"Rule: {rule}"


def describe_reflected(reflected: Reflected | None, lesson: str) -> Iterator[str]:
    assert reflected is not None
    text = reflected.text if reflected.text != lesson else "the same"
    yield f"{reflected.trust}: {text}"
    if reflected.strategy is not None:
        yield f"{reflected.strategy.trust} strategy: {reflected.strategy.text}"
    for other in reflected.others:
        yield f"{other.trust}, too: {other.text}"


@cases("path, name", SAMPLES)
async def test_a_run_teaches_what_the_sample_says(path, name, golden):
    run, session, reflection = read_samples(path)[name]
    episode = read_run(run)
    memory = heedful.Memory(":memory:", holdout=0)
    learned = await heedful.learn_session(episode, memory=memory)
    lesson = "".join(map(render.lesson, learned.mistakes[:1]))
    reflected = describe_reflected(await heedful.reflect(episode), lesson)
    texts = ["\n".join(describe_learned(learned)), "\n".join(reflected)]
    if golden:
        write_sample(path, name, texts)
        return
    assert texts == [session, reflection]
