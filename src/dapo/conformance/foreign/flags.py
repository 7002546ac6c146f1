"""Systems that are configured by command-line flags in shell scripts: OpenRLHF, slime (and miles), open-instruct."""

from typing import Any

from dapo.conformance.foreign import parts as p
from dapo.conformance.foreign.config import Config, Unresolved
from dapo.conformance.foreign.parts import Finding

OPENRLHF_OLD = {
    "eps_clip_low_high": "actor.eps_clip_low_high", "dynamic_filtering": "algo.dynamic_filtering_enable",
    "dynamic_filtering_reward_range": "algo.dynamic_filtering_range", "overlong_buffer_len": "reward.overlong_buffer_len",
    "overlong_penalty_factor": "reward.overlong_penalty_factor", "init_kl_coef": "algo.kl.init_coef",
    "advantage_estimator": "algo.advantage.estimator", "generate_max_len": "rollout.max_new_tokens",
}  # fmt: skip


def is_openrlhf(c: Config) -> bool:
    """`openrlhf.cli.train_ppo_ray`."""
    return any(c.under("actor.eps_clip")) and any(c.under("algo."))


def inspect_openrlhf(c: Config) -> list[Finding]:
    """Section 3 of the mapping."""
    old = {k: f"a flag of older releases; in 0.11 it is --{now}" for k, now in OPENRLHF_OLD.items()}
    gspo = c.get("actor.policy_loss_type") == "gspo" or c.get("actor.policy_loss") == "gspo"
    return [
        _openrlhf_clip(c),
        _openrlhf_filter(c),
        Finding(p.TOKENS, "off", "policy loss gspo", "token mean", "gspo averages over responses") if gspo
        else Finding(p.TOKENS, "on-as-paper", "no flag: always the token mean", "token mean"),
        _openrlhf_overlong(c),
        p.zero(c, p.KL, {"algo.kl.init_coef": 0.01}),
        p.switch(c, p.STD, "algo.advantage.estimator", "group_norm", "gae", "group_norm",
                 "not divided by the group's deviation"),
        *p.stale(c, p.OTHER, old),
    ]  # fmt: skip


def _openrlhf_clip(c: Config) -> Finding:
    key = "actor.eps_clip_low_high"
    both = c.get(key)
    if both is None or isinstance(both, Unresolved):
        if isinstance(both, Unresolved):
            return Finding(p.CLIP, "needs-code", p.show(c, key), "0.2 0.28", p.open_question(both))
        return Finding(
            p.CLIP,
            "off",
            f"{p.show(c, key)}, {p.show(c, 'actor.eps_clip', 0.2)}",
            "0.2 0.28",
            "one bound for both sides",
        )
    low, high = both if isinstance(both, list) and len(both) == 2 else (both, None)
    return p.clip_higher(Config(c.kind, {f"{key} LO": low, f"{key} HI": high}), f"{key} LO", f"{key} HI")


def _openrlhf_filter(c: Config) -> Finding:
    paper = "on, range 0 1 with 0/1 scores or -1 1 with +-1 scores"
    on = p.switch(c, p.SAMPLING, "algo.dynamic_filtering_enable", True, False, paper, p.UNFILTERED)
    if on.verdict != "on-as-paper":
        return on
    span = c.get("algo.dynamic_filtering_range", [0, 1])
    seen = f"{on.seen}, {p.show(c, 'algo.dynamic_filtering_range', '0 1')}"
    if why := p.open_question(span, *(span if isinstance(span, list) else [])):
        return Finding(p.SAMPLING, "needs-code", seen, paper, why)
    if span not in ([0, 1], [-1, 1]):
        return Finding(
            p.SAMPLING, "on-different-value", seen, paper, "keeps groups by another range of their mean score"
        )
    rule = str(c.get("reward.remote_url", "")).rpartition("/")[2]
    if span == [0, 1] and "dapo" in rule:
        why = (
            "the scores of the dapo rule are +-1, and the range 0 1 drops every group that is not more than half right"
        )
        return Finding(p.SAMPLING, "conflict", f"{seen}, {p.show(c, 'reward.remote_url')}", paper, why)
    scores = "0/1" if span == [0, 1] else "+-1"
    return Finding(p.SAMPLING, "on-as-paper", seen, paper, f"if the scores are {scores}, which the file does not say")


def _openrlhf_overlong(c: Config) -> Finding:
    keys = ("reward.overlong_buffer_len", "reward.overlong_penalty_factor", "rollout.max_new_tokens")
    seen = ", ".join(p.show(c, k) for k in keys)
    length, limit = c.get(keys[0]), c.get(keys[2])
    if length is None:
        return Finding(p.OVERLONG, "off", seen, "buffer 4096 of 20480")
    if limit is None:
        why = "without --rollout.max_new_tokens L_max is --data.max_len, which counts the prompt too"
        return Finding(p.OVERLONG, "conflict", seen, "buffer 4096 of 20480", why)
    return p.soft_overlong(p.Soft(limit, length, c.get(keys[1], 1), limit, capped=True, seen=seen))


def is_slime(c: Config) -> bool:
    """slime's and miles's own flags beside Megatron's."""
    return c.has("rollout_batch_size") and (c.has("rm_type") or c.has("eps_clip") or c.has("custom_rm_path"))


