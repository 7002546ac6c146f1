"""TRL (Python and YAML, with unsloth's and axolotl's readings of it) and ms-swift."""

from typing import Any

from dapo.conformance.foreign import parts as p
from dapo.conformance.foreign.config import Call, Config, Unresolved
from dapo.conformance.foreign.parts import Finding

TRL_KEYS = {"epsilon", "epsilon_high", "loss_type", "num_generations", "max_completion_length", "scale_rewards",
            "mask_truncated_completions", "reward_funcs"}  # fmt: skip
AXOLOTL = "trl."


def is_trl(c: Config) -> bool:
    """A call of GRPOConfig, `trl grpo`, axolotl's `trl:` block with `rl: grpo`, or a YAML file for TrlParser."""
    if c.kind == "python":
        return any(_name(call) == "GRPOConfig" for call in c.calls)
    if c.get("rl") == "grpo" or c.says("trl-grpo"):
        return True
    top = {k.partition(".")[0] for k in c.settings}
    return "trl" in c.words or (c.kind == "yaml" and not is_swift(c) and len(TRL_KEYS & top) >= 2)


def _name(call: Call) -> str:
    return call.name.rpartition(".")[2]


def view_trl(c: Config) -> Config:
    """TRL's names at the top, wherever the file has them."""
    if c.kind == "python":
        settings: dict[str, Any] = {}
        for call in c.calls:
            if _name(call) == "GRPOConfig":
                settings |= call.kwargs
        lost = f"GRPOConfig(**{settings.pop('**')})" if "**" in settings else ""
        return Config(c.kind, c.text, settings, c.words, calls=c.calls, incomplete=lost)
    settings = {k.removeprefix(AXOLOTL): v for k, v in c.settings.items()}
    return Config(c.kind, c.text, settings, c.words, c.tree, incomplete=c.incomplete)


def inspect_trl(c: Config) -> list[Finding]:
    """Section 2 of the mapping."""
    unsloth = c.kind == "python" and any(w.partition(".")[0] == "unsloth" for w in c.words)
    axolotl = c.get("rl") == "grpo"
    overlong = _trl_overlong(c)
    masked = c.get("mask_truncated_completions", False)
    found = [
        p.clip_higher(c, "epsilon", "epsilon_high"),
        _trl_sampling(c, axolotl),
        p.switch(c, p.TOKENS, "loss_type", "dapo", "bnpo" if unsloth else "dapo", "dapo (tokens of the global batch)",
                 "bnpo divides by the tokens of a local batch, grpo by responses; older TRL defaulted to them"),
        overlong,
        p.zero(c, p.KL, {"beta": 0.001 if unsloth else 0.0}),
        p.switch(c, p.STD, "scale_rewards", ("group", True), "group", "divided by the group's standard deviation"),
        *p.both_overlong([overlong], masked is True, p.show(c, "mask_truncated_completions", False)),
    ]  # fmt: skip
    return _unsloth(c, found) if unsloth else found


def _trl_sampling(c: Config, axolotl: bool) -> Finding:
    paper = "refill until N groups are informative"
    lookalikes = [k for k in ("replay_buffer_size", "skip_zero_advantage_batches") if c.get(k) not in (None, 0, False)]
    if any(_name(call).startswith("GRPOWithReplayBuffer") for call in c.calls) or (axolotl and lookalikes):
        why = "replaying or skipping is not sampling again: TRL has no dynamic sampling"
        return Finding(p.SAMPLING, "off", ", ".join(p.show(c, k) for k in lookalikes) or "replay buffer", paper, why)
    return Finding(p.SAMPLING, "off", "no such key", paper, "TRL has no dynamic sampling")


def _trl_overlong(c: Config) -> Finding:
    paper = "get_soft_overlong_punishment(20480, 4096)"
    limit = c.get("max_completion_length", 512)
    punishments = [call for call in c.calls if _name(call) == "get_soft_overlong_punishment"]
    if punishments:
        call = punishments[0]
        names = ("max_completion_len", "soft_punish_cache")
        given = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
        L_max, L_cache = (given.get(n) for n in names)
        seen = f"get_soft_overlong_punishment({L_max}, {L_cache}), {p.show(c, 'max_completion_length', 512)}"
        return p.soft_overlong(p.Soft(L_max, L_cache, 1, limit, capped=True, seen=seen))
    named = str(c.get("reward_funcs", ""))
    if "soft_overlong" in named:
        why = "the reward function's lengths are set where it is made"
        return Finding(p.OVERLONG, "needs-code", p.show(c, "reward_funcs"), paper, why)
    if c.kind == "python" or c.has("reward_funcs"):
        return Finding(p.OVERLONG, "off", "no get_soft_overlong_punishment among the rewards", paper)
    return Finding(p.OVERLONG, "needs-code", "reward functions are given in code", paper, "TRL has no key for it")


