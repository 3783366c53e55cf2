"""The sampler against the train step's log-probs, and against itself under every batch layout."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import rollouts, sharding
from rlvr_jax.core import build, positions, token_statistics
from rlvr_jax.models import Decoder, tiny_config
from rlvr_jax.rollouts import PromptArrays, groups
from rlvr_jax.rollouts.decode import compute_params, make_decode
from rlvr_jax.rollouts.draws import Filters, processed_log_probs
from rlvr_jax.rollouts.groups import sample_keys

VOCAB, PAD, STOPS, GROUP, NEW = 48, 0, (3, 5, 7, 11), 3, 8
CONFIG = tiny_config(VOCAB, width=32, num_layers=2, num_heads=4, num_kv_heads=2, mlp_width=48, tie_embeddings=False)
MODEL = Decoder(CONFIG)
LENGTHS = (5, 2, 6, 1)


@functools.cache
def _params():
  """Random weights with a head of larger scale, so that the distributions are not flat."""
  params = MODEL.init(jax.random.key(0))
  return params | dict(head=dict(weight=params["head"]["weight"] * 1.5))


@functools.cache
def _sampler(**changes):
  settings = dict(stop_ids=STOPS, pad_id=PAD, group_size=GROUP, max_new_tokens=NEW, temperature=0.7, entropy=True)
  settings |= changes
  return jax.jit(groups(settings.pop("model", MODEL), **settings))


def _prompts(rows=range(4), width=6, side="left", garbage=0):
  """Rows of mixed lengths; row i always has the same tokens, whatever the batch."""
  tokens, valid = np.full((len(rows), width), garbage, np.int32), np.zeros((len(rows), width), bool)
  for out, row in enumerate(rows):
    at = slice(width - LENGTHS[row], None) if side == "left" else slice(0, LENGTHS[row])
    tokens[out, at] = np.random.default_rng(row).integers(12, VOCAB, LENGTHS[row])
    valid[out, at] = True
  return PromptArrays(jnp.asarray(tokens), jnp.asarray(valid), jnp.asarray(100 + np.asarray(rows), jnp.int32))


def _sample(prompts, params=None, key=1, step=4, **changes):
  return _sampler(**changes)(_params() if params is None else params, prompts, jax.random.key(key), step)


def _completions(rollout):
  """{(prompt_id, index in group): (tokens, mask, log_probs, truncated)} of the completion columns."""
  first, seen, found = rollout.first_action, {}, {}
  for i, prompt_id in enumerate(np.asarray(rollout.prompt_id)):
    index = seen[prompt_id] = seen.get(prompt_id, -1) + 1
    columns = (rollout.tokens, rollout.action_mask, rollout.behaviour_log_probs)
    found[int(prompt_id), index] = (*(np.asarray(x)[i, first:] for x in columns), bool(rollout.truncated[i]))
  return found


def _assert_same(some, among):
  some, among = _completions(some), _completions(among)
  for name, (tokens, mask, log_probs, truncated) in some.items():
    np.testing.assert_array_equal(tokens, among[name][0])
    np.testing.assert_array_equal(mask, among[name][1])
    np.testing.assert_allclose(log_probs, among[name][2], atol=1e-5)
    assert truncated == among[name][3]


@functools.cache
def _base():
  return _sample(_prompts())


@functools.partial(jax.jit, static_argnames="model")
def _trained(params, rollout, model=MODEL):
  """What the train step computes at temperature 0.7, and the logits behind it, all [n t ...] by the token described."""
  hidden = model.hidden(params, rollout.tokens, positions(rollout.valid_mask), rollout.valid_mask)
  want = dict(temperature=0.7, want=("log_probs", "entropy"))
  found = token_statistics(hidden, model.head(params), rollout.tokens, **want)
  return found | dict(logits=jnp.roll(model.logits(params, hidden), 1, axis=1))


@pytest.mark.parametrize("side", ["left", "right"])
def test_log_probs_equal_those_of_the_train_step(side):
  rollout = _sample(_prompts(side=side))
  trained = _trained(_params(), rollout)
  mask = np.asarray(rollout.action_mask)
  assert mask.sum() > 30 and len(set(np.asarray(rollout.valid_mask).sum(1))) > 3
  np.testing.assert_allclose(rollout.behaviour_log_probs[mask], trained["log_probs"][mask], atol=1e-4)
  np.testing.assert_allclose(rollout.stats["behaviour.entropy"][mask], trained["entropy"][mask], atol=1e-4)
  assert not np.asarray(rollout.behaviour_log_probs)[~mask].any()
  assert not np.asarray(rollout.stats["behaviour.entropy"])[~mask].any()


def test_bfloat16_log_probs_are_near_those_of_the_train_step():
  model = dataclasses.replace(MODEL, dtype="bfloat16")
  rollout = _sample(_prompts(), model=model)
  trained = _trained(_params(), rollout, model)
  mask = np.asarray(rollout.action_mask)
  error = np.abs(rollout.behaviour_log_probs[mask] - trained["log_probs"][mask])
  assert error.max() < 0.15 and error.mean() < 0.02


def test_casting_the_weights_once_changes_no_bit():
  """With norm weights that bfloat16 cannot hold, so that a cast of them would show."""
  config = dataclasses.replace(CONFIG, qk_norm="head", norm_placement="both")
  model = Decoder(config, dtype="bfloat16")
  in_norm = lambda path: "norm" in jax.tree_util.keystr(path)
  params = jax.tree_util.tree_map_with_path(
    lambda path, x: x * 1.003 if in_norm(path) else x, model.init(jax.random.key(0))
  )
  cast = compute_params(params, "bfloat16")
  for path, x in jax.tree_util.tree_leaves_with_path(cast):
    assert x.dtype == (jnp.float32 if in_norm(path) else jnp.bfloat16), path
  prompts = _prompts()
  hidden = jax.jit(lambda p: model.hidden(p, prompts.tokens, positions(prompts.valid_mask), prompts.valid_mask))
  np.testing.assert_array_equal(hidden(params).astype(jnp.float32), hidden(cast).astype(jnp.float32))


def test_filtered_log_probs_are_of_the_renormalised_distribution():
  filters = Filters(0.8, top_k=10, top_p=0.9, min_p=0.02)
  rollout = _sample(_prompts(), **filters._asdict())
  mask = np.asarray(rollout.action_mask)
  log_probs = np.asarray(processed_log_probs(_trained(_params(), rollout)["logits"][mask], filters))
  np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, atol=1e-5)
  picked = np.take_along_axis(log_probs, np.asarray(rollout.tokens)[mask][:, None], -1)[:, 0]
  np.testing.assert_allclose(rollout.behaviour_log_probs[mask], picked, atol=1e-4)


def test_rows_may_be_permuted_and_split():
  _assert_same(_sample(_prompts((2, 0, 3, 1))), _base())
  _assert_same(_sample(_prompts((1, 3))), _base())


@pytest.mark.parametrize("changes", [dict(width=11), dict(side="right"), dict(garbage=17)], ids=str)
def test_padding_does_not_matter(changes):
  _assert_same(_sample(_prompts(**changes)), _base())


def test_nan_embedding_of_padding_is_not_read():
  """Token 1 stands only in padding. Its embedding must be nobody's business; the head is another matrix."""
  assert not (np.asarray(_base().tokens) == 1).any()
  poisoned = _params() | dict(embed=dict(weight=_params()["embed"]["weight"].at[1].set(jnp.nan)))
  _assert_same(_sample(_prompts(garbage=1), poisoned), _base())


