"""`heedful` with short times between signs of life, so that a test need not wait for long ones."""

from heedful.cli import main
from heedful.service import worker as queued
from heedful.store import episodes

if __name__ == "__main__":
    episodes.LEASE = 0.5
    queued.BEAT, queued.SILENT, queued.POLL = 0.2, 1.0, 0.1
    queued.SWEEPS = "* * * * * *"
    main()
