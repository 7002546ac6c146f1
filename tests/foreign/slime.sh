#!/bin/bash
ROLLOUT_ARGS=(
   --rm-type dapo
   --rollout-batch-size 512
   --over-sampling-batch-size 1536
   --n-samples-per-prompt 16
   --rollout-max-response-len 20480
   --dynamic-sampling-filter-path slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std
)
GRPO_ARGS=(
   --advantage-estimator grpo
   --use-kl-loss
   --kl-loss-coef 0.00
   --eps-clip 0.2
   --eps-clip-high 0.28
   --calculate-per-token-loss
)
ray job submit -- python3 train.py ${ROLLOUT_ARGS[@]} "${GRPO_ARGS[@]}"
