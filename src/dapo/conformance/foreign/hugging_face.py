"""TRL (Python and YAML, with unsloth's and axolotl's readings of it) and ms-swift."""

from typing import Any

from dapo.conformance.foreign import parts as p
from dapo.conformance.foreign.config import Config, Unresolved
from dapo.conformance.foreign.parts import Finding

TRL_KEYS = {
    "epsilon", "epsilon_high", "loss_type", "num_generations", "max_completion_length", "scale_rewards", "reward_funcs",
    "mask_truncated_completions",
}  # fmt: skip
KNOWN_REWARDS = {"accuracy_reward", "think_format_reward", "reasoning_accuracy_reward"}  # TRL's own that ignore length
PUNISHMENT = "get_soft_overlong_punishment"
RATIO_LEVEL = "importance_sampling_level"


def is_trl(c: Config) -> bool:
    """GRPOConfig imported or called, axolotl's `trl:` block with `rl: grpo`, or a YAML file for TrlParser."""
    if c.kind == "python":
        imported = any(w.startswith("trl") and w.endswith(".GRPOConfig") for w in c.words)
        return imported or any(call.short == "GRPOConfig" for call in c.calls)
    if c.get("rl") == "grpo":
        return True
    top = {k.partition(".")[0] for k in c.settings}
    return c.kind == "yaml" and not is_swift(c) and len(TRL_KEYS & top) >= 2


def view_trl(c: Config) -> Config:
    """TRL's names at the top, wherever the file has them. Errors: ValueError for two different GRPOConfigs in one file."""
    if c.kind != "python":
        settings = {k.removeprefix("trl."): v for k, v in c.settings.items()}
        return Config(c.kind, settings, c.words, c.entry, c.tree, incomplete=c.incomplete)
    made = [call for call in c.calls if call.short == "GRPOConfig"]
    if any(call.kwargs != made[0].kwargs for call in made):
        raise ValueError("it makes several different GRPOConfigs; put each into a file of its own")
    settings = dict(made[0].kwargs) if made else {}
    lost = "GRPOConfig is filled by a parser" if not made else ""
    if "**" in settings:
        lost = f"GRPOConfig(**{settings.pop('**')})"
    later = {k.partition(".")[2]: v for k, v in c.settings.items() if made and k.partition(".")[0] == made[0].bound}
    return Config(c.kind, {**settings, **later}, c.words, calls=c.calls, incomplete=lost)


def inspect_trl(c: Config) -> list[Finding]:
    """Section 2 of the mapping."""
    imported = any(w.partition(".")[0] == "unsloth" for w in c.words)
    unsloth = imported and c.get("loss_type", "bnpo") == "dapo"
    overlong = _trl_overlong(c)
    masked = True if unsloth else c.get("mask_truncated_completions", False)
    mask = p.both_overlong(overlong, masked, p.show(c, "mask_truncated_completions", False))
    return [
        *(_unsloth_clip(c) if unsloth else [p.clip_higher(c, "epsilon", "epsilon_high")]),
        _trl_sampling(c),
        _dated(p.switch(c, p.TOKENS, "loss_type", "dapo", "bnpo" if imported else "dapo",
               "dapo (tokens of the global batch)", "bnpo divides by the tokens of a local batch, grpo by responses")),
        overlong,
        _dated(p.zero(c, p.KL, {"beta": 0.001 if imported else 0.0})),
        p.switch(c, p.STD, "scale_rewards", ("group", True), "group", "divided by the group's standard deviation"),
        mask,
        *p.token_ratio(c, RATIO_LEVEL, "token", ("token",)),
        *(p.other(c, "vllm_importance_sampling_correction", True, "weights pi_old / pi_engine in the loss")
          if c.get("use_vllm", False) is True else []),
    ]  # fmt: skip


def _dated(found: Finding) -> Finding:
    """A default that older releases did not have."""
    if found.verdict == "on-as-paper" and "not set" in found.seen:
        return Finding(found.part, found.verdict, found.seen, found.paper, "older releases had another default")
    return found


def _unsloth_clip(c: Config) -> list[Finding]:
    why = "unsloth sets epsilon_high = 0.28 and masks truncated completions whenever loss_type is dapo"
    judged = p.clip_higher(Config(c.kind, {**c.settings, "epsilon_high": 0.28}), "epsilon", "epsilon_high")
    found = [Finding(p.CLIP, judged.verdict, p.show(c, "epsilon", 0.2), judged.paper, why)]
    if c.has("epsilon_high") and c.get("epsilon_high") != 0.28:
        found.append(Finding(p.CLIP, "set-but-no-effect", p.show(c, "epsilon_high"), judged.paper, why))
    return found


def _trl_sampling(c: Config) -> Finding:
    paper = "refill until N groups are informative"
    lookalikes = [k for k in ("replay_buffer_size", "skip_zero_advantage_batches") if c.get(k) not in (None, 0, False)]
    if lookalikes or any(call.short.startswith("GRPOWithReplayBuffer") for call in c.calls):
        seen = ", ".join(p.show(c, k) for k in lookalikes) or "replay buffer"
        return Finding(
            p.SAMPLING, "off", seen, paper, "replaying or skipping is not sampling again: TRL has no dynamic sampling"
        )
    return Finding(p.SAMPLING, "off", "no such key", paper, "TRL has no dynamic sampling")


def _items(value: Any) -> list[str]:
    return [str(v) for v in value[:50]] if isinstance(value, list) else [str(value)]


