"""Systems that are configured by nested tables: NeMo-RL, ROLL, AReaL, SkyRL, prime-rl."""

from collections.abc import Mapping
from typing import Any

from dapo.conformance.foreign import parts as p
from dapo.conformance.foreign.config import Config, Unresolved
from dapo.conformance.foreign.parts import Finding


def is_nemo(c: Config) -> bool:
    """`loss_fn` with ratio_clip_*, or `grpo` beside `policy`."""
    return any(c.under("loss_fn.ratio_clip")) or (any(c.under("grpo.")) and any(c.under("policy.")))


def inspect_nemo(c: Config) -> list[Finding]:
    """Section 4 of the mapping."""
    overlong = _nemo_overlong(c)
    return [
        p.clip_higher(c, "loss_fn.ratio_clip_min", "loss_fn.ratio_clip_max", 0.2, 0.2),
        *_nemo_sampling(c),
        p.switch(c, p.TOKENS, "loss_fn.token_level_loss", True, True, "true"),
        overlong,
        p.zero(c, p.KL, {"loss_fn.reference_policy_kl_penalty": 0.01}),
        p.switch(c, p.STD, "grpo.normalize_rewards", True, True, "true"),
        p.both_overlong(overlong, c.get("grpo.overlong_filtering", False), p.show(c, "grpo.overlong_filtering", False)),
        p.dual_clip(c, "loss_fn.ratio_clip_c", None),
        _nemo_reward(c),
    ]


def _nemo_sampling(c: Config) -> list[Finding]:
    paper = "true, without leave-one-out baseline, synchronous"
    on = p.switch(c, p.SAMPLING, "grpo.use_dynamic_sampling", True, False, paper, p.UNFILTERED)
    if on.verdict != "on-as-paper":
        return [on]
    if why := p.open_question(c.get("grpo.async_grpo.enabled", False)):
        return [Finding(p.SAMPLING, "needs-code", on.seen, paper, why)]
    if c.get("grpo.async_grpo.enabled", False) is True:
        seen = f"{on.seen}, {p.show(c, 'grpo.async_grpo.enabled')}"
        return [Finding(p.SAMPLING, "set-but-no-effect", seen, paper, "the asynchronous path does not do it")]
    leave_one_out = c.get("grpo.use_leave_one_out_baseline", True)
    seen = f"{on.seen}, {p.show(c, 'grpo.use_leave_one_out_baseline', True)}"
    if why := p.open_question(leave_one_out):
        return [Finding(p.SAMPLING, "needs-code", seen, paper, why)]
    if leave_one_out:
        return [
            Finding(
                p.SAMPLING, "conflict", seen, paper, "with the leave-one-out baseline it splits groups (issue 3469)"
            )
        ]
    return [Finding(p.SAMPLING, "on-as-paper", seen, paper)]


def _nemo_reward(c: Config) -> Finding:
    keys = ("grpo.reward_scaling.enabled", "grpo.reward_scaling.target_min")
    seen = ", ".join(p.show(c, k) for k in keys)
    if why := p.open_question(*(c.get(k) for k in keys)):
        return Finding(p.REWARD, "needs-code", seen, "+-1", why)
    if c.get(keys[0]) is True and c.get(keys[1]) == -1:
        return Finding(p.REWARD, "on-as-paper", seen, "+-1")
    return Finding(p.REWARD, "on-different-value", seen, "+-1", "rewards are not scaled to +-1")


def _nemo_overlong(c: Config) -> Finding:
    prefix, limit_key = "grpo.reward_shaping.", "policy.generation.max_new_tokens"
    keys = [f"{prefix}{k}" for k in ("overlong_buffer_length", "overlong_buffer_penalty", "max_response_length")]
    seen = ", ".join(p.show(c, k) for k in (f"{prefix}enabled", *keys, limit_key))
    on = p.switch(c, p.OVERLONG, f"{prefix}enabled", True, False, "4096 of 20480")
    if on.verdict != "on-as-paper":
        return on
    whole = c.get("policy.max_total_sequence_length", 512)
    limit, L_max = c.get(limit_key, whole), c.get(keys[2], whole)
    return p.soft_overlong(p.Soft(L_max, c.get(keys[0], 128), c.get(keys[1], 1), limit, capped=False, seen=seen))


