"""The record: the run directory, its events, its rollouts, and where the run came from."""
