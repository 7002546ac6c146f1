"""The embedded engine: continuous batching on the trainer's own weights, on one CPU or GPU, with no extra dependency.

engine.py drives; scheduler.py says which request gets which row; cache.py holds keys and values; sampler.py draws.
"""
