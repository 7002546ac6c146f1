"""Train the tiny testbed model from scratch: a 1.6 M parameter Llama that solves chains of sums step by step.

The demonstrations show visible reasoning of varying length ("7+5-3" -> "7+5=12;12-3=9;Answer:9") and are bad on
purpose: some steps are slips, some replies say every step twice, some ramble on until they are cut. So the model knows
the task and performs it poorly; reinforcement learning can find the good behaviour within it.

Usage: python scripts/make_tiny_model.py OUT     (same machine, same bytes: fixed seeds, fixed thread count)
"""

import random
import sys
import time
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dapo.data.arithmetic import APPLY, generate
from dapo.launch.local import exact_matmul_precision

SPECIAL = ["<pad>", "<eos>", "<q>", "<a>"]
VOCABULARY = SPECIAL + list("0123456789+-=;") + ["Answer:"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}<q>{{ m.content }}{% else %}<a>{{ m.content }}<eos>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)
STEPS, BATCH, PEAK_LR, MAX_REPLY = 450, 128, 3e-3, 64
P_SLIP, P_TWICE, P_RAMBLE = 0.16, 0.25, 0.15


def make_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate(VOCABULARY)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"Answer:|."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.add_special_tokens({"additional_special_tokens": ["<q>", "<a>"]})
    fast.chat_template = CHAT_TEMPLATE
    return fast


def demonstration(expression: str, rng: random.Random) -> str:
    """A reply as a careless pupil would write it (see the module's text)."""
    signs = [c for c in expression if c in "+-"]
    first, *rest = (int(d) for d in expression.replace("-", "+").split("+"))
    twice = rng.random() < P_TWICE
    value, steps = first, []
    for sign, digit in zip(signs, rest, strict=True):
        result = APPLY[sign](value, digit)
        if rng.random() < P_SLIP:
            result = max(0, result + rng.choice([-2, -1, 1, 2, 10]))
        steps += [f"{value}{sign}{digit}={result};"] * (2 if twice else 1)
        value = result
    if rng.random() < P_RAMBLE:
        return "".join(steps) + f"{value}+0={value};" * 40
    return "".join(steps) + f"Answer:{value}<eos>"


def batches(tokenizer: PreTrainedTokenizerFast) -> list[list[tuple[list[int], int]]]:
    """STEPS batches of (token ids, prompt length)."""
    rng = random.Random(0)
    problems = generate("chain", "train", STEPS * BATCH // 4, seed=1)
    out = []
    for _ in range(STEPS):
        rows = []
        for problem in rng.choices(problems, k=BATCH):
            prompt = tokenizer.convert_tokens_to_ids(["<q>", *problem.text, "<a>"])
            reply = tokenizer(demonstration(problem.text, rng)).input_ids[:MAX_REPLY]
            rows.append((prompt + reply, len(prompt)))
        out.append(rows)
    return out


def train(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=192, intermediate_size=512, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True,
        pad_token_id=0, eos_token_id=1, bos_token_id=None, attn_implementation="eager",
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, weight_decay=0.01, betas=(0.9, 0.98))
    start = time.monotonic()
    for step, rows in enumerate(batches(tokenizer)):
        width = max(len(ids) for ids, _ in rows)
        input_ids = torch.zeros(len(rows), width, dtype=torch.long)
        labels = torch.full((len(rows), width), -100)
        for i, (ids, n_prompt) in enumerate(rows):
            input_ids[i, : len(ids)] = torch.tensor(ids)
            labels[i, n_prompt : len(ids)] = torch.tensor(ids[n_prompt:])
        loss = model(input_ids=input_ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = PEAK_LR * min(1, (step + 1) / 50) * (1 - step / STEPS)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}  {time.monotonic() - start:5.0f} s", flush=True)
    return model


def main() -> None:
    out = Path(sys.argv[1])
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision(exact_matmul_precision())
    torch.use_deterministic_algorithms(True)
    tokenizer = make_tokenizer()
    model = train(tokenizer)
    model.generation_config = GenerationConfig(eos_token_id=1, pad_token_id=0)
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main()
