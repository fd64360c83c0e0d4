"""The commands of `heedful` that this package adds."""

from heedful.doors import CommandSet

SERVER_COMMANDS = CommandSet(
    package="heedful_server.cli",
    groups={
        "Set up and serve": {
            "serve": (
                "serve:serve",
                "Serve heedful over HTTP until SIGTERM or Ctrl-C.",
            ),
            "ui": ("serve:ui", "Look at loops, lessons and proof in the browser."),
            "worker": (
                "worker_command:worker",
                "Run the jobs that services put on the queue.",
            ),
            "key": (
                "key_command:service_keys",
                "Create, list and revoke keys; read the audit.",
            ),
        },
    },
    options={
        "serve": "host port model key_required workers rate drain settings db",
        "ui": "port tenant db",
        "worker": "model settings db",
        "worker jobs": "tenant db json",
        "key": "tenant db json",
    },
)
