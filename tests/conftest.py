"""Shared by all tests: one torch thread per test process, and the folders the tests need."""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def _threads() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    return ROOT / "recipes" / "tiny-model"
