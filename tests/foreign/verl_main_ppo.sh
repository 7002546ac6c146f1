#!/usr/bin/env bash
# DAPO on today's main_ppo
set -x
max_prompt_length=$((1024 * 2))
max_response_length=$((1024 * 20))
overlong_buffer_len=$((1024 * 4))
eps_low=0.2
eps_high=0.28

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    algorithm.filter_groups.enable=True \
    algorithm.filter_groups.metric=acc \
    actor_rollout_ref.actor.clip_ratio_low=${eps_low} \
    actor_rollout_ref.actor.clip_ratio_high="$eps_high" \
    actor_rollout_ref.actor.clip_ratio_c=10.0 \
    actor_rollout_ref.actor.loss_agg_mode=token-mean \
    actor_rollout_ref.actor.use_kl_loss=False \
    data.max_prompt_length=$max_prompt_length \
    data.max_response_length=$max_response_length \
    reward.reward_manager.name=dapo \
    +reward.reward_kwargs.overlong_buffer_cfg.enable=True \
    +reward.reward_kwargs.overlong_buffer_cfg.len=$overlong_buffer_len \
    +reward.reward_kwargs.overlong_buffer_cfg.penalty_factor=1.0 \
    ++reward.reward_kwargs.max_resp_len=$max_response_length \
    trainer.project_name='dapo runs' "$@" 2>&1 | tee log.txt
