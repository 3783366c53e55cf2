"""The array types that flow between rooms. Shapes use the axis alphabet of docs/architecture.md."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Shaped

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
  stats: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # Float32["n t"] filled by the scoring pass
  num_groups: int = _static(default=1)
  first_action: int = _static(default=1)  # no row has an action before this column: the vocabulary head skips them

  @property
  def loss_mask(self):
    """Bool["n t"]: action tokens of rows that count. Everything a reducer divides by is counted from this mask."""
    return self.action_mask & self.row_mask[:, None]

  def replace(self, **changes) -> "Rollout":
    return dataclasses.replace(self, **changes)


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
  """One link of the credit chain: `(credit, state, rollout) -> (credit, state)`.

  `credit` enters as the reward `Float["n"]` and leaves the chain as advantages `Float["n t"]`.
  `needs` names the statistics read from `rollout.stats` (see `core.needs`).
  """

  init: Callable[[], PyTree]
  update: Callable[..., tuple[Array, PyTree]]
  needs: tuple[str, ...] = ()
  min_group_size: int = 1


class Term(NamedTuple):
  """One term of the objective, to be minimised.

  `loss(current, rollout, advantages) -> (per_token, metrics)`, where `current` maps each need about the policy being
  differentiated ("log_probs", "entropy") to `Float["n t"]`, `per_token` is `Float["n t"]` and `metrics` maps names to
  `Float["n t"]` that are averaged over the loss mask. Values off the loss mask are ignored, NaN included.
  """

  loss: Callable[..., tuple[Array, Mapping[str, Array]]]
  needs: tuple[str, ...] = ()


class Weights(NamedTuple):
  """What a reducer answers: loss = sum(token * per_token) / total. Both come from masks of the whole batch."""

  token: Any  # Float["n t"]
  total: Any  # Float[""]


Reducer = Callable[[Rollout], Weights]
