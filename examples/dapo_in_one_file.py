"""The whole of DAPO in one file, on torch alone: read it from top to bottom in ten minutes, run it in one.

    python examples/dapo_in_one_file.py

A small transformer, with random weights, learns (a + b) mod 10 from rewards only. It may "think": any tokens are allowed
before the answer, the answer is the last digit before <end>, and a response that does not end in time is cut.
The four parts of DAPO (arXiv 2503.14476) are marked [1] to [4]; tests/test_example.py holds each against the package.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Shapes: P prompts, G responses to each, B = P * G sequences, T response tokens, V vocabulary.
DIGITS, END, PAD, PLUS = 10, 10, 11, 12
V = 13
G = 16  # responses to a prompt
N = 16  # groups in a batch
UPDATES = 4  # gradient updates on a batch: without several, the ratio is always 1 and no clip can act
EPS_LOW, EPS_HIGH = 0.2, 0.28
L_MAX, L_CACHE = 8, 4
LR = 1e-3


# ---------------------------------------------------------------------------------------------------- the algorithm


def soft_overlong_punishment(length_B: Tensor, l_max: int, l_cache: int) -> Tensor:
    """[4] eq. 13: 0 up to l_max - l_cache, then down to -1 at l_max."""
    return ((l_max - l_cache - length_B) / l_cache).clamp(-1, 0)


def is_informative(correct_PG: Tensor) -> Tensor:
    """[2] eq. 11: some but not all answers of the group are correct. It looks at correctness, never at the reward."""
    count_P = correct_PG.sum(1)
    return (count_P > 0) & (count_P < correct_PG.shape[1])


def advantages(reward_PG: Tensor) -> Tensor:
    """eq. 9: normalised within the group (unbiased standard deviation, 1e-6 added, as in the reference code)."""
    return (reward_PG - reward_PG.mean(1, keepdim=True)) / (reward_PG.std(1, keepdim=True) + 1e-6)


def dapo_loss(logp_BT: Tensor, logp_old_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor) -> Tensor:
    """eq. 8, to minimise."""
    ratio_BT = torch.exp(logp_BT - logp_old_BT)
    advantage_B1 = advantage_B[:, None]
    clipped_BT = ratio_BT.clamp(1 - EPS_LOW, 1 + EPS_HIGH)  # [1] Clip-Higher: only the upper bound is raised
    loss_BT = -torch.minimum(ratio_BT * advantage_B1, clipped_BT * advantage_B1)
    return (loss_BT * mask_BT).sum() / mask_BT.sum()  # [3] token-level: every token weighs the same


# ---------------------------------------------------------------------------------------------------- the model


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4, context: int = 3 + L_MAX) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(V, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, V)

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids (B, S) -> logits (B, S, V)."""
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        logits[..., PAD:] = -1e9  # padding and plus are no answers
        return logits


# ---------------------------------------------------------------------------------------------------- the task


def endless_prompts(generator: torch.Generator) -> Iterator[tuple[int, int]]:
    """All pairs of digits, shuffled, again and again."""
    while True:
        for i in torch.randperm(DIGITS * DIGITS, generator=generator).tolist():
            yield divmod(i, DIGITS)


def is_correct(prompt: tuple[int, int], response: list[int]) -> bool:
    """The response ends, and the last digit before its end is the answer."""
    return len(response) > 1 and response[-1] == END and response[-2] == (prompt[0] + prompt[1]) % 10


# ---------------------------------------------------------------------------------------------------- rollouts


@dataclass
class Group:
    prompt: tuple[int, int]
    tokens_GT: Tensor  # responses, PAD behind their end
    length_G: Tensor
    correct_G: Tensor
    reward_G: Tensor  # correctness +-1 plus the length punishment


@torch.no_grad()
def generate(model: Transformer, prompts: list[tuple[int, int]], generator: torch.Generator) -> list[Group]:
    """G responses to each prompt, sampled at temperature 1."""
    rows = torch.tensor([[a, PLUS, b] for a, b in prompts]).repeat_interleave(G, 0)
    alive = torch.ones(len(rows), dtype=torch.bool)
    for _ in range(L_MAX):
        token = torch.multinomial(model(rows)[:, -1].softmax(-1), 1, generator=generator)[:, 0]
        token = torch.where(alive, token, PAD)
        alive &= token != END
        rows = torch.cat([rows, token[:, None]], 1)
    groups = []
    for i, prompt in enumerate(prompts):
        tokens_GT = rows[i * G : (i + 1) * G, 3:]
        length_G = (tokens_GT != PAD).sum(1)
        texts = [t[:n].tolist() for t, n in zip(tokens_GT, length_G, strict=True)]
        correct_G = torch.tensor([is_correct(prompt, text) for text in texts])
        reward_G = torch.where(correct_G, 1.0, -1.0) + soft_overlong_punishment(length_G, L_MAX, L_CACHE)
        groups.append(Group(prompt, tokens_GT, length_G, correct_G, reward_G))
    return groups


