"""Reinforcement learning with verifiable rewards for language models: DAPO, with GRPO beside it."""

__version__ = "0.1.0"
