"""The feedback that the next attempt reads: findings and unmet goals, bounded in length."""

from __future__ import annotations

from heedful.loop.record import Evaluation, Finding, Goal, format_score

MOST = 1_500
EACH = 400
HEAD = "The last answer was not accepted:"


def feedback(
    evaluation: Evaluation, goals: tuple[Goal, ...] = (), head: str = HEAD, tail: str = ""
) -> str:
    """Return one line for each finding and unmet goal; at most `MOST` characters in all.

    A line says what is wrong and how to fix it. Between `head` and `tail` stand the errors, most
    severe first, then unmet goals, then warnings, but no notes. Equal lines are printed once. Lines
    that do not fit are counted, never cut; control characters are removed.
    """
    lines = [_finding(f) for f in sorted(evaluation.errors, key=lambda f: -f.severity)]
    lines += [_goal(g, evaluation.scores[g.score]) for g in evaluation.unmet(goals)]
    lines += [_finding(f) for f in evaluation.findings if f.level == "warning"]
    if not (lines := list(dict.fromkeys(lines))):
        return ""
    kept: list[str] = [head]
    room = MOST - len(head) - len(tail) - 24
    for line in lines:
        room -= len(line) + 1
        if room < 0 and len(kept) > 1:
            kept.append(f"- and {len(lines) - len(kept) + 1} more.")
            break
        kept.append(line)
    return "\n".join(kept) + tail


def _finding(finding: Finding) -> str:
    what = clean(finding.message, EACH).rstrip(" .")
    fix = clean(finding.fix, EACH).rstrip()
    return f"- {clean(finding.check, 60)}: {what}. {fix}".rstrip()


def _goal(goal: Goal, score: float) -> str:
    word = "at least" if goal.direction == "at_least" else "at most"
    name, limit = clean(goal.score, 60), format_score(goal.threshold)
    return f"- {name} is {format_score(score)}; it must be {word} {limit}."


def clean(text: str, most: int) -> str:
    """Return one line without control and format characters, cut in the middle to `most`."""
    if len(text) <= most and text.isprintable() and "  " not in text:
        return text.strip()
    if len(text) > 4 * most:
        text = text[: 2 * most] + text[-2 * most :]
    if not text.isprintable():
        text = "".join(" " if c.isspace() else c for c in text if c.isspace() or _visible(c))
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    half = (most - 3) // 2
    return f"{text[:half].rstrip()} … {text[-half:].lstrip()}"


def _visible(char: str) -> bool:
    import unicodedata  # rarely needed, and takes 0.1 MB

    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")
