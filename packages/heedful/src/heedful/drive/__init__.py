"""Drive loops in this process, record them in a journal, and decide on reported
attempts.
"""