def inspect_slime(c: Config) -> list[Finding]:
    """Section 5 of the mapping."""
    custom = [k for k in ("custom_rm_path", "custom_reward_post_process_path") if c.has(k)]
    masked = c.has("rollout_sample_filter_path")
    found = [
        p.clip_higher(c, "eps_clip", "eps_clip_high"),
        _slime_filter(c),
        p.switch(c, p.TOKENS, "calculate_per_token_loss", True, False, "--calculate-per-token-loss", p.OF_MEANS),
        Finding(p.OVERLONG, "needs-code", ", ".join(p.show(c, k) for k in custom), "20480, 4096", "the reward is in code")
        if custom else Finding(p.OVERLONG, "off", "no custom reward", "20480, 4096", "slime has no punishment of its own"),
        _slime_kl(c),
        _slime_std(c),
        p.dual_clip(c, "eps_clip_c", None),
    ]  # fmt: skip
    if masked:
        seen = p.show(c, "rollout_sample_filter_path")
        found.append(Finding(p.MASK, "needs-code", seen, "absent", "which samples it leaves out is in code"))
    if c.has("rm_type"):
        found.append(
            p.switch(c, p.REWARD, "rm_type", "dapo", None, "dapo (+-1)", "another rule, perhaps another range")
        )
    if c.has("use_tis"):
        found.append(
            Finding(p.OTHER, "on-different-value", p.show(c, "use_tis"), "absent", "importance weights: not in DAPO")
        )
    return found


def _slime_filter(c: Config) -> Finding:
    key, paper = "dynamic_sampling_filter_path", "check_reward_nonzero_std"
    value = c.get(key)
    seen = f"{p.show(c, key)}, {p.show(c, 'over_sampling_batch_size')}"
    if value is None:
        return Finding(p.SAMPLING, "off", seen, paper, p.UNFILTERED)
    if isinstance(value, Unresolved) or not str(value).endswith("dynamic_sampling_filters.check_reward_nonzero_std"):
        return Finding(p.SAMPLING, "needs-code", seen, paper, "the criterion is in code")
    if c.has("custom_rm_path") or c.has("custom_reward_post_process_path"):
        why = "the criterion is the deviation of the whole reward, which custom code may shape by length"
        return Finding(p.SAMPLING, "needs-code", seen, paper, why)
    return Finding(p.SAMPLING, "on-as-paper", seen, paper)


def _slime_kl(c: Config) -> Finding:
    terms: dict[str, Any] = {"kl_coef": 0}
    if c.get("use_kl_loss", False) is not False:
        terms["kl_loss_coef"] = 0.0
    return p.zero(c, p.KL, terms)


def _slime_std(c: Config) -> Finding:
    without = [k for k in ("disable_grpo_std_normalization", "disable_rewards_normalization") if c.has(k)]
    if without:
        return Finding(p.STD, "off", p.show(c, without[0]), "divided by the deviation", "the division is disabled")
    return p.switch(c, p.STD, "advantage_estimator", "grpo", "grpo", "grpo")


def is_open_instruct(c: Config) -> bool:
    """open_instruct's grpo_fast.py or grpo.py."""
    return c.has("active_sampling") or c.has("num_unique_prompts_rollout")


def inspect_open_instruct(c: Config) -> list[Finding]:
    """Section 12 of the mapping. Its unset upper bound is 0.272, so asymmetric by default."""
    kind = c.get("loss_fn", "dapo")
    clip = p.clip_higher(c, "clip_lower", "clip_higher", 0.2, 0.272)
    if why := p.open_question(kind):
        clip = Finding(p.CLIP, "needs-code", f"{clip.seen}, {p.show(c, 'loss_fn', 'dapo')}", clip.paper, why)
    elif kind != "dapo":
        why = f"the loss {kind} does not clip the ratio by these bounds"
        clip = Finding(p.CLIP, "set-but-no-effect", f"{clip.seen}, loss_fn = {kind}", clip.paper, why)
    return [
        clip,
        _active_sampling(c),
        p.switch(c, p.TOKENS, "loss_denominator", "token", "token", "token"),
        _non_stop(c),
        p.zero(c, p.KL, {"beta": 0.05}),
        p.switch(
            c, p.STD, "advantage_normalization_type", "standard", "centered", "standard", "not divided by the deviation"
        ),
        _open_instruct_mask(c),
        *p.other(c, "use_rho_correction", True, "weights pi_old / pi_engine in the loss"),
    ]


def _active_sampling(c: Config) -> Finding:
    paper = "--active_sampling with --async_steps above 1"
    drop, steps = c.get("filter_zero_std_samples", True), c.get("async_steps", 1)
    seen = f"{p.show(c, 'active_sampling', False)}, {p.show(c, 'async_steps', 1)}, {p.show(c, 'filter_zero_std_samples', True)}"
    value = c.get("active_sampling", False)
    if why := p.open_question(value, drop, steps):
        return Finding(p.SAMPLING, "needs-code", seen, paper, why)
    if value is not True:
        why = "groups are dropped and not replaced" if drop else p.UNFILTERED
        return Finding(p.SAMPLING, "off", seen, paper, why)
    if not drop or not p.is_number(steps) or steps <= 1:
        return Finding(
            p.SAMPLING, "conflict", seen, paper, "active sampling needs async_steps above 1 and the filter on"
        )
    return Finding(p.SAMPLING, "on-as-paper", seen, paper, "the criterion is the deviation of the total reward")


def _non_stop(c: Config) -> Finding:
    if c.get("non_stop_penalty", False) is True:
        why = "one fixed value for every response that did not stop: no soft zone"
        return Finding(p.OVERLONG, "off", p.show(c, "non_stop_penalty"), "a soft zone of 4096 in 20480", why)
    return Finding(p.OVERLONG, "off", "no such flag", "a soft zone of 4096 in 20480", "open-instruct has none")


def _open_instruct_mask(c: Config) -> Finding:
    seen = p.show(c, "mask_truncated_completions", False)
    masked = c.get("mask_truncated_completions", False)
    if masked is True:
        return Finding(p.MASK, "conflict", seen, "off", "masking misaligns the groups (issue 1794)")
    return p.both_overlong(None, masked, seen)