def test_group_size_does_not_change_the_first_samples():
  _assert_same(_base(), _sample(_prompts(), group_size=5))


def test_keys_follow_the_contract_and_are_distinct():
  keys = sample_keys(jax.random.key(9), 4, jnp.asarray([7, 2]), 3)
  fold = jax.random.fold_in
  expected = fold(fold(fold(jax.random.key(9), 4), 2), 1)
  np.testing.assert_array_equal(jax.random.key_data(keys[4]), jax.random.key_data(expected))
  assert len({tuple(k) for k in np.asarray(jax.random.key_data(keys)).tolist()}) == 6


def test_samples_of_a_group_and_of_steps_differ():
  found = _completions(_sample(_prompts(), stop_ids=()))
  assert len({tuple(v[0]) for v in found.values()}) == len(found)
  assert not np.array_equal(_base().tokens, _sample(_prompts(), step=5).tokens)
  assert not np.array_equal(_base().tokens, _sample(_prompts(), key=2).tokens)
  _assert_same(_sample(_prompts()), _base())


def test_eight_devices_give_the_samples_of_one():
  prompts = _prompts((0, 1, 2, 3, 0, 1, 2, 3))._replace(prompt_id=jnp.arange(8))
  one = _sample(prompts)
  mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
  params = sharding.place(mesh, _params(), MODEL.axes())
  settings = dict(stop_ids=STOPS, pad_id=PAD, group_size=GROUP, max_new_tokens=NEW, temperature=0.7)
  with jax.set_mesh(mesh):
    sampler = jax.jit(groups(MODEL, **settings))
    many = sampler(params, sharding.place(mesh, prompts, ("batch", "time")), jax.random.key(1), 4)
  assert len(many.tokens.sharding.device_set) == 8 and not many.tokens.sharding.is_fully_replicated
  _assert_same(many, one)


