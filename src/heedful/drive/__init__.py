"""Host (a): drive a loop in this process, durably; its journal; reports from outside."""
