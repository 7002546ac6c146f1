from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward, get_soft_overlong_punishment

MAX = 20 * 1024
CACHE = 4096

common = dict(beta=0.0, loss_type="dapo", num_generations=16)
config = GRPOConfig(
    output_dir="out",
    epsilon=0.2,
    epsilon_high=0.28,
    max_completion_length=MAX,
    scale_rewards="group",
    **common,
)
trainer = GRPOTrainer(
    model="some/model",
    args=config,
    reward_funcs=[accuracy_reward, get_soft_overlong_punishment(max_completion_len=MAX, soft_punish_cache=CACHE)],
)
trainer.train()