def test_layout_of_the_rollout():
  rollout = _base()
  n, first = 4 * GROUP, 6
  assert (rollout.num_groups, rollout.first_action, rollout.tokens.shape) == (4, first, (n, first + NEW))
  np.testing.assert_array_equal(rollout.prompt_id, np.repeat([100, 101, 102, 103], GROUP))
  np.testing.assert_array_equal(rollout.group_id, np.repeat(np.arange(4), GROUP))
  np.testing.assert_array_equal(rollout.tokens[:, :first], np.repeat(_prompts().tokens, GROUP, axis=0))
  np.testing.assert_array_equal(rollout.valid_mask[:, :first], np.repeat(_prompts().valid_mask, GROUP, axis=0))
  assert not rollout.action_mask[:, :first].any()
  np.testing.assert_array_equal(rollout.valid_mask[:, first:], rollout.action_mask[:, first:])
  np.testing.assert_array_equal(rollout.policy_version, np.full(n, 4))
  assert rollout.row_mask.all() and not rollout.reward.any() and rollout.rewards == {}
  assert all(x.dtype == jnp.int32 for x in (rollout.tokens, rollout.prompt_id, rollout.group_id))


@pytest.mark.parametrize("pad_id", [None, STOPS[0]], ids=["own pad", "pad is a stop token"])
def test_a_completion_ends_with_its_first_stop_token(pad_id):
  rollout, pad_id = (_base(), PAD) if pad_id is None else (_sample(_prompts(), pad_id=pad_id), pad_id)
  stopped = 0
  for tokens, mask, _, truncated in _completions(rollout).values():
    stops = np.flatnonzero(np.isin(tokens, STOPS) & mask)
    length = int(mask.sum())
    assert mask[:length].all() and length >= 1
    assert (tokens[length:] == pad_id).all()
    assert truncated == (len(stops) == 0)
    assert length == (NEW if truncated else stops[0] + 1)
    stopped += not truncated
  assert 0 < stopped < 4 * GROUP
  assert len({int(v[0][v[1]][-1]) for v in _completions(rollout).values() if not v[3]}) > 1  # several of the ids


def test_a_stop_token_at_the_last_column_is_not_truncation():
  longer = _completions(_base())
  length = min(int(mask.sum()) for _, mask, _, truncated in longer.values() if not truncated)
  shorter = _completions(_sample(_prompts(), max_new_tokens=length))
  for name, (tokens, mask, _, truncated) in shorter.items():
    np.testing.assert_array_equal(tokens[mask], longer[name][0][:length][longer[name][1][:length]])
    assert truncated == (longer[name][1].sum() > length or longer[name][3])
  assert not all(v[3] for v in shorter.values())


def test_without_stop_tokens_everything_is_truncated():
  rollout = _sample(_prompts(), stop_ids=())
  assert rollout.truncated.all() and rollout.action_mask[:, 6:].all()


def test_greedy_follows_the_argmax_and_has_log_prob_zero():
  rollout = _sample(_prompts(), temperature=0.0)
  mask = np.asarray(rollout.action_mask)
  best = np.argmax(_trained(_params(), rollout)["logits"][mask], -1)
  np.testing.assert_array_equal(np.asarray(rollout.tokens)[mask], best)
  assert not rollout.behaviour_log_probs.any() and not rollout.stats["behaviour.entropy"].any()


class _Counted:
  """A decoder that counts, on the host, how often it is run."""

  def __init__(self):
    self.calls = []

  def __getattr__(self, name):
    return getattr(MODEL, name)

  def extend(self, params, cache, tokens, positions, valid_mask):
    jax.debug.callback(lambda: self.calls.append(tokens.shape))
    return MODEL.extend(params, cache, tokens, positions, valid_mask)


