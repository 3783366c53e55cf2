"""The sampler of turns: the policy acts, a world answers, until it is done.

  padding | prompt | action 0 | observation 0 | action 1 | observation 1 | ... | padding

An action ends with its first stop token, which is part of it, or after `action_tokens`. Observations are read by the
policy and are never actions. Rows are l + max_turns * (action_tokens + observation_tokens) columns wide and have no
gaps: the training pass predicts a token from the column before it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlvr_jax.core import PyTree, Rollout, check_number, positions
from rlvr_jax.rollouts.decode import compute_params, fan_out, left_pad, uniforms_at
from rlvr_jax.rollouts.draws import Filters, check_filters, draw
from rlvr_jax.rollouts.groups import PromptArrays, Sampler, sample_keys
from rlvr_jax.sharding import constrain


class _Context(NamedTuple):
  """What the model has read of each row."""

  hidden: Any  # Float["n d"]  state of the last valid token
  num_tokens: Any  # Int["n"]      valid ones
  cache: Any


class _Columns(NamedTuple):
  """Columns of a row. Off `mask` all but the tokens is 0."""

  tokens: Any  # Int["n t"]
  mask: Any  # Bool["n t"]
  log_probs: Any  # Float32["n t"]
  entropy: Any  # Float32["n t"]  or None
  reward: Any  # Float32["n t"]
  turn_id: Any  # Int["n t"]


def turns(
  model: Any,
  *,
  world_step: Callable[[Any, PyTree, Any, Any], Any],
  world_reset: Callable[[Any], PyTree],
  stop_ids: tuple[int, ...],
  pad_id: int,
  group_size: int,
  max_turns: int,
  action_tokens: int,
  observation_tokens: int,
  temperature: float = 1.0,
  entropy: bool = False,
) -> Sampler:
  """`sample(params, prompts, key, step) -> Rollout` of p * group_size rows, prompt-major; pure, for the caller to jit.

  A sample depends on (key, step, prompt_id, index in group) and the prompt's tokens, and on nothing else of the batch.
  The token in action column c of turn k is drawn with the row's key and index k * action_tokens + c, so that a world of
  one turn is sampled like `groups`.

  The rollout has `turn_id` on the actions and -1 elsewhere, the sum of the turns' rewards as `reward` and as
  rewards["world"], and each turn's reward in stats["turn.reward"] at the last token of its action. A row is `truncated`
  where the world is not done after `max_turns`. A prompt without a valid token is filler: its rows have no turns and
  row_mask False.

  Args:
    model:              has dtype, init_cache, extend and logits (`models.Decoder`).
    world_reset:        `prompt_id -> state` of one row.
    world_step:         `prompt_id, state, action Int["a"], mask Bool["a"]` -> an object with `state`, `observation`
                        Int["o"], `mask` Bool["o"], `reward` of this turn, and `done`; of one row. An action may be
                        empty, that is only a stop token, or lack one. Also called on rows that are done, with a
                        mask all False, for an answer that nothing reads.
    stop_ids:           tokens that end an action.
    pad_id:             written where valid_mask is False; may be one of stop_ids.
    action_tokens:      a: most tokens of one action, its stop token included.
    observation_tokens: o: columns of one observation.
    temperature:        divides the logits; 0 is greedy, a point mass whose log-prob is 0.
    entropy:            adds stats["behaviour.entropy"], of the distribution drawn from, in nats.

  Raises: ValueError for a setting out of range, and when traced for ids beyond the vocabulary, or for observations of
    another width than `observation_tokens`.
  """
  stop_ids = tuple(int(i) for i in stop_ids)
  sizes = dict(group_size=group_size, max_turns=max_turns, action_tokens=action_tokens)
  for name, value in sizes.items():
    check_number(name, value, minimum=1)
  check_number("observation_tokens", observation_tokens, minimum=0)
  for i in (*stop_ids, pad_id):
    check_number("stop_ids and pad_id", i, minimum=0)
  filters = check_filters(Filters(temperature))
  turn = _make_turn(model, world_step, stop_ids, pad_id, action_tokens, observation_tokens, filters, entropy)
  num_columns = max_turns * (action_tokens + observation_tokens)

  def sample(params, prompts, key, step):
    _check(model.head(params).shape[0], stop_ids, pad_id, prompts)
    tokens, valid_mask = left_pad(jnp.asarray(prompts.tokens), jnp.asarray(prompts.valid_mask))
    tokens = constrain(jnp.where(valid_mask, tokens, pad_id).astype(jnp.int32), ("batch", "time"))
    prompt_id = jnp.asarray(prompts.prompt_id)
    fan = lambda x: jnp.repeat(x, group_size, axis=0)
    keys = sample_keys(key, step, prompt_id, group_size)
    params = compute_params(params, model.dtype)
    context = _prefill(model, params, tokens, valid_mask, group_size, num_columns)
    state = jax.tree.map(fan, jax.vmap(world_reset)(prompt_id))
    prompt, rows = (fan(tokens), fan(valid_mask)), fan(prompt_id)
    carry = context, state, context.num_tokens == 0
    body = lambda carry, index: turn(params, keys, rows, carry, index)
    (_, _, done), columns = jax.lax.scan(body, carry, jnp.arange(max_turns))
    return _rollout(*prompt, rows, _without_gaps(columns), done, step, group_size)

  return sample


def _check(vocab_size: int, stop_ids, pad_id: int, prompts: PromptArrays):
  if beyond := [i for i in (*stop_ids, pad_id) if i >= vocab_size]:
    raise ValueError(f"stop_ids and pad_id must be below the vocabulary size {vocab_size}, got {beyond}")
  shape, mask_shape, ids_shape = (jnp.shape(x) for x in prompts)
  if len(shape) != 2 or not all(shape) or mask_shape != shape or ids_shape != shape[:1]:
    raise ValueError(f"prompts must be [p l], [p l], [p] with p and l >= 1, got shapes {shape, mask_shape, ids_shape}")


def _prefill(model, params, tokens, valid_mask, group_size: int, num_columns: int) -> _Context:
  cache = model.init_cache(tokens.shape[0], tokens.shape[1] + num_columns)
  hidden, cache = model.extend(params, cache, tokens, positions(valid_mask), valid_mask)
  num_tokens = jnp.sum(valid_mask, axis=-1, dtype=jnp.int32)
  fan = lambda x: jnp.repeat(x, group_size, axis=0)
  return _Context(fan(hidden[:, -1]), fan(num_tokens), fan_out(cache, group_size))


def _read(model, params, context: _Context, tokens, mask) -> _Context:
  """The context with more columns, of which only those where `mask` count."""
  place = context.num_tokens[:, None] + positions(mask)
  hidden, cache = model.extend(params, context.cache, tokens, place, mask)
  last = jnp.max(jnp.where(mask, jnp.arange(mask.shape[1])[None], 0), axis=-1)
  state = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
  state = jnp.where(jnp.any(mask, axis=-1)[:, None], state, context.hidden)
  return _Context(state, context.num_tokens + jnp.sum(mask, axis=-1, dtype=jnp.int32), cache)


def _make_turn(model, world_step, stop_ids, pad_id, action_tokens, observation_tokens, filters, with_entropy):
  """`turn(params, keys, prompt_id, carry, index) -> (carry, _Columns["n a+o"])`, carry = context, world state, done."""

  def draw_column(params, context, keys, index, live):
    """One token for rows that are `live`, as (tokens, live, log_probs, entropy) of [n]; and which go on after it."""
    logits = constrain(model.logits(params, context.hidden), ("batch", "vocab"))
    tokens, log_probs, entropy = draw(logits, uniforms_at(keys, index), filters, with_entropy)
    tokens = jnp.where(live, tokens, pad_id)
    stops = jnp.any(tokens[:, None] == jnp.asarray(stop_ids, jnp.int32)[None], axis=-1)
    entropy = jnp.where(live, entropy, 0.0) if with_entropy else None
    return (tokens, live, jnp.where(live, log_probs, 0.0), entropy), live & ~stops

  def act(params, context, keys, first, live):
    """An action per row, each of its columns [n a]; and the context, which has yet to read its last column."""

    def next_column(carry, index):
      context, (tokens, mask, *_), live = carry
      context = _read(model, params, context, tokens[:, None], mask[:, None])
      drawn, live = draw_column(params, context, keys, index, live)
      return (context, drawn, live), drawn

    drawn, live = draw_column(params, context, keys, first, live)
    indices = first + jnp.arange(1, action_tokens)
    (context, *_), later = jax.lax.scan(next_column, (context, drawn, live), indices)
    return context, jax.tree.map(lambda x, xs: jnp.concatenate([x[:, None], xs.T], axis=1), drawn, later)

  def answer(prompt_id, state, tokens, mask, live):
    """The world's answer to one row. Its state and reward mean nothing where the row is not live."""
    found = world_step(prompt_id, state, tokens, mask)
    if found.observation.shape != (observation_tokens,) or found.mask.shape != (observation_tokens,):
      shapes = found.observation.shape, found.mask.shape
      raise ValueError(f"world_step must give observations of observation_tokens={observation_tokens}, got {shapes}")
    seen = found.mask & live
    observation = jnp.where(seen, found.observation, pad_id).astype(jnp.int32)
    return found.state, observation, seen, jnp.asarray(found.reward, jnp.float32), ~live | found.done

  def turn(params, keys, prompt_id, carry, index):
    context, state, done = carry
    context, (tokens, mask, log_probs, entropy) = act(params, context, keys, index * action_tokens, ~done)
    state, observation, seen, reward, after = jax.vmap(answer)(prompt_id, state, tokens, mask, ~done)
    beside = lambda left, right: jnp.concatenate([left, right], axis=1)
    context = _read(model, params, context, beside(tokens[:, -1:], observation), beside(mask[:, -1:], seen))
    pad = lambda x, fill=0: jnp.pad(x, ((0, 0), (0, observation_tokens)), constant_values=fill)
    is_last = mask & ~jnp.pad(mask[:, 1:], ((0, 0), (0, 1)))
    columns = _Columns(
      tokens=beside(tokens, observation),
      mask=beside(mask, seen),
      log_probs=pad(log_probs),
      entropy=pad(entropy) if with_entropy else None,
      reward=pad(jnp.where(is_last, reward[:, None], 0.0)),
      turn_id=pad(jnp.where(mask, index, -1), -1),
    )
    return (context, state, after), jax.tree.map(lambda x: constrain(x, ("batch", "time")), columns)

  return turn