def is_roll(c: Config) -> bool:
    """`actor_train` with ROLL's switches, or its pipeline."""
    return any(c.under("actor_train.")) or c.has("use_pg_clip_range")


def inspect_roll(c: Config) -> list[Finding]:
    """Section 7 of the mapping."""
    lookalike = [Finding(p.SAMPLING, "off", p.show(c, "difficulty_mask"), "", "masks groups, and samples no others")]
    return [
        *_roll_clip(c),
        *_roll_sampling(c),
        *(lookalike if c.get("difficulty_mask", False) is True else []),
        p.switch(
            c,
            p.TOKENS,
            "loss_agg_mode",
            "token-mean",
            "seq-mean-token-mean",
            "token-mean",
            "the mean is of responses' means",
        ),
        Finding(p.OVERLONG, "off", "no such key", "4096 of 20480", "ROLL has none"),
        _roll_kl(c),
        _roll_std(c),
        p.both_overlong(None, c.get("max_len_mask", False), p.show(c, "max_len_mask", False)),
        *p.other(c, "dual_clip_loss", False, "a cap for negative advantages"),
        *p.stale(c, p.SAMPLING, {"use_additional_prompts": "it is is_use_additional_prompts now"}),
    ]


ROLL_LIMITS = {"threshold_up": 1, "threshold_down": 0}  # of the mean of 0/1 rewards


def _roll_clip(c: Config) -> list[Finding]:
    bounds = p.clip_higher(c, "pg_clip_low", "pg_clip_high", 0.2, 0.2)
    on = c.get("use_pg_clip_range", False)
    seen = f"{p.show(c, 'use_pg_clip_range', False)}, {bounds.seen}"
    if why := p.open_question(on):
        return [Finding(p.CLIP, "needs-code", seen, bounds.paper, why)]
    if on is True:
        return [Finding(p.CLIP, bounds.verdict, seen, bounds.paper, bounds.why)]
    if c.has("pg_clip_high") or c.has("pg_clip_low"):
        why = "without use_pg_clip_range pg_clip bounds both sides"
        return [Finding(p.CLIP, "set-but-no-effect", seen, bounds.paper, why)]
    return [Finding(p.CLIP, "off", seen, bounds.paper)]


def _roll_sampling(c: Config) -> list[Finding]:
    domains = sorted({k.split(".")[1] for k in c.under("rewards.")})
    paper = "mean_filter or std_filter for every domain, is_use_additional_prompts"
    if not domains and (why := p.open_question(c.get("rewards"))):
        return [Finding(p.SAMPLING, "needs-code", "rewards", paper, why)]
    if not domains:
        return [Finding(p.SAMPLING, "off", "no reward domain has a filter", paper)]
    kinds = {d: c.get(f"rewards.{d}.query_filter_config.type", "no_filter") for d in domains}
    refill = c.get("is_use_additional_prompts", False)
    seen = ", ".join(f"rewards.{d}: {kind}" for d, kind in kinds.items())
    seen += f", {p.show(c, 'is_use_additional_prompts', False)}"
    if why := p.open_question(refill, *kinds.values()):
        return [Finding(p.SAMPLING, "needs-code", seen, paper, why)]
    without = [d for d, kind in kinds.items() if kind not in ("mean_filter", "std_filter")]
    if len(without) == len(kinds):
        return [Finding(p.SAMPLING, "off", seen, paper)]
    if without:
        return [Finding(p.SAMPLING, "conflict", seen, paper, f"the domain {without[0]} is not filtered")]
    if refill is not True:
        return [Finding(p.SAMPLING, "off", seen, paper, "groups are dropped and not replaced")]
    limits = [(f"rewards.{d}.query_filter_config.filter_args.{k}", v) for d in domains for k, v in ROLL_LIMITS.items()]
    other = [k for k, v in limits if c.get(k, v) != v]
    if other:
        why = "groups are dropped by another pass rate"
        return [Finding(p.SAMPLING, "on-different-value", f"{seen}, {p.show(c, other[0])}", paper, why)]
    return [Finding(p.SAMPLING, "on-as-paper", seen, paper)]


