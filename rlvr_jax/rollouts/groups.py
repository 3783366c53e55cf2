"""The sampler of groups: every prompt of a batch answered `group_size` times."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from rlvr_jax.core import PyTree, Rollout
from rlvr_jax.rollouts.decode import left_pad, make_decode
from rlvr_jax.rollouts.draws import Filters, check_filters
from rlvr_jax.sharding import constrain


class PromptArrays(NamedTuple):
  """A batch of prompts padded to one length, on either side. Each length (bucket) is one more compile."""

  tokens: Any  # Int["p l"]
  valid_mask: Any  # Bool["p l"]
  prompt_id: Any  # Int["p"]   dataset row, stable over epochs


Sampler = Callable[[PyTree, PromptArrays, Array, Any], Rollout]


def sample_keys(key: Array, step: int | Int[Array, ""], prompt_id: Int[Array, "p"], group_size: int) -> Array:
  """One key per row, prompt-major: fold_in(fold_in(fold_in(key, step), prompt_id), index in group)."""
  at_step = jax.random.fold_in(key, step)
  of_prompt = jax.vmap(jax.random.fold_in, (None, 0))(at_step, prompt_id)
  of_sample = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(of_prompt, jnp.arange(group_size))
  return of_sample.reshape(prompt_id.shape[0] * group_size, *of_sample.shape[2:])


def _check_sizes(stop_ids, pad_id, group_size, max_new_tokens):
  if group_size < 1:
    raise ValueError(f"group_size must be >= 1, got {group_size}")
  if max_new_tokens < 1:
    raise ValueError(f"max_new_tokens must be >= 1, got {max_new_tokens}")
  if pad_id < 0 or any(i < 0 for i in stop_ids):
    raise ValueError(f"token ids must be >= 0, got stop_ids={stop_ids} and pad_id={pad_id}")


def _check_prompts(prompts: PromptArrays):
  shape, mask_shape, ids_shape = (jnp.shape(x) for x in prompts)
  if len(shape) != 2 or not all(shape):
    raise ValueError(f"prompts.tokens must be [p, l] with p and l >= 1, got shape {shape}")
  if mask_shape != shape or ids_shape != shape[:1]:
    raise ValueError(
      f"prompts of shape {shape} need a valid_mask of that shape and one prompt_id each, "
      f"got shapes {mask_shape} and {ids_shape}"
    )


def groups(
  model: Any,
  *,
  stop_ids: tuple[int, ...],
  pad_id: int,
  group_size: int,
  max_new_tokens: int,
  temperature: float = 1.0,
  top_k: int | None = None,
  top_p: float | None = None,
  min_p: float | None = None,
  entropy: bool = False,
  early_exit: bool = True,
) -> Sampler:
  """`sample(params, prompts, key, step) -> Rollout` of p * group_size rows, prompt-major; pure, for the caller to jit.

  A sample depends on (key, step, prompt_id, index in group) and the prompt's tokens, and on nothing else of the batch:
  not its order, size, padding or devices. So a prompt that stands twice in a batch gets the same samples twice.

  The rollout has the prompts, left-padded, in columns [0, l) and the completions in [l, l + max_new_tokens); rewards
  are empty. `behaviour_log_probs` are of the distribution drawn from, temperature and filters included. A completion
  ends with its first stop token, which counts as an action, or is `truncated`. A prompt without a valid token is
  filler: its rows have no actions and row_mask False.

  Args:
    model:       has dtype, init_cache, extend and logits (`models.Decoder`).
    stop_ids:    tokens that end a completion; none: all have max_new_tokens tokens and are truncated.
    pad_id:      written where valid_mask is False; may be one of stop_ids.
    temperature: divides the logits; 0 is greedy, a point mass whose log-prob is 0.
    top_k:       keeps the k likeliest tokens. None is off, here and below.
    top_p:       of these, the likeliest whose mass reaches it.
    min_p:       of these, those at least min_p times as likely as the likeliest.
    entropy:     adds stats["behaviour.entropy"], of the distribution drawn from, in nats.
    early_exit:  stops once every row has; changes no number. False under `vmap`, where a loop of unknown length would
                 copy its whole carry at every step.

  Raises: ValueError for a setting out of range, and when traced for ids or a top_k beyond the vocabulary.
  """
  stop_ids = tuple(int(i) for i in stop_ids)
  _check_sizes(stop_ids, pad_id, group_size, max_new_tokens)
  filters = check_filters(Filters(temperature, top_k, top_p, min_p))
  decode = make_decode(model, stop_ids, group_size, max_new_tokens, filters, entropy, early_exit)

  def sample(params, prompts, key, step):
    _check_prompts(prompts)
    vocab_size = model.head(params).shape[0]
    if beyond := [i for i in (*stop_ids, pad_id) if i >= vocab_size]:
      raise ValueError(f"stop_ids and pad_id must be below the vocabulary size {vocab_size}, got {beyond}")
    tokens, valid_mask = left_pad(jnp.asarray(prompts.tokens), jnp.asarray(prompts.valid_mask))
    tokens = constrain(jnp.where(valid_mask, tokens, pad_id).astype(jnp.int32), ("batch", "time"))
    prompt_id = jnp.asarray(prompts.prompt_id)
    out = decode(params, tokens, valid_mask, sample_keys(key, step, prompt_id, group_size))
    return _rollout(tokens, valid_mask, prompt_id, out, step)

  def _rollout(tokens, valid_mask, prompt_id, out, step):
    fan = lambda x: jnp.repeat(x, group_size, axis=0)
    prompt_tokens, prompt_valid = fan(tokens), fan(valid_mask)
    join = lambda left, right: constrain(jnp.concatenate([left, right], axis=1), ("batch", "time"))
    blank = jnp.zeros(prompt_tokens.shape, jnp.float32)
    n = prompt_tokens.shape[0]
    return Rollout(
      tokens=join(prompt_tokens, jnp.where(out.mask, out.tokens, pad_id)),
      valid_mask=join(prompt_valid, out.mask),
      action_mask=join(blank.astype(bool), out.mask),
      prompt_id=fan(prompt_id),
      group_id=fan(jnp.arange(tokens.shape[0], dtype=jnp.int32)),
      row_mask=jnp.any(prompt_valid, axis=-1),
      reward=jnp.zeros((n,), jnp.float32),
      rewards={},
      behaviour_log_probs=join(blank, out.log_probs),
      truncated=~out.done,
      policy_version=jnp.full((n,), step, jnp.int32),
      stats={"behaviour.entropy": join(blank, out.entropy)} if entropy else {},
      num_groups=tokens.shape[0],
      first_action=tokens.shape[1],
    )

  return sample
