"""Measured quality on data written by others: `python -m bench.quality --data
FOLDER`.
"""
