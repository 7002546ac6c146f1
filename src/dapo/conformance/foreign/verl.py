"""verl (three generations of reward keys) and EasyR1, which grew out of it."""

from typing import Any

from dapo.conformance.foreign.config import Config, Unresolved
from dapo.conformance.foreign.parts import (
    CLIP,
    KL,
    OTHER,
    OVERLONG,
    SAMPLING,
    STD,
    TOKENS,
    UNFILTERED,
    Finding,
    Soft,
    clip_higher,
    dual_clip,
    is_number,
    open_question,
    show,
    soft_overlong,
    switch,
    token_ratio,
    zero,
)  # fmt: skip

ACTOR = "actor_rollout_ref.actor."
FILTER = "algorithm.filter_groups."
MAIN_PPO, RECIPE, ASYNC = "verl.trainer.main_ppo", "recipe.dapo.main_dapo", "fully_async_main"


def is_verl(c: Config) -> bool:
    """Keys of the actor, as in every verl configuration."""
    return c.kind != "python" and any(c.under("actor_rollout_ref."))


def inspect_verl(c: Config) -> list[Finding]:
    """Section 1 of the mapping."""
    return [
        *_clip(c),
        *_filter(c),
        switch(c, TOKENS, f"{ACTOR}loss_agg_mode", "token-mean", "token-mean", "token-mean",
               "the mean is not over the tokens of the batch"),
        *_overlong(c),
        zero(c, KL, {f"{ACTOR}use_kl_loss": False, "algorithm.use_kl_in_reward": False}, "off"),
        _estimator(c),
        dual_clip(c, f"{ACTOR}clip_ratio_c", 3.0),
        *token_ratio(c, f"{ACTOR}policy_loss.loss_mode", "vanilla", ("vanilla",)),
        *_traps(c),
    ]  # fmt: skip


def _clip(c: Config) -> list[Finding]:
    single, bounds = f"{ACTOR}clip_ratio", (f"{ACTOR}clip_ratio_low", f"{ACTOR}clip_ratio_high")
    found = [clip_higher(c, *bounds, 0.2, 0.2, both=single)]
    if c.has(single) and not any(c.has(b) and c.settings[b] is None for b in bounds):
        why = "clip_ratio_low and _high default to 0.2 and win over it; set those"
        found.append(Finding(CLIP, "set-but-no-effect", show(c, single), "", why))
    return found


def _filter(c: Config) -> list[Finding]:
    on = switch(c, SAMPLING, f"{FILTER}enable", True, False, "on, metric acc", UNFILTERED)
    if on.verdict != "on-as-paper":
        return [on]
    metric = c.get(f"{FILTER}metric")
    seen = f"{on.seen}, {show(c, f'{FILTER}metric', None)}"
    if why := open_question(metric):
        first = Finding(SAMPLING, "needs-code", seen, on.paper, why)
    elif metric is None:
        first = Finding(SAMPLING, "conflict", seen, on.paper, "enabled without a metric: an error at the start")
    elif metric == "acc":
        first = Finding(SAMPLING, "on-as-paper", seen, on.paper)
    else:
        why = f"{metric} includes the shaping of the reward: all-wrong groups of unequal length pass"
        first = Finding(SAMPLING, "on-different-value", seen, on.paper, why)
    return [first, *_no_effect_in_v1(c)]


def _no_effect_in_v1(c: Config) -> list[Finding]:
    """The recipe's own trainer honours these keys; the V1 trainer of main_ppo does not."""
    if c.entry.endswith(RECIPE) or c.get("trainer.use_v1", True) is False:
        return []
    why = "not read by the V1 trainer, which refills by its own rule"
    keys = (f"{FILTER}max_num_gen_batches", "data.gen_batch_size")
    return [Finding(SAMPLING, "set-but-no-effect", show(c, k), "", why) for k in keys if c.has(k)]


