"""Other systems' configurations: a fixture of each that is as close to DAPO as the system comes, and edits that break it.

A case is (fixture, edits, {part: verdict} that it must show, what the sentence must say). Edits replace text; "" removes.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dapo.conformance.foreign import parts as p
from dapo.conformance.foreign.config import scalar
from dapo.conformance.foreign.inspect import SYSTEMS, conclude, inspect_file
from dapo.conformance.foreign.parts import (
    CLIP,
    DUAL,
    KL,
    MASK,
    OTHER,
    OVERLONG,
    RATIO,
    REWARD,
    SAMPLING,
    STD,
    TOKENS,
    Finding,
)
from dapo.conformance.foreign.read import read
from dapo.conformance.foreign.shell import parse

FOLDER = Path(__file__).parent / "foreign"
OK, DIFF, OFF, DEAD = "on-as-paper", "on-different-value", "off", "set-but-no-effect"
CONFLICT, CODE, UNKNOWN = "conflict", "needs-code", "unknown-key"
WHOLE = dict.fromkeys((CLIP, SAMPLING, TOKENS, OVERLONG, KL, STD), OK)
ACTOR = "actor_rollout_ref.actor."

CASES = [
    # verl
    ("verl_main_ppo.sh", {}, WHOLE, "DAPO by configuration"),
    ("verl_recipe.sh", {}, WHOLE, "DAPO by configuration"),
    ("verl.yaml", {}, WHOLE, "DAPO by configuration"),
    ("verl_main_ppo.sh", {f"    {ACTOR}clip_ratio_high=\"$eps_high\" \\\n": ""}, {CLIP: OFF}, "it lacks Clip-Higher"),
    ("verl_main_ppo.sh", {"eps_high=0.28": "eps_high=0.3"}, {CLIP: DIFF}, "named departures, by configuration: Clip-Higher"),
    ("verl.yaml", {"clip_ratio_low: 0.2, clip_ratio_high: 0.28": "clip_ratio: 0.28"}, {CLIP: {OFF, DEAD}}, "lacks Clip-Higher"),
    ("verl.yaml", {"clip_ratio_low: 0.2,": "clip_ratio: 0.2, clip_ratio_low: 0.2,"}, {CLIP: {OK, DEAD}}, "DAPO by config"),
    ("verl.yaml", {"clip_ratio_c: 10.0": "clip_ratio_c: 3.0"}, {DUAL: DIFF}, "named departures, by configuration: dual clip"),
    ("verl.yaml", {"loss_agg_mode: token-mean": "loss_agg_mode: seq-mean-token-mean"}, {TOKENS: OFF}, "token-level loss"),
    ("verl.yaml", {"enable: true, metric: acc": "enable: false"}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("verl.yaml", {"metric: acc": "metric: score"}, {SAMPLING: DIFF}, "departures, by configuration: Dynamic Sampling"),
    ("verl.yaml", {"metric: acc": "metric: seq_reward"}, {SAMPLING: DIFF}, "departures, by configuration: Dynamic Sampling"),
    ("verl.yaml", {", metric: acc": ""}, {SAMPLING: CONFLICT}, "it lacks Dynamic Sampling"),
    ("verl.yaml", {"metric: acc": "metric: '${oc.env:METRIC}'"}, {SAMPLING: CODE}, "leaves open: Dynamic Sampling"),
    ("verl.yaml", {"enable: true, metric": "enable: '${oc.env:F}', metric"}, {SAMPLING: CODE}, "leaves open: Dynamic Sampling"),
    ("verl.yaml", {"metric: acc": "metric: acc, max_num_gen_batches: 10"}, {SAMPLING: {OK, DEAD}}, "DAPO by configuration"),
    ("verl_main_ppo.sh", {"    data.max_p": "    data.gen_batch_size=1536 \\\n    data.max_p"}, {SAMPLING: {OK, DEAD}}, "DAPO by"),
    ("verl.yaml", {"metric: acc}": "metric: acc, max_num_gen_batches: 10}\ntrainer: {use_v1: false}"}, {SAMPLING: OK}, "DAPO by"),
    ("verl.yaml", {"penalty_factor: 1.0": "penalty_factor: 0.5"}, {OVERLONG: DIFF}, "departures, by configuration: Soft"),
    ("verl.yaml", {"max_resp_len: ${data.max_response_length}": "max_resp_len: 16384"}, {OVERLONG: CONFLICT}, "Soft Overlong"),
    ("verl.yaml", {"max_response_length: 20480": "max_response_length: 8192"}, {OVERLONG: DIFF}, "Soft Overlong"),
    ("verl.yaml", {"len: 4096": "len: 20480"}, {OVERLONG: CONFLICT}, "it lacks Soft Overlong Punishment"),
    ("verl.yaml", {"len: 4096, ": ""}, {OVERLONG: CONFLICT}, "it lacks Soft Overlong Punishment"),
    ("verl.yaml", {"len: 4096": "len: '${oc.env:LEN}'"}, {OVERLONG: CODE}, "leaves open: Soft Overlong Punishment"),
    ("verl.yaml", {"reward_manager: {name: dapo}": "reward_manager: {name: naive}"}, {OVERLONG: DEAD}, "it lacks Soft"),
    ("verl_main_ppo.sh", {"reward.reward_manager.name=dapo": "x.y=1"}, {OVERLONG: DEAD}, "it lacks Soft Overlong Punishment"),
    ("verl_main_ppo.sh", {"buffer_cfg.enable=True": "buffer_cfg.enable=$ON"}, {OVERLONG: CODE}, "leaves open: Soft"),
    ("verl_main_ppo.sh", {"buffer_cfg.enable=True": "buffer_cfg.enable=False"}, {OVERLONG: OFF}, "it lacks Soft"),
    ("verl.yaml", {"overlong_buffer_cfg: {enable: true, len: 4096, penalty_factor: 1.0}": "x: 1\n  custom_reward_function: "
     "{path: my.py}"}, {OVERLONG: CODE}, "leaves open: Soft Overlong Punishment"),
    ("verl_recipe.sh", {"recipe.dapo.main_dapo": "verl.trainer.main_ppo"}, {OVERLONG: DEAD, SAMPLING: {OK, DEAD}}, "lacks Soft"),
    ("verl_recipe.sh", {"recipe.dapo.main_dapo": "my.trainer"}, {OVERLONG: CODE}, "leaves open: Soft Overlong Punishment"),
    ("verl_recipe.sh", {"recipe.dapo.main_dapo": "verl.experimental.fully_async_policy.fully_async_main"}, {OVERLONG: OK}, ""),
    ("verl_recipe.sh", {"reward_model.reward_kwargs.overlong_buffer_cfg": "reward_model.overlong_buffer"},
     {OVERLONG: UNKNOWN}, "it lacks Soft Overlong Punishment"),
    ("verl_main_ppo.sh", {"use_kl_loss=False": "use_kl_loss=True"}, {KL: OFF}, "GRPO with Clip-Higher, Dynamic Sampling"),
    ("verl_main_ppo.sh", {"use_kl_loss=False": "use_kl_loss=$(cat kl)"}, {KL: CODE}, "leaves open: no KL term"),
    ("verl_main_ppo.sh", {"adv_estimator=grpo": "adv_estimator=gae"}, {STD: OFF}, "a policy gradient without the group's"),
    ("verl.yaml", {"adv_estimator: grpo": "adv_estimator: grpo\n  norm_adv_by_std_in_grpo: false"}, {STD: OFF}, "lacks group"),
    ("verl.yaml", {"algorithm:": "custom_reward_function: {path: my.py}\nalgorithm:"}, {OTHER: DEAD}, "DAPO by configuration"),
    ("verl.yaml", {"clip_ratio_high: 0.28": "clip_ratio_higt: 0.28"}, {CLIP: OFF, OTHER: UNKNOWN}, "it lacks Clip-Higher"),
    ("verl.yaml", {"clip_ratio_high: 0.28": "clip_ratio_high: much"}, {CLIP: CONFLICT}, "it lacks Clip-Higher"),
    ("verl.yaml", {"clip_ratio_low: 0.2, clip_ratio_high: 0.28": "clip_ratio: 0.1, clip_ratio_low: null, clip_ratio_high: 0.28"},
     {CLIP: DIFF}, "departures, by configuration: Clip-Higher"),
    ("verl.yaml", {"clip_ratio_c: 10.0": "policy_loss: {loss_mode: gspo}"}, {RATIO: OFF}, "token-level ratio"),
    ("verl.yaml", {"clip_ratio_c: 10.0": "clip_ratio_c: 10.0, policy_loss: {loss_mode: '${oc.env:M}'}"}, {RATIO: CODE}, "leaves open"),
    ("verl.yaml", {"  - ppo_trainer": "  - my_company_base"}, {STD: CODE, KL: CODE, CLIP: OK}, "leaves open"),
    ("verl.yaml", {"clip_ratio_high: 0.28": "clip_ratio_high: 28e-2"}, {CLIP: OK}, "DAPO by configuration"),
    ("verl.yaml", {"clip_ratio_high: 0.28": "clip_ratio_high: 1" + "0" * 400}, {CLIP: CONFLICT}, "it lacks Clip-Higher"),
    ("verl_main_ppo.sh", {"dapo runs": "recipe.dapo.main_dapo"}, WHOLE, "DAPO by configuration"),
    ("verl_main_ppo.sh", {"set -x\n": "pip install vllm trl\ncp ../pyproject.toml .\nIFS=$'\\n\\t'\nW=${W:-\"${PWD}\"}\n"}, WHOLE, "DAPO by"),
    ("verl_main_ppo.sh", {"set -x\n": "# old: \\\necho algorithm.filter_groups.enable=False\ncat <<EOF\nit's done\nEOF\n"}, WHOLE, "DAPO by"),
    ("verl_main_ppo.sh", {"eps_high=0.28": "eps_high=${1:-0.28}"}, {CLIP: CODE}, "leaves open: Clip-Higher"),
    ("verl_main_ppo.sh", {"eps_high=0.28": "eps_high=${EPS:-0.28}"}, {CLIP: OK}, "DAPO by configuration"),
    ("verl_main_ppo.sh", {"eps_high=0.28": "e=\neps_high=${e:-0.28}"}, {CLIP: OK}, "DAPO by configuration"),
    ("verl_main_ppo.sh", {"eps_high=0.28": "eps_high=0.28\nif x; then eps_high=0.2; fi"}, {CLIP: CODE}, "leaves open: Clip-Higher"),
    ("verl_main_ppo.sh", {"eps_high=0.28": "eps_high=0.28\nf() {\n  local eps_high=0.2\n}"}, {CLIP: OK}, "DAPO by configuration"),
    ("verl_main_ppo.sh", {"data.max_response_length=$max": "data.max_response_length=$MAX", "data.max_prompt": "x.y"},
     {OVERLONG: CODE}, "leaves open: Soft Overlong Punishment"),
    ("verl_main_ppo.sh", {"algorithm.filter_groups.enable=True \\\n    algorithm.filter_groups.metric=acc":
     "'algorithm.filter_groups={enable:True,metric:acc}'"}, {SAMPLING: OK}, "DAPO by configuration"),
    ("verl_main_ppo.sh", {"++reward.reward_kwargs.max_resp_len=$max_response_length":
     "++reward.reward_kwargs.max_resp_len=\\${data.max_response_length}"}, {OVERLONG: OK}, "DAPO by configuration"),
    ("verl_main_ppo.sh", {"verl.trainer.main_ppo": "verl.trainer.main_ppo --config-path=c --config-name=mine"}, {STD: CODE}, "leaves"),
    ("verl_main_ppo.sh", {"    reward.reward_manager.name=dapo": "    +reward_model.reward_kwargs.overlong_buffer_cfg.enable=True "
     "reward.reward_manager.name=dapo"}, {OVERLONG: {OK, DEAD}}, "DAPO by configuration"),
    ("verl_main_ppo.sh", {"python3 -m verl": "ray job submit --runtime-env-json='{\"a\": 1}' -- python3 -m verl"}, WHOLE, "DAPO by"),
    # EasyR1
    ("easyr1.sh", {}, WHOLE, "DAPO by configuration"),
    ("easyr1.sh", {"    worker.actor.clip_ratio_high=0.28 \\\n": ""}, {CLIP: DIFF}, "Clip-Higher"),
    ("easyr1.sh", {"online_filtering=True": "online_filtering=False"}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("easyr1.sh", {"filter_key=accuracy_normalized": "filter_key=accuracy"}, {SAMPLING: CONFLICT}, "it lacks Dynamic Sampling"),
    ("easyr1.sh", {"filter_key=accuracy_normalized": "filter_key=overall"}, {SAMPLING: DIFF}, "Dynamic Sampling"),
    ("easyr1.sh", {"filter_key=accuracy_normalized": "filter_key=mine"}, {SAMPLING: CODE}, "leaves open: Dynamic Sampling"),
    ("easyr1.sh", {"filter_key=accuracy_normalized": "filter_key=$KEY"}, {SAMPLING: CODE}, "leaves open: Dynamic Sampling"),
    ("easyr1.sh", {"dapo.py:compute_score": "math.py:compute_score"}, {OVERLONG: CODE}, "leaves open: Soft Overlong"),
    ("easyr1.sh", {"    worker.reward.reward_function=./examples/reward_function/dapo.py:compute_score \\\n": ""},
     {OVERLONG: OFF}, "it lacks Soft"),
    ("easyr1.sh", {"kwargs.max_response_length=20480": "kwargs.max_response_length=10240"}, {OVERLONG: CONFLICT}, "lacks Soft"),
    ("easyr1.sh", {" \\\n    worker.reward.reward_function_kwargs.overlong_penalty_factor=1.0": ""}, {OVERLONG: OK}, "DAPO by"),
    ("easyr1.sh", {"    algorithm.disable_kl=True \\\n": ""}, {KL: OFF}, "and a KL term"),
    ("easyr1.sh", {"disable_kl=True": "kl_coef=0.01 worker.actor.use_kl_loss=False"}, {KL: OFF}, "and a KL term"),
    ("easyr1.sh", {"filter_key=accuracy_normalized": "filter_key=accuracy_normalized algorithm.filter_low=0.4"}, {SAMPLING: DIFF}, "Dyn"),
    ("easyr1.sh", {"disable_kl=True": "kl_coef=0"}, {KL: OK}, "DAPO by configuration"),
    ("easyr1.sh", {"    algorithm.disable_kl=True \\\n": "", "examples/config.yaml": "mine.yaml"}, {KL: CODE}, "leaves open"),
    # TRL, unsloth, axolotl
    ("trl.py", {}, {CLIP: OK, SAMPLING: OFF, TOKENS: OK, OVERLONG: OK, KL: OK, STD: OK, MASK: OK}, "it lacks Dynamic Sampling"),
    ("trl.yaml", {}, {SAMPLING: OFF, OVERLONG: OFF, CLIP: OK}, "GRPO with Clip-Higher, token-level loss; it lacks Dynamic"),
    ("axolotl.yaml", {}, {SAMPLING: OFF, CLIP: OK}, "it lacks Dynamic Sampling; left to code: Soft"),
    ("trl.yaml", {"[accuracy_reward]": "[accuracy_reward, get_soft_overlong_punishment]"}, {OVERLONG: CODE}, "left to code: Soft"),
    ("trl.yaml", {"reward_funcs: [accuracy_reward]\n": ""}, {OVERLONG: CODE}, "left to code: Soft"),
    ("trl.py", {"    epsilon_high=0.28,\n": ""}, {CLIP: OFF}, "it lacks Clip-Higher, Dynamic Sampling"),
    ("trl.py", {'loss_type="dapo"': 'loss_type="bnpo"'}, {TOKENS: OFF}, "it lacks Dynamic Sampling, token-level loss"),
    ("trl.py", {"soft_punish_cache=CACHE": "soft_punish_cache=cache_of(model)"}, {OVERLONG: CODE}, "left to code: Soft"),
    ("trl.py", {"max_completion_len=MAX, soft_punish_cache=CACHE": "8192, CACHE"}, {OVERLONG: DIFF}, "lacks Dynamic"),
    ("trl.py", {", get_soft_overlong_punishment(max_completion_len=MAX, soft_punish_cache=CACHE)": ""}, {OVERLONG: OFF}, "Soft"),
    ("trl.py", {'scale_rewards="group"': 'mask_truncated_completions=True'}, {MASK: CONFLICT, STD: OK}, "not DAPO"),
    ("trl.py", {'scale_rewards="group"': 'scale_rewards="none"'}, {STD: OFF}, "without the group's deviation"),
    ("trl.py", {"beta=0.0": "beta=0.04"}, {KL: OFF}, "and a KL term"),
    ("trl.py", {"**common": "**settings()"}, {TOKENS: CODE, KL: CODE}, "left to code: token-level loss, no KL term"),
    ("trl.py", {"from trl import": "import unsloth\nfrom trl import", "epsilon_high=0.28": "epsilon_high=0.3"},
     {CLIP: {OK, DEAD}, MASK: CONFLICT}, "it lacks Dynamic Sampling; conflict in no overlong filtering"),
    ("trl.py", {"from trl import": "import unsloth\nfrom trl import", "epsilon=0.2": "epsilon=0.1"}, {CLIP: DIFF}, "not DAPO"),
    ("trl.py", {"reward_funcs=[accuracy_reward, get": "reward_funcs=[accuracy_reward], other=[get"}, {OVERLONG: OFF}, "lacks Dynamic"),
    ("trl.py", {"[accuracy_reward, get_soft_overlong_punishment(max_completion_len=MAX, soft_punish_cache=CACHE)]":
     "[mine]"}, {OVERLONG: CODE}, "left to code: Soft"),
    ("trl.py", {"    **common": "    reward_weights=[1.0, 0.0],\n    **common"}, {OVERLONG: DEAD}, "Soft Overlong Punishment"),
    ("trl.py", {"    **common": "    reward_weights=[1.0, 0.5],\n    **common"}, {OVERLONG: DIFF}, "lacks Dynamic Sampling"),
    ("trl.py", {"    **common": "    reward_weights=weights(),\n    **common"}, {OVERLONG: CODE}, "left to code: Soft"),
    ("trl.py", {"trainer = ": "config.beta = 0.04\ntrainer = "}, {KL: OFF}, "and a KL term"),
    ("trl.py", {"trainer = ": "MAX += 1\ntrainer = "}, {OVERLONG: CODE}, "left to code: Soft"),
    ("trl.py", {"    **common": "    use_vllm=True,\n    **common"}, {OTHER: DIFF}, "not DAPO"),
    ("trl.py", {"    **common": "    importance_sampling_level='sequence',\n    **common"}, {RATIO: OFF}, "token-level ratio"),
    ("trl.py", {"import GRPOConfig, GRPOTrainer": "import GRPOConfig as C, GRPOTrainer", "GRPOConfig(": "C("}, {CLIP: OK}, "lacks Dyn"),
    ("trl.py", {"config = GRPOConfig(": "class Mine(GRPOConfig):\n    pass\nconfig = Mine("}, {CLIP: OK}, "it lacks Dynamic Sampling"),
    ("trl.py", {"config = GRPOConfig(": "TrlParser((GRPOConfig,))\nconfig = dict("}, {CLIP: CODE, KL: CODE}, "left to code: Clip-"),
    ("trl.py", {"from trl import": "import unsloth\nfrom trl import", 'loss_type="dapo", ': ""}, {TOKENS: OFF, CLIP: OK}, "token"),
    ("trl.py", {"GRPOTrainer(": "GRPOWithReplayBufferTrainer("}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    # OpenRLHF
    ("openrlhf.sh", {}, WHOLE, "DAPO by configuration"),
    ("openrlhf.sh", {"   --actor.eps_clip_low_high 0.2 0.28 \\\n": ""}, {CLIP: OFF}, "it lacks Clip-Higher"),
    ("openrlhf.sh", {"low_high 0.2 0.28": "low_high 0.2 $HIGH"}, {CLIP: CODE}, "leaves open: Clip-Higher"),
    ("openrlhf.sh", {"low_high 0.2 0.28": "low_high $BOTH"}, {CLIP: CODE}, "leaves open: Clip-Higher"),
    ("openrlhf.sh", {"low_high 0.2 0.28": "low_high 0.2"}, {CLIP: OFF}, "it lacks Clip-Higher"),
    ("openrlhf.sh", {"   --algo.dynamic_filtering_enable \\\n": ""}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("openrlhf.sh", {"reward_func.py": "dapo_reward.py"}, {SAMPLING: CONFLICT}, "it lacks Dynamic Sampling"),
    ("openrlhf.sh", {"reward_func.py": "dapo_reward.py", "range 0 1": "range -1 1"}, {SAMPLING: OK}, "DAPO by configuration"),
    ("openrlhf.sh", {"range 0 1": "range 0.2 0.8"}, {SAMPLING: DIFF}, "Dynamic Sampling"),
    ("openrlhf.sh", {"range 0 1": "range $LO 1"}, {SAMPLING: CODE}, "leaves open: Dynamic Sampling"),
    ("openrlhf.sh", {"   --reward.overlong_buffer_len 4096 \\\n": ""}, {OVERLONG: OFF}, "it lacks Soft"),
    ("openrlhf.sh", {" \\\n   --rollout.max_new_tokens 20480": ""}, {OVERLONG: CONFLICT}, "it lacks Soft"),
    ("openrlhf.sh", {"   --algo.kl.init_coef 0 \\\n": ""}, {KL: OFF}, "and a KL term"),
    ("openrlhf.sh", {"estimator group_norm": "estimator dr_grpo"}, {STD: OFF}, "without the group's deviation"),
    ("openrlhf.sh", {"--algo.kl": "--actor.policy_loss_type gspo --algo.kl"}, {TOKENS: OFF}, "it lacks token-level loss"),
    ("openrlhf.sh", {"--actor.eps_clip_low_high": "--eps_clip_low_high"}, {CLIP: OFF, OTHER: UNKNOWN}, "it lacks Clip-Higher"),
    ("openrlhf.sh", {"examples/reward_func.py": "/data/dapo-17k/reward01.py"}, {SAMPLING: OK}, "DAPO by configuration"),
    ("openrlhf.sh", {"--actor.eps_clip_low_high 0.2 0.28": "--actor.eps_clip 0.2"}, {CLIP: OFF}, "it lacks Clip-Higher"),
    ("openrlhf.sh", {"--algo.kl.init_coef 0": "--rollout_batch_size 128 --advantage_estimator group_norm --algo.kl.init_coef 0"},
     {OTHER: UNKNOWN}, "DAPO by configuration"),
    ("openrlhf.sh", {"--rollout.max_new_tokens 20480": "--rollout.max_new_tokens 20480 \"$@\" > train.log 2>&1"}, WHOLE, "DAPO by"),
    # NeMo-RL
    ("nemo.yaml", {}, {**WHOLE, REWARD: OK, MASK: OK, DUAL: OK}, "DAPO by configuration"),
    ("grpo_math_1B.yaml", {}, {CLIP: OFF, SAMPLING: OFF, OVERLONG: OFF, KL: OFF, REWARD: DIFF}, "not DAPO"),
    ("nemo.yaml", {"  use_leave_one_out_baseline: false\n": ""}, {SAMPLING: CONFLICT}, "it lacks Dynamic Sampling"),
    ("nemo.yaml", {"  batch_multiplier: 3": "  async_grpo: {enabled: true}"}, {SAMPLING: DEAD}, "it lacks Dynamic Sampling"),
    ("nemo.yaml", {"max_response_length: 20480": "max_response_length: 16384"}, {OVERLONG: CONFLICT}, "it lacks Soft"),
    ("nemo.yaml", {"  batch_multiplier: 3": "  overlong_filtering: true"}, {MASK: CONFLICT}, "no overlong filtering"),
    ("nemo.yaml", {"    enabled: true\n": "", "  batch_multiplier: 3": "  overlong_filtering: true"}, {MASK: DIFF}, "lacks Soft"),
    ("nemo.yaml", {"  reference_policy_kl_penalty: 0.0\n": ""}, {KL: OFF}, "and a KL term"),
    ("nemo.yaml", {"grpo_math_1B.yaml": "elsewhere.yaml", "  use_leave_one_out_baseline: false\n": ""},
     {SAMPLING: CODE, CLIP: CODE, STD: CODE, REWARD: OK}, "leaves open"),
    ("nemo.yaml", {"target_min: -1": "target_min: '${oc.env:MIN}'"}, {REWARD: CODE}, "leaves open: rule-based reward"),
    ("nemo.yaml", {"  batch_multiplier: 3": "  overlong_filtering: '${oc.env:X}'"}, {MASK: CODE}, "leaves open: no overlong"),
    ("nemo.yaml", {"  batch_multiplier: 3": "  async_grpo: {enabled: '${oc.env:X}'}"}, {SAMPLING: CODE}, "leaves open: Dynamic"),
    ("nemo.yaml", {"ratio_clip_c: 10": "ratio_clip_c: '${oc.env:X}'"}, {DUAL: CODE}, "leaves open: dual clip"),
    ("nemo.yaml", {"  generation: {max_new_tokens: 20480}": ""}, {OVERLONG: CONFLICT}, "it lacks Soft Overlong Punishment"),
    # slime
    ("slime.sh", {}, {**WHOLE, OVERLONG: OFF, REWARD: OK}, "it lacks Soft Overlong Punishment"),
    ("slime.sh", {"--rm-type dapo": "--custom-rm-path my.reward"}, {OVERLONG: CODE, SAMPLING: CODE}, "leaves open"),
    ("slime.sh", {"check_reward_nonzero_std": "mine"}, {SAMPLING: CODE}, "left to code: Dynamic Sampling"),
    ("slime.sh", {"   --dynamic-sampling-filter-path": "#"}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("slime.sh", {"   --calculate-per-token-loss\n": ""}, {TOKENS: OFF}, "it lacks token-level loss"),
    ("slime.sh", {"--kl-loss-coef 0.00": "--kl-loss-coef 0.01"}, {KL: OFF}, "and a KL term"),
    ("slime.sh", {"   --use-kl-loss\n": "", "--kl-loss-coef 0.00": "--kl-loss-coef 0.01"}, {KL: OK}, "it lacks Soft"),
    ("slime.sh", {"--use-kl-loss\n": "--disable-grpo-std-normalization\n"}, {STD: OFF}, "without the group's deviation"),
    ("slime.sh", {"--use-kl-loss\n": "--rollout-sample-filter-path my.filter\n   --use-tis\n"}, {MASK: CODE, OTHER: DIFF}, "not"),
    ("slime.sh", {"--rm-type dapo": "--rm-type deepscaler"}, {REWARD: OFF}, "it lacks Soft"),
    ("slime.sh", {"GRPO_ARGS=(": "GRPO_ARGS=()\nif x; then\n  GRPO_ARGS+=(--eps-clip-high 0.3)\nfi\nGRPO_ARGS+=(",
     "   --eps-clip-high 0.28\n": ""}, {CLIP: CODE}, "left to code: Clip-Higher"),
    ("slime.sh", {"   --calculate-per-token-loss\n)": ")\ntest $x && GRPO_ARGS+=(--calculate-per-token-loss)"}, {TOKENS: CODE}, "left"),
    # ms-swift
    ("swift.sh", {}, {CLIP: OK, SAMPLING: DIFF, TOKENS: OK, OVERLONG: OK, KL: OK}, "departures, by configuration: Dynamic"),
    ("swift.sh", {"accuracy soft_overlong": "accuracy"}, {SAMPLING: OK, OVERLONG: DEAD}, "it lacks Soft"),
    ("swift.sh", {"accuracy soft_overlong": "accuracy", " \\\n    --soft_cache_length 4096": ""}, {OVERLONG: OFF}, "lacks Soft"),
    ("swift.sh", {"accuracy soft_overlong": "$REWARDS"}, {OVERLONG: CODE}, "leaves open: Soft"),
    ("swift.sh", {"--dynamic_sample true": "--dynamic_sample false"}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("swift.sh", {"    --beta 0 \\\n": ""}, {KL: OFF}, "and a KL term"),
    ("swift.sh", {"--beta 0": "--beta 0 --gradient_accumulation_steps 8"}, {TOKENS: DIFF}, "token-level loss"),
    ("swift.sh", {"    --loss_type dapo \\\n": ""}, {TOKENS: OFF}, "it lacks token-level loss"),
    ("swift.sh", {"--beta 0": "--beta 0 --overlong_filter true"}, {MASK: CONFLICT}, "no overlong filtering"),
    ("swift.sh", {"--soft_cache_length 4096": "--soft_cache_length 4096 --soft_max_length 8192"}, {OVERLONG: CONFLICT}, "Soft"),
    ("swift.sh", {"--soft_cache_length 4096": "--soft_cache_length 4096 2>&1 | tee log.txt"}, {OVERLONG: OK}, "Dynamic Sampling"),
    ("swift.sh", {"--soft_cache_length 4096": "--soft_cache_length 4096 --reward_weights 1 0"}, {OVERLONG: DEAD}, "lacks Soft"),
    ("swift.sh", {"--beta 0": "--beta null"}, {KL: OFF}, "and a KL term"),
    ("swift.sh", {"--beta 0": "--beta 0 --importance_sampling_level sequence"}, {RATIO: OFF}, "token-level ratio"),
    ("swift.sh", {"--beta 0": "--beta 0 --rollout_importance_sampling_mode token_truncate"}, {OTHER: DIFF}, "Dynamic Sampling, other"),
    ("swift.sh", {"NPROC_PER_NODE=8 swift": "A=\"--loss_scale 1 --lr 2\"\nNPROC_PER_NODE=8 swift", "--beta 0": "--beta 0 $A"}, {KL: OK}, ""),
    ("swift.sh", {"NPROC_PER_NODE=8 swift": "srun bash -c \"swift", "--soft_cache_length 4096": "--soft_cache_length 4096\""},
     {CLIP: OK, OVERLONG: OK}, "departures, by configuration: Dynamic"),
    # ROLL
    ("roll.yaml", {}, {CLIP: OK, SAMPLING: OK, TOKENS: OK, OVERLONG: OFF, KL: OK, STD: OK}, "it lacks Soft"),
    ("roll.yaml", {"use_pg_clip_range: true\n": ""}, {CLIP: DEAD}, "it lacks Clip-Higher"),
    ("roll.yaml", {"use_pg_clip_range: true\npg_clip_low: 0.2\npg_clip_high: 0.28\n": ""}, {CLIP: OFF}, "it lacks Clip-Higher"),
    ("roll.yaml", {"use_pg_clip_range: true": "use_pg_clip_range: '${oc.env:R}'"}, {CLIP: CODE}, "left to code: Clip-Higher"),
    ("roll.yaml", {"is_use_additional_prompts": "use_additional_prompts"}, {SAMPLING: {OFF, UNKNOWN}}, "it lacks Dynamic"),
    ("roll.yaml", {"type: mean_filter": "type: no_filter"}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("roll.yaml", {"type: mean_filter": "type: '${oc.env:T}'"}, {SAMPLING: CODE}, "left to code: Dynamic Sampling"),
    ("roll.yaml", {"actor_train:": "  code: {worker_cls: x}\nactor_train:"}, {SAMPLING: CONFLICT}, "it lacks Dynamic Sampling"),
    ("roll.yaml", {"rewards:": "other:", "pg_clip_low": "difficulty_mask: true\npg_clip_low"}, {SAMPLING: OFF}, "lacks Dynamic"),
    ("roll.yaml", {"loss_agg_mode: token-mean\n": ""}, {TOKENS: OFF}, "it lacks token-level loss"),
    ("roll.yaml", {"pg_clip_low": "add_token_level_kl: true\npg_clip_low"}, {KL: OFF}, "and a KL term"),
    ("roll.yaml", {"norm_std_type: group\n": ""}, {STD: OFF}, "without the group's deviation"),
    ("roll.yaml", {"norm_std_type: group": "norm_std_type: '${oc.env:S}'"}, {STD: CODE}, "left to code: group"),
    ("roll.yaml", {"pg_clip_low": "max_len_mask: true\npg_clip_low"}, {MASK: DIFF}, "it lacks Soft"),
    ("roll.yaml", {"threshold_up: 1.0, threshold_down: 0.0": "threshold_up: 0.6, threshold_down: 0.4"}, {SAMPLING: DIFF}, "lacks Soft"),
    ("roll.yaml", {"pg_clip_low": "dual_clip_loss: true\npg_clip_low"}, {OTHER: DIFF}, "it lacks Soft"),
    # AReaL
    ("areal.yaml", {}, {**WHOLE, SAMPLING: CODE}, "DAPO only if its code does what the file leaves open: Dynamic Sampling"),
    ("areal.yaml", {"experiment_name": "dynamic_bs: true\nexperiment_name"}, {SAMPLING: CODE}, "leaves open"),
    ("areal.yaml", {"  eps_clip_higher: 0.28\n": ""}, {CLIP: OFF}, "it lacks Clip-Higher; left to code: Dynamic"),
    ("areal.yaml", {"overlong_reward_penalty: true": "overlong_reward_penalty: false"}, {OVERLONG: OFF}, "it lacks Soft"),
    ("areal.yaml", {"1.0\n  max_new_tokens: 20480": "1.0\n  max_new_tokens: 10240"}, {OVERLONG: CONFLICT}, "it lacks Soft"),
    ("areal.yaml", {"1.0\n  max_new_tokens: 20480": "1.0"}, {OVERLONG: CONFLICT}, "it lacks Soft"),
    ("areal.yaml", {"  kl_ctl: 0.0\n": "  reward_scaling: 2\n"}, {OVERLONG: DIFF, KL: OFF}, "and a KL term"),
    ("areal.yaml", {"std_level: group": "std_level: null"}, {STD: OFF}, "without the group's deviation"),
    ("areal.yaml", {"std_level: group": "std_level: '${oc.env:S}'"}, {STD: CODE}, "leaves open"),
    ("areal.yaml", {"  eps_clip: 0.2": "  use_decoupled_loss: true\n  eps_clip: 0.2"}, {OTHER: DIFF}, "leaves open"),
    # SkyRL
    ("skyrl.sh", {}, WHOLE, "DAPO by configuration"),
    ("skyrl.sh", {"examples.train.algorithms.dapo.main_dapo": "skyrl.train.entrypoints.main_base"}, {OVERLONG: DEAD}, "lacks"),
    ("skyrl.sh", {"  trainer.algorithm.use_kl_loss=false \\\n": ""}, {KL: OFF}, "and a KL term"),
    ("skyrl.sh", {"overlong_buffer_len": "overlong_buffer.len"}, {OVERLONG: {DIFF, UNKNOWN}}, "Soft Overlong Punishment"),
    ("skyrl.sh", {"dynamic_sampling.type=filter": "dynamic_sampling.type=replace"}, {SAMPLING: DIFF}, "Dynamic Sampling"),
    ("skyrl.sh", {"dynamic_sampling.type=filter": "zero_variance_filter=true"}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("skyrl.sh", {"trainer.algorithm.dynamic_sampling.type=filter": "trainer.algorithm.zero_variance_filter=true "
     "trainer.fully_async.sample_full_batch=true"}, {SAMPLING: OK}, "DAPO by configuration"),
    ("skyrl.sh", {"dynamic_sampling.type=filter": "dynamic_sampling.type=$T"}, {SAMPLING: CODE}, "leaves open"),
    ("skyrl.sh", {"  trainer.algorithm.dynamic_sampling.type=filter \\\n": ""}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("skyrl.sh", {"loss_reduction=token_mean": "policy_loss_type=cispo"}, {CLIP: DEAD}, "it lacks Clip-Higher"),
    ("skyrl.sh", {"loss_reduction=token_mean": "policy_loss_type=$P"}, {CLIP: CODE}, "leaves open: Clip-Higher"),
    ("skyrl.sh", {"loss_reduction=token_mean": "loss_reduction=token_mean_legacy"}, {TOKENS: OFF}, "it lacks token-level"),
    ("skyrl.sh", {"use_kl_loss=false": "use_kl_loss=false generator.apply_overlong_filtering=true"}, {MASK: CONFLICT}, "no over"),
    ("skyrl.sh", {"-m examples.train.algorithms.dapo.main_dapo": "python examples/train/algorithms/dapo/main_dapo.py"}, WHOLE, "DAPO"),
    ("skyrl.sh", {"use_kl_loss=false": "use_kl_loss=false generator.apply_overlong_filtering=$X"}, {MASK: CODE}, "leaves open: no over"),
    # prime-rl
    ("prime.toml", {}, {CLIP: OFF, SAMPLING: OK, OVERLONG: OFF, STD: OFF}, "not DAPO: a policy gradient without the group's"),
    ("prime.toml", {'type = "default"': 'type = "custom"'}, {CLIP: CODE}, "left to code: Clip-Higher"),
    ("prime.toml", {"reject_max = 0.0": "reject_max = 0.5"}, {SAMPLING: OFF}, "it lacks Clip-Higher, Dynamic Sampling"),
    ("prime.toml", {"reject_max = 0.0": 'reject_max = 0.0\n[[orchestrator.train.source]]\nid = "code"'},
     {SAMPLING: CONFLICT}, "it lacks Clip-Higher, Dynamic Sampling"),
    ("prime.toml", {"reject_max = 0.0": "reject_max = 0.0\n[orchestrator.train.length_penalty]\nweight = 1"}, {SAMPLING: DIFF}, ""),
    ("prime.toml", {"kl_tau = 0.0\n": ""}, {KL: OFF}, "and a KL term"),
    ("prime.toml", {"[trainer.loss]": "# no length_penalty here\n[trainer.loss]"}, {SAMPLING: OK, OTHER: DIFF}, "not DAPO"),
    # open-instruct
    ("open_instruct.sh", {}, {**WHOLE, OVERLONG: OFF, OTHER: DIFF}, "it lacks Soft Overlong Punishment"),
    ("open_instruct.sh", {"--loss_fn dapo": "--loss_fn dppo"}, {CLIP: DEAD}, "it lacks Clip-Higher"),
    ("open_instruct.sh", {"--loss_fn dapo": "--loss_fn $LOSS"}, {CLIP: CODE}, "left to code: Clip-Higher"),
    ("open_instruct.sh", {"--beta 0.0": "--beta 0.0 --use_rho_correction $RHO"}, {OTHER: CODE}, "left to code: other"),
    ("open_instruct.sh", {"    --clip_higher 0.28 \\\n": ""}, {CLIP: DIFF}, "it lacks Soft"),
    ("open_instruct.sh", {"--loss_fn dapo": "--loss_fn cispo"}, {CLIP: DEAD}, "it lacks Clip-Higher"),
    ("open_instruct.sh", {"--async_steps 4": "--async_steps 1"}, {SAMPLING: CONFLICT}, "it lacks Dynamic Sampling"),
    ("open_instruct.sh", {"    --active_sampling \\\n": ""}, {SAMPLING: OFF}, "it lacks Dynamic Sampling"),
    ("open_instruct.sh", {"--async_steps 4": "--async_steps $N"}, {SAMPLING: CODE}, "left to code: Dynamic Sampling"),
    ("open_instruct.sh", {"--beta 0.0": "--non_stop_penalty True"}, {OVERLONG: OFF, KL: OFF}, "and a KL term"),
    ("open_instruct.sh", {"--beta 0.0": "--beta 0.0 --mask_truncated_completions True"}, {MASK: CONFLICT}, "it lacks Soft"),
    ("open_instruct.sh", {" \\\n    --advantage_normalization_type standard": ""}, {STD: OFF}, "without the group's deviation"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fixture", "edits", "expected", "sentence"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_a_configuration_is_read_for_what_it_does(tmp_path, fixture, edits, expected, sentence):
    text = (FOLDER / fixture).read_text()
    for old, new in edits.items():
        assert old in text, old
        text = text.replace(old, new)
    if fixture == "nemo.yaml":
        (tmp_path / "grpo_math_1B.yaml").write_text((FOLDER / "grpo_math_1B.yaml").read_text())
    (tmp_path / fixture).write_text(text)
    seen = inspect_file(tmp_path / fixture)
    for part, verdict in expected.items():
        wanted = verdict if isinstance(verdict, set) else {verdict}
        assert {f.verdict for f in seen.findings if f.part == part} == wanted, [
            f for f in seen.findings if f.part == part
        ]
    assert sentence in seen.sentence
    assert seen.conforms == (seen.sentence.startswith("DAPO") and "only if" not in seen.sentence)
    for f in seen.findings:
        assert f.why or f.verdict in (OK, OFF, DIFF), f


def test_there_are_cases_for_every_system_and_every_verdict():
    assert len(CASES) >= 60
    names = {inspect_file(path).system for path in FOLDER.iterdir()}
    assert names == {s.name for s in SYSTEMS}
    assert len(names) == 12
    verdicts = {v for _, _, e, _ in CASES for x in e.values() for v in (x if isinstance(x, set) else {x})}
    assert verdicts == {OK, DIFF, OFF, DEAD, CONFLICT, CODE, UNKNOWN}


def test_a_name_that_promises_dapo_is_held_to_it(tmp_path):
    (tmp_path / "gem_math_dapo.yaml").write_text((FOLDER / "roll.yaml").read_text())
    assert inspect_file(tmp_path / "gem_math_dapo.yaml").sentence.endswith("the file's name says dapo")


def check(*arguments, code):
    done = subprocess.run([sys.executable, "-m", "dapo", "check", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_command(tmp_path):
    text = check(FOLDER / "verl_main_ppo.sh", "--claim", "dapo", code=0)
    assert "verl, read by its keys of 2026-08-22 (1dda039b9)" in text
    assert "on-as-paper Clip-Higher: actor_rollout_ref.actor.clip_ratio_low = 0.2" in text
    assert "not DAPO" in check(FOLDER / "slime.sh", code=0)
    assert "not DAPO" in check(FOLDER / "slime.sh", "--claim", "dapo", code=3)
    document = json.loads(check(FOLDER / "trl.py", "--json", code=0))
    assert document["system"] == "TRL"
    assert {f["part"] for f in document["findings"]} >= {CLIP, SAMPLING, TOKENS, OVERLONG, KL, STD}
    assert "compared with dapo only" in check(FOLDER / "trl.py", "--claim", "grpo", code=2)
    assert "--card needs a run directory" in check(FOLDER / "trl.py", "--card", code=2)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "x: [1", "not YAML"),
        ("a.yaml", "- 1\n- 2", "not a table of settings"),
        ("a.yaml", "learning_rate: 1", "no system's keys or entry point were found"),
        ("a.yaml", "actor_rollout_ref: {a: 1}\nworker: {actor: {b: 2}}", "it looks like verl and EasyR1"),
        ("a.yaml", "defaults: a.yaml", "includes itself"),
        ("a.yaml", "a: &a {b: *a}", "recursive node"),
        ("a.yaml", "x: " + "[" * 80 + "]" * 80, "nested deeper than 60"),
        ("a.toml", "x = " + "[" * 5000, "not TOML"),
        ("a.py", "x = " + "-" * 100000 + "1", "nested too deeply"),
        ("a.py", "x = 1\0", "cannot be read"),
        ("a.py", "from trl import GRPOConfig\nGRPOConfig(beta=0)\nGRPOConfig(beta=1)", "several different GRPOConfigs"),
        ("a.sh", "swift rlhf --beta 0\nswift rlhf --beta 1", "launches 2 runs with different settings"),
        ("a.sh", "x=(1 2)\n" + "x=(${x[@]} ${x[@]})\n" * 30, "grow beyond 1000000 characters"),
        ("a.sh", "x=" + "y" * 90000 + "\ny=" + "$x" * 50000, "grow beyond 1000000 characters"),
        ("a.toml", "x = = 1", "not TOML"),
        ("a.py", "def (", "line 1 is not Python"),
        ("a.py", "print(1)", "no system's keys"),
        ("a.sh", "x='abc", "a quote is never closed"),
        ("a.sh", "x=(1 2", "an array's bracket is never closed"),
        ("a.sh", "x=$(cat", "$( is never closed"),
        ("a.sh", "x=${y", "${ is never closed"),
        ("a.txt", "epsilon: 1", "cannot tell what kind of file it is"),
    ],
)
def test_what_cannot_be_read_is_said_clearly(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=r"a\.\w+") as error:
        inspect_file(tmp_path / name)
    assert says in str(error.value)


def test_bytes_sizes_and_bombs(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00x")
    with pytest.raises(ValueError, match="is not text"):
        read(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("#" * 2_000_001)
    with pytest.raises(ValueError, match="has 2000001 bytes"):
        read(tmp_path / "b.yaml")
    levels = ["a0: &a0 {x: 1}"]
    levels += [f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(10))}}}" for i in range(1, 10)]
    (tmp_path / "c.yaml").write_text("\n".join(levels))
    with pytest.raises(ValueError, match="more than 20000 settings"):
        read(tmp_path / "c.yaml")
    (tmp_path / "d.sh").write_text("x=xxxxxxxxxx\n" + "x=$x$x$x$x$x$x$x$x\n" * 9)
    with pytest.raises(ValueError, match="grow beyond 1000000 characters"):
        read(tmp_path / "d.sh")


def test_nothing_is_executed(tmp_path):
    marker = tmp_path / "marker"
    value = f"!!python/object/apply:os.system ['touch {marker}']"
    (tmp_path / "a.yaml").write_text(f"loss_fn: {{ratio_clip_max: {value}}}\n")
    (tmp_path / "a.sh").write_text(
        f"touch {marker}\nx=$(touch {marker})\ny=`touch {marker}`\nswift rlhf --beta $x --epsilon $y\n"
    )
    (tmp_path / "a.py").write_text(f"open({str(marker)!r}, 'w')\nfrom trl import GRPOConfig\nGRPOConfig(beta=0.0)\n")
    for name in ("a.sh", "a.py", "a.yaml"):
        inspect_file(tmp_path / name)
    assert not marker.exists()


def test_parents_are_followed_and_those_above_lose(tmp_path):
    (tmp_path / "grand.yaml").write_text("grpo: {normalize_rewards: false, use_dynamic_sampling: true}")
    (tmp_path / "parent.yaml").write_text("defaults: [grand.yaml]\ngrpo: {normalize_rewards: true}\nloss_fn: {a: 1}")
    (tmp_path / "run.yaml").write_text(
        "defaults: parent.yaml\nloss_fn: {ratio_clip_max: 0.28}\nx: ${loss_fn.a}\ny: ${y}"
    )
    (config,) = read(tmp_path / "run.yaml")
    assert config.settings["grpo.normalize_rewards"] is True
    assert config.settings["grpo.use_dynamic_sampling"] is True
    assert config.settings["x"] == 1
    assert str(config.settings["y"]) == "${y}"
    assert config.incomplete == ""


def test_a_script_reads_the_file_that_it_names(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "base.yaml").write_text("worker: {actor: {clip_ratio_low: 0.2, clip_ratio_high: 0.3}}")
    (tmp_path / ".git").mkdir()
    deep = tmp_path / "examples" / "deep"
    deep.mkdir(parents=True)
    for place in (tmp_path, deep):
        (place / "run.sh").write_text(
            "python3 -m verl.trainer.main config=configs/base.yaml worker.actor.clip_ratio_high=0.28"
        )
        clip = inspect_file(place / "run.sh").findings[0]
        assert (clip.part, clip.verdict) == (CLIP, OK)
    (tmp_path / ".git").rmdir()  # without a repository, only files beside the script are read
    assert inspect_file(deep / "run.sh").findings[0].verdict == CODE
    (tmp_path / "train.toml").write_text("[loss]\ntype = 'custom'\n")
    (tmp_path / "split.sh").write_text("uv run rl --trainer @ train.toml --orchestrator @ gone.toml\n")
    split = {f.part: f.verdict for f in inspect_file(tmp_path / "split.sh").findings}
    assert (split[CLIP], split[SAMPLING]) == (CODE, CODE)
    (tmp_path / "go").write_text("#!/bin/sh\nuv run rl @ prime.toml --x 1\n")
    (tmp_path / "prime.toml").write_text((FOLDER / "prime.toml").read_text())
    assert inspect_file(tmp_path / "go").system == "prime-rl"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("a=1; b=${a}2\ncmd $b \"$a x\" '$a'", ["cmd", "12", "1 x", "$a"]),
        ("cmd ${none:-7} ${none} $none", ["cmd", "7", "\ue000${none}".replace("{none}", "none"), "\ue000$none"]),
        ("n=3\ncmd $((n * 1024)) $((2 ** 3)) $(( -n + 7 % 4 )) $((1 / 0))",
         ["cmd", "3072", "\ue000$((2 ** 3))", "0", "\ue000$((1 / 0))"]),
        ("if x; then a=1; else a=2; fi\ncmd $a", ["cmd", "\ue000$a"]),
        ("for i in 1 2; do b=$i; done\ncmd $b", ["cmd", "\ue000$b"]),
        ("test -n y && a=2\nb=3\ncmd $a $b", ["cmd", "\ue000$a", "3"]),
        ("x=(a 'b c' # note\n d)\nx+=(e)\ncmd \"${x[@]}\" ${x} ${y[@]}", ["cmd", "a", "b c", "d", "e", "a", "\ue000${y[@]}"]),
        ("x=()\ncmd ${x[@]} end", ["cmd", "end"]),
        ("export A=1\nlocal B=2\ncmd $A$B", ["cmd", "12"]),
        ("a=x\na+=y\ncmd $a", ["cmd", "xy"]),
        ("cat <<EOF\nfoo --bar\nEOF\ncmd a\\ b \"\" c", ["cmd", "a b", "", "c"]),
        ("cmd $1 ${a%b} x) y", ["cmd", "\ue000$1", "\ue000${a%b}", "x"]),
        ("cmd `date` $(echo (1))", ["cmd", "\ue000date", "\ue000$(echo (1))"]),
    ],
)  # fmt: skip
def test_shell_words(script, words):
    commands = [c for c in parse(script).commands if c[0] == "cmd"]
    assert commands == [words]


def test_scalars():
    words = ["True", "none", "3", "1_000", "2.5", "1e-6", "'x y'", "[a, 2]", "abc", "-1"]
    assert [scalar(w) for w in words] == [True, None, 3, 1000, 2.5, 1e-6, "x y", ["a", 2], "abc", -1]


def test_the_conclusion_counts_the_worst_finding_of_a_part():
    def found(part, *verdicts):
        return [Finding(part, v, "", "") for v in verdicts]

    whole = [f for part in p.CORE for f in found(part, OK)]
    assert conclude(whole, True) == (True, "DAPO by configuration; what a run did is for its record to show")
    assert conclude([*whole, *found(CLIP, CONFLICT)], False)[0] is False
    assert "leaves open: Clip-Higher" in conclude([*whole, *found(CLIP, CODE)], False)[1]
    assert "named departures, by configuration: Clip-Higher" in conclude([*whole, *found(CLIP, DIFF)], False)[1]
    nothing = [f for part in p.CORE for f in found(part, OFF)]
    assert conclude(nothing, False)[1].startswith(
        "not DAPO: a policy gradient without the group's deviation and a KL term; it"
    )
