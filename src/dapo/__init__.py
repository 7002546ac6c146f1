"""Reinforcement learning with verifiable rewards for language models: DAPO, with GRPO beside it."""

__version__ = "0.2.0"
