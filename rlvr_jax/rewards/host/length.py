"""A reward for staying within a budget of tokens."""

from rlvr_jax.rewards.verdict import Sample, verdict


def length(max_tokens: int, slack: int = 0):
  """reward = clip((max_tokens + slack - num_tokens) / slack, 0, 1): 1 up to `max_tokens`, then linearly down to 0.

  With `slack` 0 it is a step: 1 up to `max_tokens`, else 0. Counts sampled tokens, not characters; reads no answer.
  Status is `ok` while the reward is positive, else `wrong`.

  Ref: the soft overlong punishment of Yu et al., DAPO, arXiv:2503.14476, eq. 13, shifted from [-1, 0] to [0, 1].
  """
  if max_tokens < 1 or slack < 0:
    raise ValueError(f"length needs max_tokens >= 1 and slack >= 0, got max_tokens={max_tokens} slack={slack}")

  def verify(sample: Sample):
    if sample.num_tokens is None:
      raise ValueError("length needs the sample's num_tokens, got None")
    over = sample.num_tokens - max_tokens
    reward = 1.0 if over <= 0 else max(0.0, 1.0 - over / slack) if slack else 0.0
    reason = f"{sample.num_tokens} tokens, {max(over, 0)} over {max_tokens}"
    return verdict(reward, "ok" if reward > 0 else "wrong", reason)

  return verify
