"""What a model is shown of a run: what failed first, then all events while they fit.

An event has its error code and its other data, such as a stack trace, behind its text,
as far as both fit into its share.

The signs of mistakes and their events come first, then the answer and both ends of the
run, then all calls in order, then every other event until the budget is spent. The
model reads the events in the order of the run, each with its number in the run, and one
line that says how many were left out. Reflector and judge are shown the same.
"""

from collections.abc import Sequence

from heedful.episodes import course as trace
from heedful.episodes.episode import Episode, Event, Fault
from heedful.episodes.signals import Signal
from heedful.memory.study import Study
from heedful.models.contract import Model, tokens
from heedful.redact import redact
from heedful.sanitize import clean, cut_middle, sanitize
from heedful.validation import (
    MAX_LABEL_CHARS,
    MAX_SHOWN_ITEMS,
    MAX_SHOWN_LINE_CHARS,
)

# The context of a model that does not state its own: 12,000 tokens of it for the run.
DEFAULT_CONTEXT_TOKENS = 17_500
# The tokens of an answer and of the instructions, which a context must hold, too.
FRAME_TOKENS = 1_500
# Characters that goal and error, a signal and its events may have in a run of any
# length, and the task twice as many; and other events: 12,000 tokens hold the calls of
# a run with 300 of them.
MAX_DECISIVE_CHARS = 600
MAX_EVENT_CHARS = 80
# Less of an error code and of other data says nothing.
MIN_DETAIL_CHARS = 20


def excerpt_tokens(model: Model) -> int:
    """Return how many tokens of a run a model is shown.

    A quarter of its context stays free, because tokens are estimated.
    """
    context: int = getattr(model, "context_tokens", DEFAULT_CONTEXT_TOKENS)
    return max(0, context - FRAME_TOKENS) * 3 // 4


def excerpt(study: Study, budget: int) -> tuple[list[int], dict[str, str]]:
    """Choose what a model is shown of a run.

    Returns the positions of the events that it is shown, and the texts that it is shown
    by their names, "events" among them. All texts have at most `budget` tokens, unless
    those beside the events, such as the task and the error, alone have more. Secrets,
    control characters and role tokens are removed.
    """
    episode = study.episode
    signals = sorted(study.signals, key=lambda signal: -signal.strength)
    texts = _texts_without_events(episode, signals)
    decisive = _decisive_positions(study, signals)
    event_budget = budget - sum(map(tokens, texts.values()))
    lines_by_position = _event_lines(study, decisive, event_budget)

    shown_positions = sorted(lines_by_position)
    lines = [lines_by_position[position] for position in shown_positions]
    omitted_count = len(episode.events) + episode.omitted - len(lines)
    if omitted_count:
        lines.append(f"… {omitted_count} events left out …")
    texts["events"] = "\n".join(lines)
    return shown_positions, {name: text for name, text in texts.items() if text}


def _texts_without_events(
    episode: Episode, signals: Sequence[Signal]
) -> dict[str, str]:
    """Return what a model is shown beside the events, by name; some may be empty.

    These are the goal, the task, the error and the outcome of the run, and the first of
    the `signals`, that is signs of a mistake, the strongest first.
    """
    fault = episode.fault or Fault("")
    error = f"{fault.category}: {fault.message}".strip(": ")
    signal_lines = [
        f"event {signal.at + 1}: {make_safe(signal.words, MAX_DECISIVE_CHARS)}"
        for signal in signals[:MAX_SHOWN_ITEMS]
    ]
    return {
        "goal": make_safe(episode.goal, MAX_DECISIVE_CHARS),
        "task": make_safe(episode.task, 2 * MAX_DECISIVE_CHARS),
        "error": make_safe(error, MAX_DECISIVE_CHARS),
        "error_context": make_safe(fault.context, MAX_DECISIVE_CHARS),
        "outcome": episode.outcome,
        "signals": "\n".join(signal_lines),
    }


def _decisive_positions(study: Study, signals: Sequence[Signal]) -> dict[int, None]:
    """Return the positions of the decisive events as keys, the most telling first.

    These are the events of the main mistake, of the other mistakes and of the signals
    (signs of a mistake), then the answer, the last event and the first one. The keys
    are in this order, each once.
    """
    positions: list[int | None] = []
    # The main mistake comes first, because False is less than True.
    for mistake in sorted(study.mistakes, key=lambda mistake: mistake != study.main):
        positions += [mistake.failed, study.course.result[mistake.failed]]
        positions += [*mistake.positions, *mistake.fix_steps]
    for signal in signals:
        positions += [signal.at, *signal.evidence]

    event_count = len(study.episode.events)
    positions += [study.course.answer, event_count - 1, 0]
    return dict.fromkeys(n for n in positions if n is not None and 0 <= n < event_count)


def _event_lines(
    study: Study, decisive: dict[int, None], budget: int
) -> dict[int, str]:
    """Return the lines of the events that fit into a `budget` of tokens, by position.

    Decisive events come first, then calls, then all others. A decisive event that does
    not fit is left out; any other event that does not fit is the last one looked at.
    """
    events = study.episode.events
    # The role of an event says whether it acts, that is calls a tool.
    calls = [n for n, role in enumerate(study.course.roles) if role == "act"]
    # An equal share for each event; a token is taken to have two characters.
    share_chars = 2 * budget // max(1, len(events))

    lines: dict[int, str] = {}
    for position in dict.fromkeys((*decisive, *calls, *range(len(events)))):
        max_chars = max(share_chars, MAX_EVENT_CHARS)
        detail_chars = share_chars
        if position in decisive:
            max_chars = max(share_chars, MAX_DECISIVE_CHARS)
            detail_chars = max_chars
        words = _describe_event(events[position], max_chars, detail_chars)
        line = f"{position + 1}. {words}"
        cost = tokens(f"{line}\n")
        if cost <= budget:
            lines[position] = line
            budget -= cost
        elif position not in decisive:
            break
    return lines


def _describe_event(event: Event, max_chars: int, detail_chars: int) -> str:
    """Return one line or more about an event: its type, agent and tool, then its text.

    The text has at most `max_chars` characters. Its error code and its other data
    follow in parentheses if there is room; with the text, they have at most
    `detail_chars`. What is too long is cut in the middle.
    """
    agent = f"of {event.agent}" if event.agent else ""
    names = filter(None, (event.type, agent, event.tool))
    title = " ".join(clean(name, MAX_LABEL_CHARS) for name in names)

    # Cutting at the middle takes 200 characters at least; `clean` cuts further.
    text = make_safe(trace.event_text(event), max(max_chars, MAX_SHOWN_LINE_CHARS))
    if len(text) > max_chars:
        text = clean(text, max_chars)

    room = detail_chars - len(text)
    details = trace.event_details(event)
    if details and room >= MIN_DETAIL_CHARS:
        shown_details = clean(make_safe(details, max(room, MAX_SHOWN_LINE_CHARS)), room)
        text = f"{text} ({shown_details})".lstrip()
    return f"{title}: {text}"


def make_safe(text: str, max_chars: int) -> str:
    """Return a text that a prompt may have: without secrets and role tokens, and short.

    A text of more than `max_chars` characters loses its middle.
    """
    short = cut_middle(redact(trace.ends(text)), max_chars)
    return sanitize(short).strip()
