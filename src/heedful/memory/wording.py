"""Reflections without a model: rules put the signals of an episode into words.

`by_rules` describes for each main signal which step failed with what, what was tried
next, and what worked; then how the run ended. It names no cause. The strategy is a rule
for next time: what worked instead, or what not to repeat. Steps are positions of
events, and every sentence comes with the positions of its events. The same episode
always gives the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from heedful.lessons.lesson import Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import lowest_trust
from heedful.memory.citations import claim, event_words, normalize
from heedful.memory.draft import DEFAULT_CONFIDENCE, Draft
from heedful.memory.study import Study
from heedful.redact import redact
from heedful.sanitize import clean
from heedful.traces import signals as trace
from heedful.traces.episode import LOOP_SOURCE
from heedful.traces.error_lines import error_text, output
from heedful.traces.signals import Kind, Signal

# Characters of a quotation, of a call and of each argument; how many arguments are
# shown.
MAX_QUOTATION_CHARS = 360
MAX_CALL_CHARS = 300
MAX_ARGUMENT_CHARS = 60
MAX_SHOWN_ARGUMENTS = 5
MAX_SHOWN_TRIES = 3  # other calls that failed after the first one

# The rule for next time, by the kind of the signal.
_SIGNAL_STRATEGIES: Mapping[Kind, str] = {
    "unknown_tool": "Call only tools that are offered: {tool} is none of them.",
    "timeout": "{tool} can run out of time: ask it for less at once, and do not only "
    "repeat it.",
    "cause": "Do not repeat {call} without a change: it failed{error}.",
    "repeated": "Do not repeat {call} without a change: the result stays as it is.",
}
_TWO_CAUSES_STRATEGY = (
    f"{_SIGNAL_STRATEGIES['cause']} Nor try {{other}}: it failed, too."
)
_SPEAKERS = {"user_message": "The user", "llm_response": "The agent"}
# A sentence and the positions of its events.
_Sentence = tuple[str, tuple[int, ...]]


def by_rules(study: Study) -> Draft:
    """Write a reflection without a model."""
    episode = study.episode
    signals = study.main_signals
    sentences: list[_Sentence] = []
    for number, signal in enumerate(signals):
        sentences += _signal_sentences(study, signal, number)
    sentences += _ending(study)
    claims = tuple(
        claim(redact(text), places, episode)
        for text, places in dict.fromkeys(sentences)
    )
    rules = dict(_strategy(study, signal) for signal in signals or (None,))
    rules.pop("", None)

    places = [*chain.from_iterable(sentence.events for sentence in claims)]
    if episode.fault is not None:
        # Its words are of unknown origin, unless an event has them.
        origin = len(episode.events)
        words = normalize("\n".join(map(event_words, episode.events)))
        category = normalize(clean(episode.fault.category, MAX_ARGUMENT_CHARS))
        message = normalize(clean(episode.fault.message, MAX_QUOTATION_CHARS))
        if category in words and message in words:
            origin -= 1
        places.append(origin)

    reason = study.reason
    kind = reason.kind if reason else ""
    confidence = round(reason.strength, 3) if reason else DEFAULT_CONFIDENCE
    tags = (episode.outcome, kind, clean(study.tool, MAX_ARGUMENT_CHARS))
    return Draft(
        claims,
        redact(" ".join(rules)),
        confidence=confidence,
        tags=tuple(filter(None, tags)),
        trust=study.floor(places),
        rule_trust=lowest_trust(("model", *rules.values())),
        mended=any(rule.startswith("When ") for rule in rules),
    )


def _signal_sentences(study: Study, signal: Signal, number: int) -> Iterator[_Sentence]:
    """Yield what failed, what was tried next, and what worked."""
    failed = study.failed_steps(signal)
    first = failed[0] if failed else signal.at
    text, places = _step(study, first)
    yield f"Also, {text}" if number else text, places

    if failed[1:] and signal.kind in ("cause", "retry"):
        tries = _tries(study, signal)[-MAX_SHOWN_TRIES:]
        last = (tries or failed)[-1]
        is_same = _same_error(study, first, last)
        described = tries if is_same else tries[-1:]
        again = "It failed again"
        if tries:
            again = f"Then {_actions(study, described)} failed"
        if is_same:
            yield f"{again} in the same way.", tries or failed
        else:
            yield _step(study, last, again)

    match signal.kind:
        case "retry":
            yield from _retry(study, signal, first)
        case "unknown_tool":
            tool = clean(study.tool, MAX_ARGUMENT_CHARS)
            yield f"The tool {tool} was not offered.", (signal.at,)
        case "repeated":
            yield "The same call gave the same result again and again.", signal.evidence
        case "answer" if study.course.answer not in (None, signal.at):
            values = signal.words.partition(": ")[2]
            values = re.sub(r" and \d+ more$", "", values)  # no event holds the count
            yield f"The answer took this from it: {values}.", signal.evidence


def _retry(study: Study, signal: Signal, first: int) -> Iterator[_Sentence]:
    """Yield which steps changed nothing, and which call worked after which steps."""
    steps, vain = _between(study, signal)
    if vain:
        yield f"{_actions(study, vain)} changed nothing.", tuple(vain)
    call, change = _changed(study, first, signal.at)
    success = f"it worked {change}" if change else f"{call or 'the same call'} worked"
    when = f"After {_actions(study, steps)}," if steps else "Later"
    yield f"{when} {success}.", (*steps, signal.at)


def _ending(study: Study) -> Iterator[_Sentence]:
    """Yield the error that ended the run, and the answer unless a failure was fixed."""
    fault = study.episode.fault
    run = study.course
    events = study.episode.events
    if fault is not None and (fault.category or fault.message):
        message = clean(fault.message, MAX_QUOTATION_CHARS)
        category = clean(fault.category, MAX_ARGUMENT_CHARS)
        quoted = f": “{message}”" if message else ""
        places = (len(events) - 1,) if events else ()
        yield f"The run ended in {category or 'an error'}{quoted}.", places

    signals = study.main_signals
    has_open_failure = any(signal.kind == "cause" for signal in signals)
    if not has_open_failure and any(map(study.failed_steps, signals)):
        return
    answer = run.answer
    if has_open_failure or answer is None:
        texts = (n for n in reversed(range(len(events))) if run.roles[n] == "said")
        answer = next(texts, None)
    if answer is None or any(answer == signal.at for signal in signals):
        return
    answer_lines = trace.ends(events[answer].content).splitlines()
    lines = filter(str.strip, reversed(answer_lines))
    text = clean(next(lines, ""), MAX_QUOTATION_CHARS).rstrip(".")
    if text:
        yield f"The answer was “{text}”.", (answer,)


def _step(study: Study, step: int, failed: str = "") -> _Sentence:
    """Return a sentence about a step and its result, and the positions of both."""
    event = study.episode.events[step]
    result = study.course.result[step]
    action = _action(study, step)
    if result is None or result == step:
        if not (event.tool and study.course.failure[step]):
            return f"{action} had no result." if event.tool else f"{action}.", (step,)
        result = step
    if study.course.failure[result]:
        text = _error_of(study, step)
        start = f"{failed or f'{action} failed'} with"
    else:
        content = output(study.episode.events[result].content)
        text = clean(next(iter(content.splitlines()), ""), MAX_QUOTATION_CHARS)
        start = f"{action} gave"
    sentence = f"{start} “{text}”." if text else f"{action} gave nothing."
    return sentence, tuple(dict.fromkeys((step, result)))


def _error_of(study: Study, step: int) -> str:
    """Return the words that name the failure of a step, or ""."""
    failure = study.course.failure[study.course.result[step] or step]
    return error_text(failure) if failure else ""


def _same_error(study: Study, step: int, other: int) -> bool:
    """Return whether two steps failed with one error, apart from numbers and names."""
    error = signature("", _error_of(study, step))
    return error.digest == signature("", _error_of(study, other)).digest


def _tries(study: Study, signal: Signal) -> tuple[int, ...]:
    """Return the other calls that failed after the first one, without repetitions."""
    failed = reversed(study.failed_steps(signal))
    first_steps = {_action(study, step): step for step in failed}
    return tuple(sorted(first_steps.values())[1:])


def _actions(study: Study, steps: Iterable[int]) -> str:
    return ", then ".join(dict.fromkeys(_action(study, step) for step in steps))


def _action(study: Study, step: int) -> str:
    """Return a call in words, with a single text as code or the names of arguments."""
    event = study.episode.events[step]
    tool = clean(event.tool, MAX_ARGUMENT_CHARS)
    if not tool:
        speaker = clean(event.agent or event.code, MAX_ARGUMENT_CHARS)
        speaker = speaker or _SPEAKERS.get(event.type, "It")
        words = clean(event.error or event.content, MAX_QUOTATION_CHARS)
        return f"{speaker} said “{words}”"

    text = clean(trace.only_text(event), MAX_CALL_CHARS)
    if text:
        return f"{tool} “{text}”" if "`" in text else f"{tool} `{text}`"
    arguments = list(trace.named_arguments(event).items())[:MAX_SHOWN_ARGUMENTS]
    max_chars = max(MAX_ARGUMENT_CHARS, MAX_CALL_CHARS // max(1, len(arguments)))
    pairs = ", ".join(_argument(name, value, max_chars) for name, value in arguments)
    return f"{tool} with {pairs}" if pairs else tool


def _argument(name: str, value: str, max_chars: int = MAX_CALL_CHARS) -> str:
    return f"{clean(name, MAX_ARGUMENT_CHARS)} “{clean(value, max_chars)}”".strip()


def _between(study: Study, signal: Signal) -> tuple[list[int], list[int]]:
    """Return the steps between a failed call and one that worked, and those in vain.

    If the call that worked had failed before, the steps after which it failed with the
    same error were in vain.
    """
    events = study.episode.events
    failed = study.failed_steps(signal)
    between = [n for n in signal.evidence if n < signal.at and n not in failed]
    equal = [n for n in failed if not trace.differences(events[n], events[signal.at])]
    repeats = (
        range(first, last)
        for first, last in pairwise(equal)
        if _same_error(study, first, last)
    )
    repeated = set(chain.from_iterable(repeats))
    vain = [n for n in between if n in repeated]
    first_equal = min(equal, default=-1)
    return [n for n in between if n not in vain and n > first_equal], vain


def _changed(study: Study, first: int, step: int) -> tuple[str, str]:
    """Return a changed call in words, or only the changes of several arguments.

    Both are empty for an equal call.
    """
    events = study.episode.events
    changes = trace.differences(events[first], events[step])[:MAX_SHOWN_ARGUMENTS]
    if changes and 0 < len(trace.only_text(events[step])) <= MAX_CALL_CHARS:
        return _action(study, step), ""
    words = (
        f"without {name}" if value is None else f"with {_argument(name, value)}"
        for name, _, value in changes
    )
    return "", " and ".join(words)


def _strategy(study: Study, signal: Signal | None) -> tuple[str, Trust]:
    """Return a rule for next time and its trust; "" if the events show none."""
    event = study.episode.events[signal.at] if signal else None
    tool = clean(event.tool, MAX_ARGUMENT_CHARS) if event else ""
    if signal is None or not tool:
        return _fix(study)

    steps = [*study.failed_steps(signal), signal.at][:1]
    rule = _SIGNAL_STRATEGIES.get(signal.kind, "")
    instead = ""
    if signal.kind == "cause":
        steps += _tries(study, signal)[-1:]
        if len(steps) > 1:
            rule = _TWO_CAUSES_STRATEGY
    elif signal.kind == "retry":
        between, _ = _between(study, signal)
        call, change = _changed(study, steps[0], signal.at)
        instead = _instead(study, between, call or (change and f"it {change}"))
        steps += [*between, signal.at]

    trust = study.floor(steps)
    error = _error_of(study, steps[0])
    if error:
        # The error is quoted if that does not make the rule less trusted.
        error_trust = study.floor([study.course.result[steps[0]] or steps[0]])
        is_trusted = lowest_trust((trust, error_trust)) == trust
        error = f" with “{error}”" if is_trusted else ""
    call = _action(study, steps[0])
    if instead:
        return f"When {call} fails{error}, {instead}", trust
    other = _action(study, steps[-1])
    return rule.format(call=call, other=other, tool=tool, error=error), trust


def _fix(study: Study) -> tuple[str, Trust]:
    """Return the fix of a check of a loop, and its trust; "" for other runs.

    There the content of an error is what a tool said.
    """
    position = study.failure[0]
    if position >= 0 and study.episode.source == LOOP_SOURCE:
        event = study.episode.events[position]
        if event.type == "error_event" and event.content not in ("", event.error):
            fix = clean(event.content, 2 * MAX_QUOTATION_CHARS)
            return fix, study.floor([position])
    return "", "model"


def _instead(study: Study, steps: Sequence[int], call: str) -> str:
    """Return what worked instead of a call that failed, or ""."""
    if not steps:
        return f"call {call} instead." if call else ""
    first = f"do this first: {_actions(study, steps)}"
    return f"{first}; then call {call}." if call else f"{first}."
