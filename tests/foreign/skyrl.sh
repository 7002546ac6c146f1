uv run -m examples.train.algorithms.dapo.main_dapo \
  trainer.algorithm.eps_clip_low=0.2 \
  trainer.algorithm.eps_clip_high=0.28 \
  trainer.algorithm.dynamic_sampling.type=filter \
  trainer.algorithm.dynamic_sampling.max_sample_batches=30 \
  trainer.algorithm.loss_reduction=token_mean \
  trainer.algorithm.overlong_buffer_len=4096 \
  trainer.algorithm.overlong_buffer_penalty_factor=1.0 \
  trainer.algorithm.use_kl_loss=false \
  generator.sampling_params.max_generate_length=20480
