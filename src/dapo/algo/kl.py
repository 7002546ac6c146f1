"""KL divergence to a reference model (GRPO; DAPO has none)."""

from torch import Tensor


def k3(logp_BT: Tensor, logp_ref_BT: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = logp_ref - logp, per token: unbiased and never negative (GRPO eq. 4)."""
    d_BT = (logp_ref_BT - logp_BT).clamp(-20, 20)
    return d_BT.exp() - d_BT - 1
