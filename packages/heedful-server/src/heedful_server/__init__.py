"""The library over HTTP: the service, its client, its jobs and its workers."""
