"""A decoder with heads of its own beside the vocabulary's: a critic, a learned partition function."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int

from rlvr_jax.core import PyTree, check_keys, positions
from rlvr_jax.models.decoder import Decoder
from rlvr_jax.models.heads import ValueHead

TRUNKS = ("own", "shared", "detached")


@dataclasses.dataclass(frozen=True)
class WithHeads:
  """`params` is {"policy": of the decoder, "heads": {name: of the head}} and, for "own" trunks, "trunks": {name: ...}.

  A head named h gives the statistic h["n t"]: its value in the state in which token j is chosen, in column j; a
  categorical one gives h_logits["n t m"] too. Trunks: "own" is a second decoder that starts as a copy of the policy
  (its vocabulary head, where untied, is left out); "shared" reads the policy's last states and trains them;
  "detached" reads them only. The policy's temperature does not touch a head.
  """

  decoder: Decoder
  heads: Mapping[str, ValueHead]
  trunk: str = "own"

  def __post_init__(self):
    check_keys("WithHeads: trunk", [self.trunk], TRUNKS)

  @property
  def config(self):
    return self.decoder.config

  @property
  def dtype(self):
    return self.decoder.dtype

  @property
  def head_names(self) -> tuple[str, ...]:
    """Statistics beyond those of the vocabulary."""
    return (*self.heads, *(f"{name}_logits" for name, head in self.heads.items() if head.logits is not None))

  def _of_trunk(self, tree):
    return {key: value for key, value in tree.items() if key != "head"}

  def wrap(self, params: PyTree, key: Array) -> PyTree:
    """Parameters of a decoder as parameters of this, with new heads. The key is consumed."""
    keys = jax.random.split(key, len(self.heads))
    heads = {name: head.init(k, self.config.width) for (name, head), k in zip(self.heads.items(), keys)}
    out = dict(policy=params, heads=heads)
    if self.trunk == "own":
      out["trunks"] = {name: jax.tree.map(jnp.copy, self._of_trunk(params)) for name in self.heads}
    return out

  def init(self, key: Array) -> PyTree:
    """New parameters; the key is consumed."""
    policy_key, head_key = jax.random.split(key)
    return self.wrap(self.decoder.init(policy_key), head_key)

  def axes(self) -> PyTree:
    out = dict(policy=self.decoder.axes(), heads={name: head.axes() for name, head in self.heads.items()})
    if self.trunk == "own":
      out["trunks"] = {name: self._of_trunk(self.decoder.axes()) for name in self.heads}
    return out

  def head_statistics(
    self, params: PyTree, tokens: Int[Array, "n t"], valid_mask: Bool[Array, "n t"], hidden: Float[Array, "n t d"]
  ) -> dict[str, Any]:
    """Every statistic of `head_names`; `hidden` are the policy's states of the same rows. Column 0 is 0."""
    out = {}
    for name, head in self.heads.items():
      states = hidden
      if self.trunk == "detached":
        states = jax.lax.stop_gradient(hidden)
      if self.trunk == "own":
        states = self.decoder.hidden(params["trunks"][name], tokens, positions(valid_mask), valid_mask)
      value, logits = head.value, head.logits
      if logits is None:
        out[name] = _by_token(value(params["heads"][name], states))
      else:
        scores = logits(params["heads"][name], states)
        out[name], out[f"{name}_logits"] = _by_token(head.decode(scores)), _by_token(scores)
    return out

  # What the sampler and the scoring pass read: the policy's.

  def hidden(self, params, tokens, positions, valid_mask, segment_id=None):
    return self.decoder.hidden(params["policy"], tokens, positions, valid_mask, segment_id)

  def head(self, params) -> Float[Array, "v d"]:
    return self.decoder.head(params["policy"])

  def logits(self, params, hidden) -> Float32[Array, "*s v"]:
    return self.decoder.logits(params["policy"], hidden)

  def init_cache(self, n: int, length: int):
    return self.decoder.init_cache(n, length)

  def extend(self, params, cache, tokens, positions, valid_mask):
    return self.decoder.extend(params["policy"], cache, tokens, positions, valid_mask)


def _by_token(x: Float32[Array, "n t *s"]) -> Float32[Array, "n t *s"]:
  """From the state after a token to the state in which the next one is chosen."""
  return jnp.pad(x[:, :-1], ((0, 0), (1, 0)) + ((0, 0),) * (x.ndim - 2))
