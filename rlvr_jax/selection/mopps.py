"""MoPPS: a Beta posterior of every prompt's success rate; a sample of it close to the target makes the batch.

  p̃_x ~ Beta(α_x, β_x)   for the candidates x;   propose the per_step with the smallest |p̃_x - p*|
  α_x ← λ α_x + (1-λ) α_0 + S_x,   β_x ← λ β_x + (1-λ) β_0 + F_x   for the prompts observed

S and F are the correct and the wrong completions among those with a verdict. The discount λ forgets old evidence, as
the policy that gave it is gone; λ = 1 keeps all of it. Prompts without a verdict keep their posterior.

Differs: Candidates are drawn anew at every step, where the paper reads them from a shuffled epoch. A prompt proposed
         again before it was observed twice pools its counts.
Peers:   the authors' code has λ 1, priors 1, p* 0.5 and 16 candidates per prompt of a batch.
Ref:     Qu et al., Can Prompt Difficulty be Online Predicted for Accelerating RL Finetuning of Reasoning Models?
         (MoPPS), arXiv:2507.04632.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlvr_jax.core import check_number
from rlvr_jax.selection.order import order_of, permuted
from rlvr_jax.selection.types import Selection, check_sizes


class Posterior(NamedTuple):
  """Of the success rate of every prompt."""

  alpha: Any  # Float32["num_prompts"]
  beta: Any  # Float32["num_prompts"]


def mopps(
  num_prompts: int,
  per_step: int,
  num_candidates: int | None = None,
  target: float = 0.5,
  decay: float = 1.0,
  prior_a: float = 1.0,
  prior_b: float = 1.0,
) -> Selection:
  """Args:
  num_candidates: prompts whose posterior is sampled at a step, at least per_step; None: all of the pool.
  target:         p*.
  decay:          λ, per observation of a prompt.
  prior_a:        α_0.
  prior_b:        β_0.
  """
  check_sizes("mopps", num_prompts, "per_step", per_step)
  if num_candidates is not None and not per_step <= num_candidates <= num_prompts:
    raise ValueError(
      f"mopps: num_candidates must be in [per_step = {per_step}, num_prompts = {num_prompts}], got {num_candidates}"
    )
  check_number("mopps: target", target, minimum=0, maximum=1)
  check_number("mopps: decay", decay, minimum=0, maximum=1)
  check_number("mopps: prior_a", prior_a, above=0)
  check_number("mopps: prior_b", prior_b, above=0)

  def init():
    full = lambda value: jnp.full((num_prompts,), value, jnp.float32)
    return Posterior(full(prior_a), full(prior_b))

  def propose(state, key):
    candidate_key, beta_key = jax.random.split(key)
    candidates = jnp.arange(num_prompts if num_candidates is None else num_candidates)
    if num_candidates is not None:
      candidates = permuted(candidates, order_of(candidate_key), num_prompts)
    rate = jax.random.beta(beta_key, state.alpha[candidates], state.beta[candidates])
    _, nearest = jax.lax.top_k(-jnp.abs(rate - target), per_step)
    return candidates[nearest], state

  def observe(state, index, num_correct, num_judged):
    pooled = lambda counts: jnp.zeros((num_prompts,), jnp.float32).at[index].add(counts)
    correct, judged = pooled(num_correct), pooled(num_judged)
    discount = lambda old, prior, new: jnp.where(judged > 0, decay * old + (1 - decay) * prior + new, old)
    return Posterior(discount(state.alpha, prior_a, correct), discount(state.beta, prior_b, judged - correct))

  return Selection(init, propose, observe, per_step)