def collect(
    model: Transformer, stream: Iterator[tuple[int, int]], generator: torch.Generator, most: int = 50 * N
) -> tuple[list[Group], list[Group]]:
    """[2] Dynamic Sampling: keep taking prompts until N groups are informative. Returns (batch, everything generated).

    This file generates N prompts at a time and drops the surplus; the package streams groups, adapts how many are in
    flight, and gives surplus prompts back (src/dapo/rollout/collect.py).
    """
    kept: list[Group] = []
    offered: list[Group] = []
    while len(kept) < N:
        if len(offered) >= most:
            raise RuntimeError(f"only {len(kept)} of {N} informative groups after {most} prompts")
        new = generate(model, [next(stream) for _ in range(N)], generator)
        offered += new
        keep_P = is_informative(torch.stack([g.correct_G for g in new]))
        kept += [g for g, keep in zip(new, keep_P.tolist(), strict=True) if keep]
    return kept[:N], offered


def logprobs(model: Transformer, prompt_B3: Tensor, tokens_BT: Tensor) -> Tensor:
    """log pi(token) for every response token (B, T); the value behind the end means nothing and is masked."""
    logits_BTV = model(torch.cat([prompt_B3, tokens_BT], 1)[:, :-1])[:, 2:]
    target_BT1 = tokens_BT.clamp(max=END)[..., None]
    return logits_BTV.log_softmax(-1).gather(-1, target_BT1)[..., 0]


# ---------------------------------------------------------------------------------------------------- the procedure


def train_step(model: Transformer, optimizer: torch.optim.Optimizer, groups: list[Group]) -> float:
    """UPDATES gradient updates on a batch, each on whole groups. Returns the last loss."""
    prompt_B3 = torch.tensor([[g.prompt[0], PLUS, g.prompt[1]] for g in groups]).repeat_interleave(G, 0)
    tokens_BT = torch.cat([g.tokens_GT for g in groups])
    mask_BT = (tokens_BT != PAD).float()
    advantage_B = advantages(torch.stack([g.reward_G for g in groups])).flatten()
    with torch.no_grad():
        logp_old_BT = logprobs(model, prompt_B3, tokens_BT)  # of the policy as it is before the first update
    for part in torch.arange(len(tokens_BT)).chunk(UPDATES):
        logp_BT = logprobs(model, prompt_B3[part], tokens_BT[part])
        loss = dapo_loss(logp_BT, logp_old_BT[part], advantage_B[part], mask_BT[part])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float(loss.detach())


def accuracy(groups: list[Group]) -> float:
    return float(torch.cat([g.correct_G for g in groups]).float().mean())


def train(steps: int, seed: int = 0, say: bool = True) -> tuple[Transformer, list[float]]:
    """Train from scratch. Returns the model and the accuracy before filtering at each step."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, stream, history, start = Transformer(), endless_prompts(generator), [], time.monotonic()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    for step in range(1, steps + 1):
        try:
            batch, offered = collect(model, stream, generator)
        except RuntimeError as error:  # as it should be in the end: nearly every group is all right
            if say:
                print(f"step {step:3d} stops: {error}")
            break
        loss = train_step(model, optimizer, batch)
        history.append(accuracy(offered))
        if say and (step == 1 or step % 10 == 0):
            right = sum(bool(g.correct_G.all()) for g in offered)
            wrong = sum(not bool(g.correct_G.any()) for g in offered)
            length = float(torch.cat([g.length_G for g in offered]).float().mean())
            print(
                f"step {step:3d}  accuracy {history[-1]:4.0%}  groups: {N} kept of {len(offered)} "
                f"({right} all right, {wrong} all wrong)  length {length:.1f}  loss {loss:+.3f}  "
                f"{time.monotonic() - start:.0f} s"
            )
    return model, history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    train(arguments.steps, arguments.seed)
