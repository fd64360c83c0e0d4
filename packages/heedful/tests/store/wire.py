"""A wire between a client and a PostgreSQL server, which tests count and cut."""

import select
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

# The last message of a pipeline, after which the server answers.
SYNC = b"S\0\0\0\x04"
# It may follow by itself, even after the answer to SYNC; nothing answers it.
FLUSH = b"H\0\0\0\x04"


class Wire:
    """Stands between clients and the server: counts round trips, cuts at a commit.

    `trips` counts how often a client waited for the server: each message of a client
    that follows an answer begins a round trip. `cut`: "before" the commit reaches the
    server, or "after", when its answer is on the way. `last_words` are in the message
    at which it is cut. `cuts` is how often it may still be cut.
    """

    def __init__(self, url: str, folder: Path) -> None:
        parts = conninfo_to_dict(url)
        self._server = f"{parts['host']}/.s.PGSQL.5432"
        self.url = url.replace(str(parts["host"]), str(folder))
        self.cut = ""
        self.last_words = b"commit\0"
        self.cuts = 1_000
        self.trips = 0
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(
                    target=self._carry, args=(client,), daemon=True
                ).start()

    def _carry(self, client: socket.socket) -> None:
        # Either end may be closed first.
        with suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            was_answered = True
            while True:
                ready, _, _ = select.select([client, server], [], [])
                message = ready[0].recv(65536)
                cut = ""
                if self.last_words in message and ready[0] is client and self.cuts:
                    cut = self.cut
                if cut:
                    self.cuts -= 1
                if not message or cut == "before":
                    return

                is_question = ready[0] is client
                if is_question and was_answered and message != FLUSH:
                    self.trips += 1
                if message != FLUSH:
                    was_answered = not is_question

                (server if ready[0] is client else client).sendall(message)
                if cut == "after":
                    sent = message
                    while message and SYNC not in sent:
                        message = client.recv(65536)
                        server.sendall(message)
                        sent += message
                    server.recv(65536)
                    return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@contextmanager
def wired(url: str) -> Iterator[Wire]:
    with tempfile.TemporaryDirectory() as folder:
        wire = Wire(url, Path(folder))
        try:
            yield wire
        finally:
            wire.close()
