"""Other libraries at heedful's work, each in an environment of its own: `python -m
bench.peers`.
"""
