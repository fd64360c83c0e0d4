"""Hypothesis: the same examples every time, and many more in a soak run."""

import os

from hypothesis import settings

# `make soak` sets it to 100; a test marked `soak` multiplies its length by it.
SOAK = int(os.environ.get("ERRATA_SOAK", "1"))

settings.register_profile("test", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=100 * SOAK)
settings.load_profile("soak" if SOAK > 1 else "test")
