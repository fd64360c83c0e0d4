"""Models and embedders: one adapter a file, found by the names users write."""
