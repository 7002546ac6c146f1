"""Rollouts: the engine protocol, the embedded and the scripted engine, and dynamic sampling as a stream."""
