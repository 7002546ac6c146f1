#!/bin/bash
# The recipe's own entry point, which moves the keys of early 2026 to their new place.
ARGS=(
    algorithm.adv_estimator=grpo   # the group's mean and deviation
    algorithm.filter_groups.enable=True
    algorithm.filter_groups.metric=acc
    algorithm.filter_groups.max_num_gen_batches=10
    data.gen_batch_size=1536
    data.max_response_length=20480
)
ARGS+=(
    actor_rollout_ref.actor.clip_ratio_low=0.2
    actor_rollout_ref.actor.clip_ratio_high=0.28
    actor_rollout_ref.actor.clip_ratio_c=10.0
)
python3 -m recipe.dapo.main_dapo "${ARGS[@]}" \
    reward_model.reward_manager=dapo \
    +reward_model.reward_kwargs.overlong_buffer_cfg.enable=True \
    +reward_model.reward_kwargs.overlong_buffer_cfg.len=4096 \
    +reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor=1.0 \
    +reward_model.reward_kwargs.max_resp_len=20480
