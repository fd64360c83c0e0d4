"""Host (c): the library over HTTP, its client, its jobs and workers."""