def _roll_kl(c: Config) -> Finding:
    terms: dict[str, Any] = {"use_kl_loss": False}
    if c.get("add_token_level_kl", False) is not False:
        terms["init_kl_coef"] = 0.2
    return p.zero(c, p.KL, terms)


def _roll_std(c: Config) -> Finding:
    keys = ("adv_estimator", "norm_mean_type", "norm_std_type")
    seen = ", ".join(p.show(c, k) for k in keys)
    values = tuple(c.get(k) for k in keys)
    paper = "grpo, group, group"
    if why := p.open_question(*values):
        return Finding(p.STD, "needs-code", seen, paper, why)
    if values == ("grpo", "group", "group"):
        return Finding(p.STD, "on-as-paper", seen, paper)
    return Finding(p.STD, "off", seen, paper, "rewards are not normalised by mean and deviation of the group")


def is_areal(c: Config) -> bool:
    """`actor.eps_clip` or `gconfig` beside `actor`."""
    return any(c.under("gconfig.")) and any(c.under("actor."))


def inspect_areal(c: Config) -> list[Finding]:
    """Section 8 of the mapping."""
    why = "trainer.train(dynamic_filter_fn=...) decides; no key does"
    if c.get("dynamic_bs", False) is True or c.get("actor.dynamic_bs", False) is True:
        why = f"dynamic_bs is a variable batch size, not dynamic sampling; {why}"
    return [
        p.clip_higher(c, "actor.eps_clip", "actor.eps_clip_higher"),
        Finding(p.SAMPLING, "needs-code", p.show(c, "dynamic_bs"), "dynamic_filter_fn on accuracy", why),
        Finding(p.TOKENS, "on-as-paper", "no key: always the token mean", "token mean"),
        *_areal_overlong(c),
        p.zero(c, p.KL, {"actor.kl_ctl": 0.1}),
        _areal_std(c),
        *p.token_ratio(c, "actor.importance_sampling_level", "token", ("token",)),
        *p.other(c, "actor.use_decoupled_loss", False, "weights of a decoupled, off-policy loss"),
        *p.other(c, "rollout.max_head_offpolicyness", 0, "samples of earlier policies"),
    ]


def _areal_overlong(c: Config) -> list[Finding]:
    keys = ("actor.overlong_tokens", "actor.overlong_penalty_factor", "actor.max_new_tokens", "gconfig.max_new_tokens")
    seen = ", ".join(p.show(c, k) for k in ("actor.overlong_reward_penalty", *keys))
    on = p.switch(c, p.OVERLONG, "actor.overlong_reward_penalty", True, False, "4096 of 20480")
    if on.verdict != "on-as-paper":
        return [on]
    L_cache, factor, L_max, limit = (c.get(k) for k in keys)
    found = p.soft_overlong(p.Soft(1024 if L_max is None else L_max, L_cache, factor, limit, capped=False, seen=seen))
    scaling = c.get("actor.reward_scaling", 1.0)
    if found.verdict == "on-as-paper" and scaling != 1:
        why = "reward_scaling is applied after the punishment and multiplies it"
        return [
            Finding(p.OVERLONG, "on-different-value", f"{seen}, {p.show(c, 'actor.reward_scaling')}", found.paper, why)
        ]
    return [found]


