"""What the laboratory configs share: a task, a small decoder that has seen demonstrations, and GRPO to be changed."""

import ml_collections

# Task -> its spec, supervised steps (enough to be right sometimes, not often), tokens of a completion, with some slack.
TASKS = dict(
  sorting=(dict(name="sorting", length=6, num_symbols=8), 60, 10),
  modular_sum=(dict(name="modular_sum", num_terms=3, modulus=7), 100, 8),
  chain_sum=(dict(name="chain_sum", num_terms=3), 150, 12),
  countdown=(dict(name="countdown"), 150, 12),
  maze=(dict(name="maze"), 150, 16),
  guess_number=(dict(name="guess_number"), 60, None),
  key_door=(dict(name="key_door"), 60, None),
  key_value=(dict(name="key_value"), 60, None),
  requests=(dict(name="requests"), 60, None),
)


def base(task: str) -> ml_collections.ConfigDict:
  """GRPO, four updates a batch; 0.1M parameters, 8 prompts x 8 completions."""
  spec, sft_steps, max_new_tokens = TASKS[task]
  c = ml_collections.ConfigDict()
  c.seed = 0
  c.model = dict(source="tiny", sizes=dict(width=64, num_layers=2, num_heads=2, num_kv_heads=2, mlp_width=128))
  c.task = spec
  c.prompts = dict(per_step=8)
  c.selection = dict(name="uniform")
  if max_new_tokens is None:  # a world, whose turns have lengths of their own
    c.rollout = dict(name="turns", group_size=8, temperature=1.0)
  else:
    c.rollout = dict(name="groups", group_size=8, temperature=1.0, max_new_tokens=max_new_tokens)
  c.rewards = (dict(name="correct", weight=1.0),)
  c.credit = (dict(name="group_normalise", eps=1e-6), dict(name="spread_over_tokens"))
  c.objective = (dict(name="clipped_surrogate", clip_low=0.2, clip_high=0.2),)
  c.reduce = dict(name="sequence_mean")
  c.optimiser = dict(name="adamw", learning_rate=3e-4, schedule="constant", clip_norm=1.0)
  c.train = dict(num_steps=200, num_minibatches=4, report_entropy=False)
  c.eval = dict(every=50, num_prompts=256, num_samples=1)
  c.checkpoint = dict(every=200)
  c.stages = (
    dict(
      kind="sft", train=dict(num_steps=sft_steps, num_minibatches=1), prompts=dict(per_step=64),
      optimiser=dict(learning_rate=3e-3), objective=(dict(name="negative_log_likelihood"),),
      reduce=dict(name="token_mean"),
    ),
    dict(kind="rl"),
  )  # fmt: skip
  return c


def taught(c: ml_collections.ConfigDict, **distill) -> ml_collections.ConfigDict:
  """Stages of a teacher with three times the demonstrations, then of a student that starts anew and is taught by it.

  `distill` are keys of the last stage.
  """
  sft = c.stages[0].to_dict() if hasattr(c.stages[0], "to_dict") else dict(c.stages[0])
  long = sft | dict(save_as="expert", train=sft["train"] | dict(num_steps=3 * sft["train"]["num_steps"]))
  teacher = dict(params="given", expert="expert")
  c.stages = (long, sft | dict(restart=True), dict(kind="distill", views=dict(teacher=teacher), **distill))
  return c
