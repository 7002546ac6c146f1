python3 -m verl.trainer.main \
    config=examples/config.yaml \
    data.max_response_length=20480 \
    worker.actor.clip_ratio_low=0.2 \
    worker.actor.clip_ratio_high=0.28 \
    worker.actor.clip_ratio_dual=10.0 \
    worker.actor.loss_avg_mode=token \
    algorithm.adv_estimator=grpo \
    algorithm.disable_kl=True \
    algorithm.online_filtering=True \
    algorithm.filter_key=accuracy_normalized \
    worker.reward.reward_function=./examples/reward_function/dapo.py:compute_score \
    worker.reward.reward_function_kwargs.max_response_length=20480 \
    worker.reward.reward_function_kwargs.overlong_buffer_length=4096 \
    worker.reward.reward_function_kwargs.overlong_penalty_factor=1.0
