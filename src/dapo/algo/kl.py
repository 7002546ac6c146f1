"""KL divergence to a reference model, per token (GRPO has it in the loss; DAPO and DCPO have none).

All estimators: logp_BT, logp_ref_BT -> kl_BT, with d = logp_ref - logp limited to +-20. Names: Schulman, "Approximating KL
divergence" (2020). In a loss, k1's expected gradient is 0 and k2's is that of the KL itself; in a reward only the
value counts.
"""

from torch import Tensor


def _difference(logp_BT: Tensor, logp_ref_BT: Tensor) -> Tensor:
    return (logp_ref_BT - logp_BT).clamp(-20, 20)


def k1(logp_BT: Tensor, logp_ref_BT: Tensor) -> Tensor:
    """-d: unbiased, and negative at half of the tokens."""
    return -_difference(logp_BT, logp_ref_BT)


def k2(logp_BT: Tensor, logp_ref_BT: Tensor) -> Tensor:
    """d^2 / 2: biased and never negative."""
    return 0.5 * _difference(logp_BT, logp_ref_BT).square()


def k3(logp_BT: Tensor, logp_ref_BT: Tensor) -> Tensor:
    """exp(d) - d - 1: unbiased and never negative (GRPO eq. 4)."""
    d_BT = _difference(logp_BT, logp_ref_BT)
    return d_BT.exp() - d_BT - 1
