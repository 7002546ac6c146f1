"""Reward functions for runs that must not find an informative group."""


def score(problem, texts):
    return [-1.0 for _ in texts]


def right(problem, texts):
    return [1.0 for _ in texts]


def broken(problem, texts):
    raise RuntimeError("this reward is broken")