def _trl_overlong(c: Config) -> Finding:
    paper = f"{PUNISHMENT}(20480, 4096)"
    if c.kind == "python":
        given = [
            call.kwargs["reward_funcs"]
            for call in c.calls
            if call.short.endswith("Trainer") and "reward_funcs" in call.kwargs
        ]
        rewards = _items(given[0]) if given else ["reward functions are given elsewhere"]
    else:
        rewards = _items(c.get("reward_funcs", "reward functions are given in code"))
    place = next((i for i, name in enumerate(rewards) if PUNISHMENT in name), None)
    seen = f"reward_funcs = {p.brief(list(rewards))}"
    if place is None and all(name.rpartition(".")[2] in KNOWN_REWARDS for name in rewards):
        return Finding(p.OVERLONG, "off", seen, paper, "no punishment among the rewards")
    if place is None:
        return Finding(
            p.OVERLONG, "needs-code", seen, paper, "what the reward functions do with length is in their code"
        )
    call = next((call for call in c.calls if call.short == PUNISHMENT), None)
    if call is None:
        return Finding(p.OVERLONG, "needs-code", seen, paper, "its lengths are set where the function is made")
    names = ("max_completion_len", "soft_punish_cache")
    arguments = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
    L_max, L_cache = (arguments.get(n) for n in names)
    seen = f"{PUNISHMENT}({L_max}, {L_cache}), {p.show(c, 'max_completion_length', 512)}"
    weight = _weight(c, place)
    if weight == 0:
        return Finding(p.OVERLONG, "set-but-no-effect", seen, paper, "its weight in reward_weights is 0")
    return p.soft_overlong(p.Soft(L_max, L_cache, weight, c.get("max_completion_length", 512), capped=True, seen=seen))


def _weight(c: Config, place: int) -> Any:
    """The weight of a reward function; all are 1 where none are given."""
    weights = c.get("reward_weights")
    if isinstance(weights, list) and place < len(weights):
        return weights[place]
    return weights if isinstance(weights, Unresolved) and c.has("reward_weights") else 1


def is_swift(c: Config) -> bool:
    """A YAML file with rlhf_type."""
    return c.has("rlhf_type")


def inspect_swift(c: Config) -> list[Finding]:
    """Section 6 of the mapping."""
    given = c.get("reward_funcs", [])
    rewards = _items(given) if isinstance(given, list) else str(given).split()
    soft = "soft_overlong" in rewards
    overlong = _swift_overlong(c, rewards if soft else [])
    return [
        p.clip_higher(c, "epsilon", "epsilon_high"),
        _swift_sampling(c, soft),
        _swift_loss(c),
        overlong,
        p.zero(c, p.KL, {"beta": 0.04}),
        p.switch(c, p.STD, "scale_rewards", ("group", True), "group", "divided by the group's standard deviation"),
        p.both_overlong(overlong, c.get("overlong_filter", False), p.show(c, "overlong_filter", False)),
        *p.token_ratio(c, RATIO_LEVEL, "token", ("token",)),
        *p.other(c, "rollout_importance_sampling_mode", None, "weights pi_old / pi_engine in the loss"),
    ]


def _swift_sampling(c: Config, soft: bool) -> Finding:
    on = p.switch(c, p.SAMPLING, "dynamic_sample", True, False, "on, by correctness", p.UNFILTERED)
    if on.verdict != "on-as-paper":
        return on
    if soft:
        why = "the criterion is the sum of all reward functions, soft_overlong included"
        return Finding(p.SAMPLING, "on-different-value", f"{on.seen}, {p.show(c, 'reward_funcs')}", on.paper, why)
    why = "when the tries are spent it trains on the unfiltered batch without saying so"
    return Finding(p.SAMPLING, "on-as-paper", f"{on.seen}, {p.show(c, 'max_resample_times', 3)}", on.paper, why)


def _swift_loss(c: Config) -> Finding:
    loss = p.switch(c, p.TOKENS, "loss_type", "dapo", "grpo", "dapo", "the mean is over responses")
    steps = c.get("gradient_accumulation_steps", 1)
    if loss.verdict == "on-as-paper" and p.is_number(steps) and steps > 1:
        why = "dapo's loss is divided by the accumulation steps once more (issue 10117)"
        return Finding(
            p.TOKENS, "on-different-value", f"{loss.seen}, gradient_accumulation_steps = {steps}", "dapo", why
        )
    return loss


def _swift_overlong(c: Config, rewards: list[str]) -> Finding:
    limit, L_max = c.get("max_completion_length", 512), c.get("soft_max_length")
    defaults = {
        "reward_funcs": None,
        "soft_cache_length": None,
        "soft_max_length": "the limit",
        "max_completion_length": 512,
    }
    seen = ", ".join(p.show(c, k, v) for k, v in defaults.items())
    paper = "reward_funcs soft_overlong, soft_cache_length 4096"
    if isinstance(c.get("reward_funcs"), Unresolved):
        return Finding(p.OVERLONG, "needs-code", seen, paper, p.open_question(c.get("reward_funcs")))
    if not rewards:
        lone = c.has("soft_cache_length") or c.has("soft_max_length")
        why = "reward_funcs does not name soft_overlong" if lone else ""
        return Finding(p.OVERLONG, "set-but-no-effect" if lone else "off", seen, paper, why)
    weight = _weight(c, rewards.index("soft_overlong"))
    if weight == 0:
        return Finding(p.OVERLONG, "set-but-no-effect", seen, paper, "its weight in reward_weights is 0")
    L_max = limit if L_max is None else L_max
    return p.soft_overlong(p.Soft(L_max, c.get("soft_cache_length"), weight, limit, capped=False, seen=seen))
