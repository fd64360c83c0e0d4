"""Host (c): the library over HTTP, with its client, its jobs and its workers."""
