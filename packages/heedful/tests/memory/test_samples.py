"""What a run teaches by rules alone.

The folder `samples` has a text for each subject. A sample in it begins with `===` and
what it shows; then come the fields of the run and a line for each event, behind the
first `---` what `learn_session` learns of it as a session, and behind the second what
`reflect` says of it.
"""

from collections.abc import Iterator
from pathlib import Path

import heedful
from heedful.lessons import render
from heedful.memory.reflect import Reflected
from heedful.memory.sessions import Learned
from tests.tables import cases, read_run, read_samples

SAMPLES = {
    f"{path.stem}: {name}": sample
    for path in sorted((Path(__file__).parent / "samples").glob("*.txt"))
    for name, sample in read_samples(path).items()
}


def describe_learned(learned: Learned) -> Iterator[str]:
    for mistake in learned.mistakes:
        yield render.lesson(mistake)
        if mistake.vain:
            yield f"({len(mistake.vain)} in vain)"
    for rule in learned.rules:
        yield f"Rule: {rule}"


def describe_reflected(reflected: Reflected | None) -> Iterator[str]:
    if reflected is None:
        return
    yield f"{reflected.trust}: {reflected.text}"
    if reflected.strategy is not None:
        yield f"{reflected.strategy.trust} strategy: {reflected.strategy.text}"
    for other in reflected.others:
        yield f"{other.trust}, too: {other.text}"


@cases("run, session, reflection", SAMPLES)
async def test_a_run_teaches_what_the_sample_says(run, session, reflection):
    episode = read_run(run)
    memory = heedful.Memory(":memory:", holdout=0)
    learned = await heedful.learn_session(episode, memory=memory)
    assert "\n".join(describe_learned(learned)) == session
    reflected = await heedful.reflect(episode)
    assert "\n".join(describe_reflected(reflected)).strip("\n") == reflection