def _num_passes(stop_ids):
  model = _Counted()
  rollout = jax.jit(groups(model, stop_ids=stop_ids, pad_id=PAD, group_size=GROUP, max_new_tokens=NEW))(
    _params(), _prompts(), jax.random.key(1), 4
  )
  jax.block_until_ready(rollout)
  jax.effects_barrier()
  return model.calls, int(rollout.action_mask.sum(1).max())


def test_prompts_are_read_once_and_the_loop_ends_with_the_last_row():
  calls, longest = _num_passes(tuple(range(VOCAB)))
  assert calls == [(4, 6)] and longest == 1  # 4 prompts, not 12 rows, and no step after the first token
  calls, longest = _num_passes(tuple(range(0, VOCAB, 2)))
  assert 1 < longest < NEW and calls == [(4, 6)] + [(12, 1)] * (longest - 1)


def test_a_prompt_without_tokens_is_filler():
  prompts = _prompts()
  empty = prompts._replace(valid_mask=prompts.valid_mask.at[1].set(False))
  rollout = _sample(empty)
  filler = np.asarray(rollout.group_id) == 1
  np.testing.assert_array_equal(rollout.row_mask, ~filler)
  assert not rollout.action_mask[filler].any() and not rollout.truncated[filler].any()
  assert np.isfinite(rollout.behaviour_log_probs).all()
  kept, base = _completions(rollout), _completions(_base())
  for name in kept:
    if name[0] != 101:
      np.testing.assert_array_equal(kept[name][0], base[name][0])


def test_one_compile_per_shape():
  widths = lambda *sizes: [_sample(_prompts(width=width), step=width, key=width) for width in sizes]
  widths(6, 11)
  before = _sampler()._cache_size()
  widths(11, 6)
  _sample(_prompts((3, 0, 1, 1)), step=9)
  assert _sampler()._cache_size() == before


def test_the_cache_is_no_longer_than_what_is_read():
  decode = make_decode(MODEL, STOPS, GROUP, NEW, Filters(), False)
  prompts = _prompts()
  jaxpr = str(jax.make_jaxpr(decode)(
    _params(), prompts.tokens, prompts.valid_mask, sample_keys(jax.random.key(0), 0, prompts.prompt_id, GROUP)
  ))  # fmt: skip
  assert f"[2,{4 * GROUP},{6 + NEW - 1},2,8]" in jaxpr and f"[2,{4 * GROUP},{6 + NEW},2,8]" not in jaxpr


@pytest.mark.parametrize(
  "bad, message",
  [
    (dict(group_size=0), "group_size must be >= 1, got 0"),
    (dict(max_new_tokens=0), "max_new_tokens must be >= 1, got 0"),
    (dict(stop_ids=(-1,)), "must be >= 0"),
    (dict(pad_id=-1), "must be >= 0"),
    (dict(temperature=-1.0), "temperature must be"),
    (dict(top_p=1.5), "top_p must be"),
    (dict(min_p=1.0), "min_p must be"),
    (dict(top_k=0), "top_k must be"),
  ],
)
def test_bad_settings_raise_when_built(bad, message):
  with pytest.raises(ValueError, match=message):
    groups(MODEL, **(dict(stop_ids=STOPS, pad_id=PAD, group_size=2, max_new_tokens=2) | bad))


def test_ids_and_shapes_are_checked_when_traced():
  sample = groups(MODEL, stop_ids=(VOCAB,), pad_id=PAD, group_size=1, max_new_tokens=1)
  with pytest.raises(ValueError, match=r"below the vocabulary size 48, got \[48\]"):
    jax.eval_shape(sample, _params(), _prompts(), jax.random.key(0), 0)
  sample = groups(MODEL, stop_ids=STOPS, pad_id=PAD, group_size=1, max_new_tokens=1)
  with pytest.raises(ValueError, match="one prompt_id each"):
    jax.eval_shape(sample, _params(), _prompts()._replace(prompt_id=jnp.arange(3)), jax.random.key(0), 0)


def test_the_room_builds_it_from_a_spec():
  spec = dict(name="groups", group_size=2, max_new_tokens=1, temperature=0.5)
  build(rollouts, spec, model=MODEL, stop_ids=STOPS, pad_id=PAD)
  with pytest.raises(ValueError, match="did you mean 'temperature'"):
    build(rollouts, spec | dict(temprature=1.0), model=MODEL, stop_ids=STOPS, pad_id=PAD)
