"""`heedful` with short times between signs of life, so that a test need not wait for
long ones.
"""

from heedful.cli import main
from heedful.store import episodes
from heedful_server import worker as queued

if __name__ == "__main__":
    episodes.EPISODE_LEASE_SECONDS = 0.5
    queued.HEARTBEAT_SECONDS = 0.2
    queued.MAX_SILENCE_SECONDS = 1.0
    queued.POLL_INTERVAL_SECONDS = 0.1
    queued.SWEEP_CRON = "* * * * * *"
    main()