def _overlong(c: Config) -> list[Finding]:
    now, middle, old = "reward.reward_kwargs.", "reward_model.reward_kwargs.", "reward_model.overlong_buffer."
    migrated = c.entry.endswith((RECIPE, ASYNC))
    paper = "dapo reward manager, overlong buffer on"
    if any(c.under(old)):
        seen = ", ".join(show(c, k) for k in c.under(old))
        return [
            Finding(OVERLONG, "unknown-key", seen, paper, "keys of 2025; now reward.reward_kwargs.overlong_buffer_cfg")
        ]
    dead = list(c.under(f"{middle}overlong_buffer_cfg."))
    found = []
    if dead and not migrated:
        seen = ", ".join(show(c, k) for k in dead)
        why = (
            f"{MAIN_PPO} has not read reward_model.* since 2026-06-12: the manager stays naive, no punishment is given"
        )
        no_effect = Finding(OVERLONG, "set-but-no-effect", seen, paper, why)
        unsaid = Finding(OVERLONG, "needs-code", seen, paper, "which entry point reads this file is not said here")
        found = [no_effect if c.entry == MAIN_PPO else unsaid]
        if not any(c.under(f"{now}overlong_buffer_cfg.")):
            return found
    prefix = middle if dead and migrated else now
    manager_key = "reward_model.reward_manager" if prefix == middle else "reward.reward_manager.name"
    manager = c.get(manager_key, "dapo" if c.entry.endswith(RECIPE) else "naive")
    enabled = c.get(f"{prefix}overlong_buffer_cfg.enable", False)
    buffer = _buffer(
        c, f"{prefix}overlong_buffer_cfg.", f"{prefix}max_resp_len", enabled, manager == "dapo", manager_key
    )
    return [*found, buffer]


def _buffer(c: Config, prefix: str, L_max_key: str, enabled: Any, dapo_manager: bool, manager_key: str) -> Finding:
    defaults = {
        manager_key: "naive", f"{prefix}enable": False, f"{prefix}len": None, f"{prefix}penalty_factor": 1.0, L_max_key: None,
        "data.max_response_length": 512,
    }  # fmt: skip
    seen = ", ".join(show(c, k, v) for k, v in defaults.items())
    paper = "L_max 20480, L_cache 4096, factor 1"
    if why := open_question(enabled):
        return Finding(OVERLONG, "needs-code", seen, paper, why)
    if enabled is not True and c.has("reward.custom_reward_function.path"):
        return Finding(OVERLONG, "needs-code", seen, paper, "what the custom reward does with length is in its code")
    if enabled is not True:
        return Finding(OVERLONG, "off", seen, paper)
    if not dapo_manager:
        return Finding(
            OVERLONG, "set-but-no-effect", seen, paper, "only the reward manager dapo reads the overlong buffer"
        )
    limit = c.get("data.max_response_length", 512)
    return soft_overlong(
        Soft(
            c.get(L_max_key),
            c.get(f"{prefix}len"),
            c.get(f"{prefix}penalty_factor", 1.0),
            limit,
            capped=False,
            seen=seen,
        )
    )


def _estimator(c: Config) -> Finding:
    estimator = switch(c, STD, "algorithm.adv_estimator", "grpo", "gae", "grpo, divided by the standard deviation",
                       "not the group-normalised advantage")  # fmt: skip
    if estimator.verdict != "on-as-paper":
        return estimator
    return switch(c, STD, "algorithm.norm_adv_by_std_in_grpo", True, True, "grpo, divided by the standard deviation")


def _traps(c: Config) -> list[Finding]:
    found = []
    if c.has("custom_reward_function.path") and not c.entry.endswith((RECIPE, ASYNC)):
        why = f"{MAIN_PPO} reads reward.custom_reward_function.path"
        found.append(Finding(OTHER, "set-but-no-effect", show(c, "custom_reward_function.path"), "", why))
    return found


WORKER = "worker.actor."


def is_easyr1(c: Config) -> bool:
    """Keys of the worker, as in every EasyR1 configuration."""
    return c.kind != "python" and any(c.under("worker.actor."))


