"""The array types that flow between rooms. Shapes use the axis alphabet of docs/architecture.md."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

PyTree = Any


def _static(**kwargs):
  return dataclasses.field(metadata=dict(static=True), **kwargs)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rollout:
  """One batch of completions: `n` rows over one token axis `t` that holds the prompt and everything after.

  Every per-token array is indexed by the token it describes. Padding may stand on either side; nothing reads it.
  Optional fields are None until a method fills them; `n`, `t` and `num_groups` are static.
  """

  tokens: Any  # Int["n t"]     the whole row
  valid_mask: Any  # Bool["n t"]    real rather than padding
  action_mask: Any  # Bool["n t"]    sampled by the policy: the only places with credit or gradient
  prompt_id: Any  # Int["n"]       dataset row, stable over epochs
  group_id: Any  # Int["n"]       completions of one prompt in this batch, in [0, num_groups)
  row_mask: Any  # Bool["n"]      False: no verdict (verifier error) or filler; outside group statistics and loss
  reward: Any  # Float32["n"]   weighted sum of the named components; 0 where row_mask is False
  rewards: Mapping[str, Any]  # Float32["n"]   raw named components
  behaviour_log_probs: Any  # Float32["n t"] log mu of the distribution really sampled from; 0 off action_mask
  truncated: Any  # Bool["n"]      ended by the length limit rather than by a stop token
  policy_version: Any  # Int["n"]       optimiser step whose parameters sampled the row
  stats: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # Float32["n t *s"] by the scoring pass and credit
  keep_mask: Any = None  # Bool["n t"]    None: all. False: out of the loss, though still in the group statistics
  answer_id: Any = None  # Int["n"]       equal answers to a prompt have equal ids; -1: no answer could be read
  turn_id: Any = None  # Int["n t"]     which message of the policy a token belongs to; -1 outside
  views: Mapping[str, "View"] = dataclasses.field(default_factory=dict)  # other contexts a teacher reads the rows in
  num_groups: int = _static(default=1)
  first_action: int = _static(default=1)  # no row has an action before this column: the vocabulary head skips them

  @property
  def loss_mask(self):
    """Bool["n t"]: action tokens of rows that count. Everything a reducer divides by is counted from this mask."""
    mask = self.action_mask & self.row_mask[:, None]
    return mask if self.keep_mask is None else mask & self.keep_mask

  def keeping(self, mask: Bool[Array, "n #t"]) -> "Rollout":
    """The rollout whose loss sees only what `mask` keeps as well; group statistics still see every row."""
    return self.replace(keep_mask=self.loss_mask & mask)

  def replace(self, **changes) -> "Rollout":
    return dataclasses.replace(self, **changes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class View:
  """The rows of a rollout in another context, such as a prompt with a hint: what a teacher reads."""

  tokens: Any  # Int["n u"]
  valid_mask: Any  # Bool["n u"]
  take: Any  # Int["n t"]   column of the view that holds a rollout token; -1: it is not there


def make_view(prompt_tokens: Int[Array, "n l"], prompt_mask: Bool[Array, "n l"], rollout: Rollout) -> View:
  """Everything from the rollout's first action on, after another prompt."""
  first, width = rollout.first_action, prompt_tokens.shape[1]
  columns = jnp.arange(rollout.tokens.shape[1])[None, :] - first + width
  present = rollout.valid_mask & (columns >= width)
  return View(
    tokens=jnp.concatenate([prompt_tokens, rollout.tokens[:, first:]], axis=1),
    valid_mask=jnp.concatenate([prompt_mask, rollout.valid_mask[:, first:]], axis=1),
    take=jnp.where(present, columns, -1),
  )


class Stat(NamedTuple):
  """A mean that has not been divided yet, so that microbatches, shards and ragged batches add up exactly."""

  total: Any
  weight: Any

  @classmethod
  def zero(cls) -> "Stat":
    return cls(jnp.zeros(()), jnp.zeros(()))

  @classmethod
  def over(cls, values: Shaped[Array, "..."], mask: Bool[Array, "..."]) -> "Stat":
    """Sum of `values` where `mask`, and how many there are. What stands off the mask, NaN included, is not read."""
    kept = jnp.where(mask, values.astype(jnp.float32), 0.0)
    return cls(jnp.sum(kept), jnp.sum(mask, dtype=jnp.float32))

  def __add__(self, other: "Stat") -> "Stat":
    return Stat(self.total + other.total, self.weight + other.weight)

  __radd__ = None

  def mean(self):
    """total / weight; 0 where nothing was counted."""
    return jnp.where(self.weight > 0, self.total / jnp.where(self.weight > 0, self.weight, 1.0), 0.0)


class Transform(NamedTuple):
  """One link of the credit chain: `(credit, state, rollout) -> (credit, state, rollout)`.

  `credit` enters the chain as the reward `Float["n"]` and leaves it as advantages `Float["n t"]`. Most links change
  the credit alone (`credit.stateless`); one may also narrow the loss (`rollout.keeping`) or add what an objective reads
  (`rollout.stats["credit.*"]`, named in `provides`).
  """

  init: Callable[[], PyTree]
  update: Callable[..., tuple[Array, PyTree, Rollout]]
  needs: tuple[str, ...] = ()  # statistics read from `rollout.stats`
  min_group_size: int = 1
  provides: tuple[str, ...] = ()  # "credit.*" statistics written to `rollout.stats`


class Divergence(NamedTuple):
  """A number per token from two whole next-token distributions, evaluated a chunk at a time: `[n t v]` never is.

  `fn(log_p, teacher_log_p)` maps log-probabilities `Float["n c v"]` to `Float["n c"]`; the teacher's are constant.
  """

  view: str
  fn: Callable[[Array, Array], Array]


class Term(NamedTuple):
  """One term of the objective, to be minimised.

  `loss(current, rollout, advantages) -> (per_token, metrics)`, where `current` maps each need about the policy being
  differentiated ("log_probs", "entropy", "value", the names of `divergences`) to `Float["n t *s"]`, `per_token` is
  `Float["n t"]` and `metrics` maps names to `Float["n t"]` that are averaged over the loss mask (a name that ends in
  `_max`: maximised). Values off the loss mask are ignored, NaN included.
  """

  loss: Callable[..., tuple[Array, Mapping[str, Array]]]
  needs: tuple[str, ...] = ()
  divergences: Mapping[str, Divergence] = {}


class Weights(NamedTuple):
  """What a reducer answers: loss = sum(token * per_token) / total. Both come from masks of the whole batch."""

  token: Any  # Float["n t"]
  total: Any  # Float[""]


Reducer = Callable[[Rollout], Weights]
