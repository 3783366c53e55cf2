"""From hidden states to per-token statistics through the vocabulary head, a chunk of columns at a time.

The logits of one chunk exist at once, in the forward pass and, recomputed, in the backward pass; `[n t v]` never does.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from rlvr_jax.core.build import check_keys, check_number
from rlvr_jax.core.types import Divergence

CHUNK_LOGITS = 2**26  # logits at once where no chunk length is asked for: 256 MiB in float32


def _log_probs(logits, log_z, tokens):
  # A masked sum rather than a gather: it fuses with the softmax and stays local where the vocabulary is sharded.
  hit = jax.lax.broadcasted_iota(tokens.dtype, logits.shape, logits.ndim - 1) == tokens[..., None]
  return jnp.sum(jnp.where(hit, logits, 0.0), axis=-1) - log_z


def _entropy(logits, log_z, tokens):
  del tokens
  log_p = logits - log_z[..., None]
  p = jnp.exp(log_p)
  return -jnp.sum(p * jnp.where(p > 0, log_p, 0.0), axis=-1)


def _self_certainty(logits, log_z, tokens):
  del tokens
  return log_z - jnp.mean(logits, axis=-1) - math.log(logits.shape[-1])


# Statistic -> function of (logits Float32["n c v"], log of their partition function ["n c"], tokens ["n c"]).
STATISTICS: Mapping[str, Callable] = {
  "log_probs": _log_probs, "entropy": _entropy, "self_certainty": _self_certainty,
}  # fmt: skip


def _columns_per_chunk(num_columns: int, num_rows: int, chunk_tokens: int) -> int:
  """Columns in one chunk: about `chunk_tokens` tokens over the rows, and chunks as equal as they can be."""
  num_chunks = math.ceil(num_columns / max(1, min(num_columns, chunk_tokens // num_rows)))
  return math.ceil(num_columns / num_chunks)


def token_statistics(
  hidden: Float[Array, "n t d"],
  head: Float[Array, "v d"],
  tokens: Int[Array, "n t"],
  *,
  temperature: float = 1.0,
  want: Sequence[str] = ("log_probs",),
  first: int = 1,
  chunk_tokens: int | None = None,
  teachers: Mapping[str, tuple[Array, Array]] = {},
  divergences: Mapping[str, Divergence] = {},
) -> dict[str, Float32[Array, "n t"]]:
  """Statistics of the distribution of token j, p_j = softmax(head · hidden[:, j-1] / temperature), in column j.

    log_probs[:, j]      = log p_j(tokens[:, j])   nats
    entropy[:, j]        = -sum_v p_j(v) log p_j(v)   nats
    self_certainty[:, j] = KL(uniform ‖ p_j)   nats

  The product runs in the dtype of `hidden` and is summed in float32; everything after it is float32. The gradient of
  `head` is summed over chunks in float32 whatever its dtype.

  Args:
    temperature:  divides the logits, as in the sampler.
    want:         names out of `STATISTICS`.
    first:        columns before it are 0 and never meet the head; at least 1, since nothing predicts token 0.
    chunk_tokens: tokens (rows times columns) at once through the head; None: as many as make 2**26 logits.
    teachers:     view -> (its states [n t d'], its head [v d']), aligned with `tokens` and held constant.
    divergences:  more statistics, each of p_j and the distribution of one of `teachers`.

  Raises: ValueError for a name that is not a statistic, for numbers out of range, and for a teacher of another
    vocabulary.
  """
  check_keys("token_statistics", want, STATISTICS)
  check_number("token_statistics: temperature", temperature, above=0)
  if first < 1:
    raise ValueError(f"token_statistics: first must be >= 1, got {first}: nothing predicts column 0")
  if chunk_tokens is None:
    chunk_tokens = max(1, CHUNK_LOGITS // head.shape[0])
  if chunk_tokens < 1:
    raise ValueError(f"token_statistics: chunk_tokens must be >= 1, got {chunk_tokens}")
  for view, (_, teacher_head) in teachers.items():
    if teacher_head.shape[0] != head.shape[0]:
      raise ValueError(
        f"token_statistics: view {view!r} has a vocabulary of {teacher_head.shape[0]}, the policy of {head.shape[0]}"
      )
  rows, length = tokens.shape
  num_columns = length - first
  if num_columns <= 0 or not (want or divergences):
    return {name: jnp.zeros((rows, length), jnp.float32) for name in (*want, *divergences)}
  columns = _columns_per_chunk(num_columns, rows, chunk_tokens)
  num_chunks = math.ceil(num_columns / columns)

  def chunks(x):  # [n t ...] -> [num_chunks n columns ...]: time is split, rows stay on their devices
    x = jnp.pad(x, [(0, 0), (0, num_chunks * columns - num_columns)] + [(0, 0)] * (x.ndim - 2))
    return jnp.moveaxis(x.reshape(rows, num_chunks, columns, *x.shape[2:]), 1, 0)

  teachers = jax.lax.stop_gradient(dict(teachers))
  head = head.astype(jnp.float32)  # so that scan adds its cotangents in float32; the product casts it back

  def logits_of(hidden, head):
    product = jnp.einsum("ncd,vd->ncv", hidden, head.astype(hidden.dtype), preferred_element_type=jnp.float32)
    return product / temperature

  @jax.checkpoint
  def of_chunk(head, hidden, tokens, teacher_hidden):
    logits = logits_of(hidden, head)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    out = {name: STATISTICS[name](logits, log_z, tokens) for name in want}
    for name, (view, fn) in divergences.items():
      out[name] = fn(logits - log_z[..., None], jax.nn.log_softmax(logits_of(teacher_hidden[view], teachers[view][1])))
    return out

  seen = {view: chunks(teacher_hidden[:, first - 1 : -1]) for view, (teacher_hidden, _) in teachers.items()}
  xs = chunks(hidden[:, first - 1 : -1]), chunks(tokens[:, first:]), seen
  _, out = jax.lax.scan(lambda _, x: (None, of_chunk(head, *x)), None, xs)

  def whole(x):
    x = jnp.moveaxis(x, 0, 1).reshape(rows, num_chunks * columns)[:, :num_columns]
    return jnp.pad(x, ((0, 0), (first, 0)))

  return {name: whole(x) for name, x in out.items()}