def _areal_std(c: Config) -> Finding:
    levels = [
        ("actor.reward_norm.mean_level", "actor.reward_norm.std_level"),
        ("actor.adv_norm.mean_level", "actor.adv_norm.std_level"),
    ]
    seen = ", ".join(p.show(c, k) for pair in levels for k in pair)
    values = [tuple(c.get(k) for k in pair) for pair in levels]
    if why := p.open_question(*(v for pair in values for v in pair)):
        return Finding(p.STD, "needs-code", seen, "group / group", why)
    if ("group", "group") in values:
        return Finding(p.STD, "on-as-paper", seen, "group / group")
    return Finding(p.STD, "off", seen, "group / group", "neither norm is by mean and deviation of the group")


SKYRL = "trainer.algorithm."
SKYRL_DAPO = "train.algorithms.dapo.main_dapo"


def is_skyrl(c: Config) -> bool:
    """`trainer.algorithm.*` keys."""
    return any(c.under(SKYRL))


def inspect_skyrl(c: Config) -> list[Finding]:
    """Section 9 of the mapping."""
    overlong, mask = _skyrl_overlong(c), "generator.apply_overlong_filtering"
    return [
        _skyrl_clip(c),
        _skyrl_sampling(c),
        p.switch(c, p.TOKENS, f"{SKYRL}loss_reduction", "token_mean", "token_mean", "token_mean",
                 "token_mean_legacy is the mean of micro-batch means; others average over responses"),
        overlong,
        p.zero(c, p.KL, {f"{SKYRL}use_kl_loss": True, f"{SKYRL}use_kl_in_reward": False}, "off"),
        p.switch(c, p.STD, f"{SKYRL}grpo_norm_by_std", True, True, "true"),
        p.both_overlong(overlong, c.get(mask, False), p.show(c, mask, False)),
        *p.stale(c, p.OVERLONG, {f"{SKYRL}overlong_buffer.": "it is overlong_buffer_len now, whatever the docs say"}),
    ]  # fmt: skip


def _skyrl_clip(c: Config) -> Finding:
    found = p.clip_higher(c, f"{SKYRL}eps_clip_low", f"{SKYRL}eps_clip_high", 0.2, 0.2)
    kind = c.get(f"{SKYRL}policy_loss_type", "regular")
    if kind in ("regular", "dual_clip"):
        return found
    seen = f"{found.seen}, {p.show(c, f'{SKYRL}policy_loss_type')}"
    if isinstance(kind, Unresolved):
        return Finding(p.CLIP, "needs-code", seen, found.paper, p.open_question(kind))
    return Finding(p.CLIP, "set-but-no-effect", seen, found.paper, f"the policy loss {kind} does not use these bounds")


def _skyrl_sampling(c: Config) -> Finding:
    key, zero, full = (
        f"{SKYRL}dynamic_sampling.type",
        f"{SKYRL}zero_variance_filter",
        "trainer.fully_async.sample_full_batch",
    )
    seen = ", ".join(p.show(c, k) for k in (key, zero, full))
    paper = "filter; or zero_variance_filter with sample_full_batch"
    kind = c.get(key)
    if why := p.open_question(kind, c.get(zero), c.get(full)):
        return Finding(p.SAMPLING, "needs-code", seen, paper, why)
    if kind == "filter":
        return Finding(p.SAMPLING, "on-as-paper", seen, paper)
    if kind == "replace":
        return Finding(
            p.SAMPLING, "on-different-value", seen, paper, "bad groups are replaced by copies of good ones (POLARIS)"
        )
    if c.get(zero) is True and c.get(full) is True:
        return Finding(p.SAMPLING, "on-as-paper", seen, paper)
    if c.get(zero) is True:
        return Finding(p.SAMPLING, "off", seen, paper, "groups are dropped and not replaced")
    return Finding(p.SAMPLING, "off", seen, paper)


