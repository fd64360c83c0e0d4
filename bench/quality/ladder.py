"""Ladder: is the large model paid once? A small and a large model on public streams.

Every arm has the same tasks, prompts and checks, and at most `CALLS` calls a task. A
token of the large model costs `PRICES[1]` times one of the small model.

    small        0.5B alone
    small_ours   0.5B with a memory
    large        1.5B alone
    large_ours   1.5B with a memory
    ladder       0.5B, then 1.5B
    ladder_ours  0.5B, then 1.5B, with a memory that both share

`EXPECTED` and `HOURS` were written before the first run.
"""

from __future__ import annotations

from collections.abc import Mapping

CALLS = 3
PRICES = (1.0, 5.0)
# Core hours of 60 tasks on quiet cores: 1.5B takes three times as long as 0.5B.
HOURS: Mapping[str, float] = {
    "large, four streams": 0.3,
    "large_ours, four streams": 0.5,
    "ladder and ladder_ours, four streams": 0.4,
    "small and small_ours, four streams": 0.2,
    "explore and even, two streams": 0.2,
}
EXPECTED: Mapping[str, tuple[float, str]] = {
    "geo.large_over_small.solved": (0.20, "the 0.5B model knows no such schema"),
    "spider.large_over_small.solved": (0.15, "1.5B is trained on more SQL"),
    "banking77.large_over_small.solved": (0.15, "it reads a list of 38 queues better"),
    "clinc150.large_over_small.solved": (0.15, "as banking77"),
    "open.ladder_ours_over_large_ours.solved": (
        -0.02,
        "one call of the large model less after two of the small one",
    ),
    "open.ladder_ours_over_large_ours.cost_ratio": (
        0.60,
        "half of the tasks end on the small model, the others cost what they did",
    ),
    "open.ladder_ours_over_ladder.alone": (
        0.15,
        "examples of the large model are shown to the small one",
    ),
    "open.explore_over_even.second_half": (0.0, "a few more right answers in memory"),
}