def _without_gaps(columns: _Columns) -> _Columns:
  """Columns [turns n a+o] as rows [n t] with all padding behind."""
  flat = lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1)
  order = jnp.argsort(~flat(columns.mask), axis=-1, stable=True)
  return jax.tree.map(lambda x: jnp.take_along_axis(flat(x), order, axis=-1), columns)


def _rollout(tokens, valid_mask, prompt_id, out: _Columns, done, step, group_size: int) -> Rollout:
  n, first_action = tokens.shape
  join = lambda left, right: constrain(jnp.concatenate([left, right], axis=1), ("batch", "time"))
  after_prompt = lambda right, fill=0: join(jnp.full(tokens.shape, fill, right.dtype), right)
  reward = jnp.sum(out.reward, axis=-1)
  stats = {"turn.reward": after_prompt(out.reward)}
  return Rollout(
    tokens=join(tokens, out.tokens),
    valid_mask=join(valid_mask, out.mask),
    action_mask=after_prompt(out.turn_id >= 0),
    turn_id=after_prompt(out.turn_id, -1),
    prompt_id=prompt_id,
    group_id=jnp.repeat(jnp.arange(n // group_size, dtype=jnp.int32), group_size),
    row_mask=jnp.any(valid_mask, axis=-1),
    reward=reward,
    rewards={"world": reward},
    behaviour_log_probs=after_prompt(out.log_probs),
    truncated=~done,
    policy_version=jnp.full((n,), step, jnp.int32),
    stats=stats if out.entropy is None else stats | {"behaviour.entropy": after_prompt(out.entropy)},
    num_groups=n // group_size,
    first_action=first_action,
  )
