"""What the laboratory configs share: a small decoder that has seen some demonstrations, and GRPO to be changed."""

import ml_collections

# Task -> (its spec, supervised steps: enough to be right sometimes, not often).
TASKS = dict(
  sorting=(dict(name="sorting", length=6, num_symbols=8), 60),
  modular_sum=(dict(name="modular_sum", num_terms=3, modulus=7), 100),
  chain_sum=(dict(name="chain_sum", num_terms=3), 150),
  countdown=(dict(name="countdown"), 150),
)


def base(task: str) -> ml_collections.ConfigDict:
  spec, sft_steps = TASKS[task]
  c = ml_collections.ConfigDict()
  c.seed = 0
  c.model = dict(
    source="tiny", sizes=dict(width=64, num_layers=2, num_heads=2, num_kv_heads=2, mlp_width=128)
  )  # 0.1M parameters
  c.task = spec
  c.prompts = dict(per_step=8)
  c.selection = dict(name="uniform")
  c.rollout = dict(name="groups", group_size=8, temperature=1.0)
  c.rewards = (dict(name="correct", weight=1.0),)
  c.credit = (dict(name="group_normalise", eps=1e-6), dict(name="spread_over_tokens"))
  c.objective = (dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.2),)
  c.reduce = dict(name="sequence_mean")
  c.optimiser = dict(name="adamw", learning_rate=5e-4, schedule="constant", clip_norm=1.0)
  c.train = dict(num_steps=200, report_entropy=False)
  c.eval = dict(every=50, num_prompts=256, num_samples=1)
  c.checkpoint = dict(every=200)
  c.stages = (
    dict(
      kind="sft", train=dict(num_steps=sft_steps), prompts=dict(per_step=64), optimiser=dict(learning_rate=3e-3),
      objective=(dict(name="negative_log_likelihood"),), reduce=dict(name="token_mean"),
    ),
    dict(kind="rl"),
  )  # fmt: skip
  return c