def _skyrl_overlong(c: Config) -> Finding:
    length, factor = f"{SKYRL}overlong_buffer_len", f"{SKYRL}overlong_buffer_penalty_factor"
    limit_key = "generator.sampling_params.max_generate_length"
    seen = ", ".join(p.show(c, k) for k in (length, factor, limit_key))
    paper = "4096 of 20480, with the entry point of examples.train.algorithms.dapo"
    entry = c.entry.endswith(SKYRL_DAPO)
    if not entry and (c.has(length) or c.has(factor)):
        if c.entry:
            return Finding(
                p.OVERLONG, "set-but-no-effect", seen, paper, "only the entry point of examples/.../dapo reads it"
            )
        return Finding(p.OVERLONG, "needs-code", seen, paper, "which entry point reads this file is not said here")
    if not entry:
        return Finding(p.OVERLONG, "off", seen, paper)
    limit = c.get(limit_key)
    return p.soft_overlong(p.Soft(limit, c.get(length, 512), c.get(factor, 1.0), limit, capped=True, seen=seen))


def is_prime(c: Config) -> bool:
    """`orchestrator` or `trainer.loss` tables in TOML."""
    return c.kind == "toml" and (any(c.under("orchestrator.")) or any(c.under("trainer.loss.")))


def inspect_prime(c: Config) -> list[Finding]:
    """Section 10 of the mapping."""
    return [
        _prime_clip(c),
        _prime_gates(c),
        Finding(p.TOKENS, "on-as-paper", "no key: always the global token mean", "token mean"),
        Finding(p.OVERLONG, "off", "no such key", "4096 of 20480", "length_penalty is another idea"),
        p.zero(c, p.KL, {"trainer.loss.kl_tau": 1e-3}),
        Finding(p.STD, "off", "no key", "divided by the deviation", "advantages are rewards less their mean"),
        *p.other(c, "orchestrator.max_off_policy_steps", 8, "samples of earlier policies"),
    ]


def _prime_clip(c: Config) -> Finding:
    kind = c.get("trainer.loss.type", "default")
    defaults = {"type": "default", "dppo_mask_low": 0.2, "dppo_mask_high": 0.2}
    seen = ", ".join(p.show(c, f"trainer.loss.{k}", v) for k, v in defaults.items())
    if why := p.open_question(kind):
        return Finding(p.CLIP, "needs-code", seen, "0.2 / 0.28", why)
    if kind == "custom":
        return Finding(p.CLIP, "needs-code", seen, "0.2 / 0.28", "the loss is in code")
    why = "its masks bound differences of probability, not ratios: 0.28 there is not Clip-Higher"
    return Finding(p.CLIP, "off", seen, "0.2 / 0.28", why)


def _prime_gates(c: Config) -> Finding:
    paper = "an advantage_range gate that rejects 0.0 to 0.0, for each source"
    orchestrator = c.tree.get("orchestrator", {})
    train = orchestrator.get("train", {}) if isinstance(orchestrator, Mapping) else {}
    sources = train.get("source", []) if isinstance(train, Mapping) else []
    tables = [s for s in sources if isinstance(s, Mapping)] if isinstance(sources, list) else []
    gated = [s for s in tables if _rejects_zero(s)]
    prune = p.show(c, "orchestrator.train.filter_zero_advantages", True)
    seen = f"{len(gated)} of {len(tables)} sources have such a gate, {prune}"
    if not tables and c.incomplete:
        return Finding(p.SAMPLING, "needs-code", seen, paper, c.incomplete)
    if not gated:
        return Finding(p.SAMPLING, "off", seen, paper, "filter_zero_advantages prunes, and samples no others")
    if len(gated) < len(tables):
        return Finding(p.SAMPLING, "conflict", seen, paper, "a source without a gate is not refilled")
    if any("length_penalty" in key.split(".") for key in c.under("orchestrator.")):
        return Finding(p.SAMPLING, "on-different-value", seen, paper, "advantages include the length penalty")
    return Finding(p.SAMPLING, "on-as-paper", seen, paper)


def _rejects_zero(source: Mapping[str, Any]) -> bool:
    curriculum = source.get("curriculum", {})
    gates = curriculum.get("gates", {}) if isinstance(curriculum, Mapping) else {}
    return any(
        isinstance(g, Mapping)
        and g.get("type") == "advantage_range"
        and g.get("reject_min") == 0
        and g.get("reject_max") == 0
        for g in (gates.values() if isinstance(gates, Mapping) else [])
    )
