"""What a model is shown of a run: what failed first, then all events while they fit.

The signs of mistakes and their events come first, then the answer and both ends of the
run, then all calls in order, then every other event until the budget is spent. The
model reads the events in the order of the run, each with its number in the run, and one
line that says how many were left out. Reflector and judge are shown the same.
"""

from heedful.episodes import course as trace
from heedful.episodes.episode import Fault
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


def excerpt_tokens(model: Model) -> int:
    """Return how many tokens of a run a model is shown.

    A quarter of its context stays free, because tokens are estimated.
    """
    context: int = getattr(model, "context_tokens", DEFAULT_CONTEXT_TOKENS)
    return max(0, context - FRAME_TOKENS) * 3 // 4


def excerpt(study: Study, budget: int) -> tuple[list[int], dict[str, str]]:
    """Return the positions of the events that a model is shown, and its input by name.

    All texts have at most `budget` tokens, unless task and error alone have more.
    Secrets, control characters and role tokens are removed.
    """
    episode = study.episode
    ranked = sorted(study.signals, key=lambda signal: -signal.strength)
    signal_lines = [
        f"event {signal.at + 1}: {make_safe(signal.words, MAX_DECISIVE_CHARS)}"
        for signal in ranked[:MAX_SHOWN_ITEMS]
    ]

    fault = episode.fault or Fault("")
    error = f"{fault.category}: {fault.message}".strip(": ")
    texts = {
        "goal": make_safe(episode.goal, MAX_DECISIVE_CHARS),
        "task": make_safe(episode.task, 2 * MAX_DECISIVE_CHARS),
        "error": make_safe(error, MAX_DECISIVE_CHARS),
        "error_context": make_safe(fault.context, MAX_DECISIVE_CHARS),
        "outcome": episode.outcome,
        "signals": "\n".join(signal_lines),
    }

    decisive: list[int | None] = []
    for finding in sorted(study.mistakes, key=lambda mistake: mistake != study.main):
        decisive += [finding.failed, study.course.result[finding.failed]]
        decisive += [*finding.positions, *finding.fix_steps]
    for signal in ranked:
        decisive += [signal.at, *signal.evidence]
    decisive += [study.course.answer, len(episode.events) - 1, 0]
    places = [n for n in decisive if n is not None and 0 <= n < len(episode.events)]
    budget -= sum(map(tokens, texts.values()))
    line_at = _event_lines(study, dict.fromkeys(places), budget)

    lines = [line_at[position] for position in sorted(line_at)]
    omitted = len(episode.events) + episode.omitted - len(line_at)
    if omitted:
        lines.append(f"… {omitted} events left out …")
    texts["events"] = "\n".join(lines)
    return sorted(line_at), {name: text for name, text in texts.items() if text}


def _event_lines(
    study: Study, decisive: dict[int, None], budget: int
) -> dict[int, str]:
    """Return the lines of events by position: the decisive ones, the calls, the others.

    Each may use its share of the `budget`, in tokens; a longer one loses its middle.
    They end where the next one does not fit.
    """
    events = study.episode.events
    share = 2 * budget // max(1, len(events))  # a token has two characters or more
    lines: dict[int, str] = {}
    acts = [n for n, role in enumerate(study.course.roles) if role == "act"]
    for position in dict.fromkeys((*decisive, *acts, *range(len(events)))):
        event = events[position]
        agent = f"of {event.agent}" if event.agent else ""
        names = filter(None, (event.type, agent, event.tool))
        title = " ".join(clean(name, MAX_LABEL_CHARS) for name in names)

        least = MAX_DECISIVE_CHARS if position in decisive else MAX_EVENT_CHARS
        limit = max(share, least)
        text = make_safe(trace.event_text(event), max(limit, MAX_SHOWN_LINE_CHARS))
        if len(text) > limit:
            text = clean(text, limit)
        line = f"{position + 1}. {title}: {text}"
        cost = tokens(f"{line}\n")
        if cost <= budget:
            lines[position] = line
            budget -= cost
        elif position not in decisive:
            break
    return lines


def make_safe(text: str, max_chars: int) -> str:
    """Return a text without secrets and role tokens, a long one without its middle."""
    short = cut_middle(redact(trace.ends(text)), max_chars)
    return sanitize(short).strip()
