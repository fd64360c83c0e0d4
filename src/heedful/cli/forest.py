"""Uplifts with their intervals as a picture, one line each, what nothing covers beside 0."""

from __future__ import annotations

import io
from collections.abc import Sequence
from warnings import catch_warnings, filterwarnings

from heedful.cli.output import NoPictures
from heedful.lessons.proof import Comparison

COLOURS = {"helps": "#009E73", "hurts": "#D55E00"}
REST = "#777777"


def draw(rows: Sequence[tuple[str, Comparison]], title: str) -> bytes:
    """The picture as PNG, the first row on top. Raises NoPictures where matplotlib is missing."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        how = "pip install 'heedful[report]'; the table does without it"
        raise NoPictures(f"the picture needs matplotlib: {how}") from error
    with mpl.rc_context({"font.size": 10}), catch_warnings():
        filterwarnings("ignore", "Glyph")  # a lesson may hold what no font has
        figure = Figure(figsize=(9.5, 1.2 + 0.34 * len(rows)), dpi=150, layout="constrained")
        axes = figure.subplots()
        for place, (_, one) in enumerate(rows):
            colour, uplift = COLOURS.get(one.conclusion, REST), one.uplift
            axes.plot([100 * uplift.low, 100 * uplift.high], [place] * 2, color=colour, lw=2)
            if uplift.gain is not None:
                axes.plot([100 * uplift.gain], [place], "o", color=colour)
        names = [f"{name} ({one.shown} / {one.withheld})" for name, one in rows]
        axes.set_yticks(range(len(rows)), [name.replace("$", r"\$") for name in names])
        axes.set(xlim=(-103, 103), ylim=(len(rows) - 0.5, -0.5), xlabel="points")
        axes.axvline(0, color="#222222", lw=1)
        axes.set_title(f"{title} (times shown / withheld)", loc="right")
        axes.grid(axis="x", alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right", "left"]].set_visible(False)
        file = io.BytesIO()
        figure.savefig(file, format="png")
        return file.getvalue()
