ray job submit -- python3 -m openrlhf.cli.train_ppo_ray \
   --actor.eps_clip_low_high 0.2 0.28 \
   --algo.dynamic_filtering_enable \
   --algo.dynamic_filtering_range 0 1 \
   --algo.advantage.estimator group_norm \
   --algo.kl.init_coef 0 \
   --reward.remote_url examples/reward_func.py \
   --reward.overlong_buffer_len 4096 \
   --reward.overlong_penalty_factor 1 \
   --rollout.max_new_tokens 20480