def inspect_easyr1(c: Config) -> list[Finding]:
    """Section 11 of the mapping. Its unset upper bound is 0.3, so asymmetric by default."""
    example = any("examples/config.yaml" in w for w in c.words) or str(c.get("config", "")).endswith(
        "examples/config.yaml"
    )
    return [
        clip_higher(c, f"{WORKER}clip_ratio_low", f"{WORKER}clip_ratio_high", 0.2, 0.3),
        _online_filtering(c),
        switch(c, TOKENS, f"{WORKER}loss_avg_mode", "token", "token", "token"),
        _reward_function(c),
        _easyr1_kl(c, example),
        switch(c, STD, "algorithm.adv_estimator", "grpo", "grpo", "grpo"),
        dual_clip(c, f"{WORKER}clip_ratio_dual", 3.0),
    ]


def _online_filtering(c: Config) -> Finding:
    on = switch(
        c, SAMPLING, "algorithm.online_filtering", True, False, "on, by a 0/1 accuracy", "groups are not filtered"
    )
    if on.verdict != "on-as-paper":
        return on
    key, low = c.get("algorithm.filter_key", "overall"), c.get("algorithm.filter_low", 0.01)
    high = c.get("algorithm.filter_high", 0.99)
    names = {"algorithm.filter_key": "overall", "algorithm.filter_low": 0.01, "algorithm.filter_high": 0.99}
    seen = ", ".join([on.seen, *(show(c, k, v) for k, v in names.items())])
    if why := open_question(key, low, high):
        return Finding(SAMPLING, "needs-code", seen, on.paper, why)
    if key == "accuracy_normalized" and (low, high) != (0.01, 0.99):
        return Finding(
            SAMPLING, "on-different-value", seen, on.paper, "other groups are dropped too, by their pass rate"
        )
    if key == "accuracy_normalized":
        return Finding(SAMPLING, "on-as-paper", seen, on.paper)
    if key == "accuracy" and is_number(low) and low > -1:
        why = f"with an accuracy of +-1 the bound {low:g} drops groups that are less than half right"
        return Finding(SAMPLING, "conflict", seen, on.paper, why)
    if key == "overall":
        return Finding(SAMPLING, "on-different-value", seen, on.paper, "overall includes format and length rewards")
    return Finding(SAMPLING, "needs-code", seen, on.paper, f"what {key} holds is for the reward function to say")


def _reward_function(c: Config) -> Finding:
    function, kwargs = c.get("worker.reward.reward_function"), "worker.reward.reward_function_kwargs."
    keys = [f"{kwargs}{k}" for k in ("max_response_length", "overlong_buffer_length", "overlong_penalty_factor")]
    seen = ", ".join(show(c, k) for k in ("worker.reward.reward_function", *keys, "data.max_response_length"))
    paper = "dapo.py:compute_score with 20480, 4096, 1"
    if function is None:
        return Finding(OVERLONG, "off", seen, paper)
    if isinstance(function, Unresolved) or not str(function).endswith("dapo.py:compute_score"):
        return Finding(OVERLONG, "needs-code", seen, paper, f"what {function} does with long responses is in its code")
    L_max, L_cache, factor = (c.get(k) for k in keys)
    limit = c.get("data.max_response_length", 512)
    return soft_overlong(Soft(L_max, L_cache, 1.0 if factor is None else factor, limit, capped=False, seen=seen))


def _easyr1_kl(c: Config, example: bool) -> Finding:
    disabled, coefficient = c.get("algorithm.disable_kl", False), c.get("algorithm.kl_coef", 1e-2 if example else 1e-3)
    seen = f"{show(c, 'algorithm.disable_kl', False)}, {show(c, 'algorithm.kl_coef', 1e-2 if example else 1e-3)}"
    if disabled is True or coefficient == 0:
        return Finding(KL, "on-as-paper", seen, "off")
    if why := open_question(disabled, coefficient):
        return Finding(KL, "needs-code", seen, "off", why)
    where = "in the loss" if c.get("algorithm.use_kl_loss", example) is True else "in the reward"
    return Finding(KL, "off", f"{seen}, {show(c, 'algorithm.use_kl_loss', example)}", "off", f"a KL penalty {where}")