def _unsloth(c: Config, found: list[Finding]) -> list[Finding]:
    """unsloth overrides TRL's values when loss_type is dapo, whatever the file says."""
    if c.get("loss_type", "bnpo") != "dapo":
        return found
    why = "unsloth sets epsilon_high = 0.28 and masks truncated completions whenever loss_type is dapo"
    set_high = c.has("epsilon_high") and c.get("epsilon_high") != 0.28
    clip = Finding(
        p.CLIP, "set-but-no-effect" if set_high else "on-as-paper", p.show(c, "epsilon_high"), "0.2 / 0.28", why
    )
    mask = Finding(p.MASK, "on-different-value", p.show(c, "mask_truncated_completions"), "off", why)
    return [{p.CLIP: clip, p.MASK: mask}.get(f.part, f) for f in found]


def is_swift(c: Config) -> bool:
    """`swift rlhf`, `megatron rlhf`, or a YAML file with rlhf_type."""
    return ("rlhf" in c.words and ("swift" in c.words or "megatron" in c.words)) or c.has("rlhf_type")


def inspect_swift(c: Config) -> list[Finding]:
    """Section 6 of the mapping."""
    rewards = c.get("reward_funcs", [])
    rewards = rewards if isinstance(rewards, list) else str(rewards).split()
    soft = "soft_overlong" in rewards
    overlong = _swift_overlong(c, soft)
    return [
        p.clip_higher(c, "epsilon", "epsilon_high"),
        *_swift_sampling(c, soft),
        *_swift_loss(c),
        overlong,
        p.zero(c, p.KL, {"beta": 0.04}),
        p.switch(c, p.STD, "scale_rewards", ("group", True), "group", "divided by the group's standard deviation"),
        *p.both_overlong([overlong], c.get("overlong_filter", False) is True, p.show(c, "overlong_filter", False)),
    ]


def _swift_sampling(c: Config, soft: bool) -> list[Finding]:
    on = p.switch(c, p.SAMPLING, "dynamic_sample", True, False, "on, by correctness", p.UNFILTERED)
    if on.verdict != "on-as-paper":
        return [on]
    tries = p.show(c, "max_resample_times", 3)
    if soft:
        why = "the criterion is the sum of all reward functions, soft_overlong included"
        return [Finding(p.SAMPLING, "on-different-value", f"{on.seen}, {p.show(c, 'reward_funcs')}", on.paper, why)]
    why = "when the tries are spent it trains on the unfiltered batch without saying so"
    return [Finding(p.SAMPLING, "on-as-paper", f"{on.seen}, {tries}", on.paper, why)]


def _swift_loss(c: Config) -> list[Finding]:
    loss = p.switch(c, p.TOKENS, "loss_type", "dapo", "grpo", "dapo", "the mean is over responses")
    steps = c.get("gradient_accumulation_steps", 1)
    if loss.verdict == "on-as-paper" and p.is_number(steps) and steps > 1:
        why = "dapo's loss is divided by the accumulation steps once more (issue 10117)"
        return [
            Finding(p.TOKENS, "on-different-value", f"{loss.seen}, gradient_accumulation_steps = {steps}", "dapo", why)
        ]
    return [loss]


def _swift_overlong(c: Config, soft: bool) -> Finding:
    limit = c.get("max_completion_length", 512)
    L_max = c.get("soft_max_length")
    seen = ", ".join(
        p.show(c, k) for k in ("reward_funcs", "soft_cache_length", "soft_max_length", "max_completion_length")
    )
    paper = "reward_funcs soft_overlong, soft_cache_length 4096"
    if isinstance(c.get("reward_funcs"), Unresolved):
        return Finding(p.OVERLONG, "needs-code", seen, paper, p.open_question(c.get("reward_funcs")))
    if not soft:
        lone = c.has("soft_cache_length") or c.has("soft_max_length")
        why = "reward_funcs does not name soft_overlong" if lone else ""
        return Finding(p.OVERLONG, "set-but-no-effect" if lone else "off", seen, paper, why)
    return p.soft_overlong(
        p.Soft(limit if L_max is None else L_max, c.get("soft_cache_length"), 1, limit, capped=False, seen=seen)
    )
