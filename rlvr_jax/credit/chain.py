"""How transforms are made and combined."""

from collections.abc import Callable, Sequence

from jaxtyping import Array

from rlvr_jax.core import Transform

_SHAPES = {
  "n": (1, "a number per row [n]", "it stands before spread_over_tokens or token_rewards"),
  "n t": (2, "a number per token [n t]", "spread_over_tokens or token_rewards stands before it"),
}


def check_shape(name: str, credit: Array, takes: str) -> None:
  """Raises ValueError when the credit that reaches `name` has not the shape `takes`, "n" or "n t"."""
  rank, wanted, place = _SHAPES[takes]
  if credit.ndim != rank:
    raise ValueError(f"{name} works on {wanted}, got credit of shape {credit.shape}; {place}")


def stateless(
  update: Callable,
  needs: Sequence[str] = (),
  min_group_size: int = 1,
  provides: Sequence[str] = (),
  takes: str | None = None,
) -> Transform:
  """The transform of a function `(credit, rollout) -> credit` that carries nothing from step to step.

  A function that also changes the rollout answers `(credit, rollout)`.

  Args:
    takes: "n" or "n t", the only shape of credit the function is written for; None: it is written for both.

  Raises ValueError, when traced, for credit of another shape, naming the builder in which `update` is defined.
  """
  name = update.__qualname__.split(".")[0]

  def whole(credit, state, rollout):
    if takes is not None:
      check_shape(name, credit, takes)
    out = update(credit, rollout)
    credit, rollout = out if isinstance(out, tuple) else (out, rollout)
    return credit, state, rollout

  return Transform(dict, whole, tuple(needs), min_group_size, tuple(provides))


def chain(*parts: tuple[str, Transform]) -> Transform:
  """One transform out of several, in order. The names key the carried state, so reordering does not scramble a restore.

  What a part needs and an earlier one provides is not a need of the chain.

  Raises ValueError when two parts have the same name.
  """
  names = [name for name, _ in parts]
  if len(set(names)) < len(names):
    raise ValueError(f"credit: the names of a chain must differ, got {names}")
  needs, provides = [], []
  for _, part in parts:
    needs += [need for need in part.needs if need not in provides]
    provides += part.provides

  def update(credit, state, rollout):
    after = {}
    for name, part in parts:
      credit, after[name], rollout = part.update(credit, state[name], rollout)
    return credit, after, rollout

  return Transform(
    init=lambda: {name: part.init() for name, part in parts},
    update=update,
    needs=tuple(dict.fromkeys(needs)),
    min_group_size=max([1, *(part.min_group_size for _, part in parts)]),
    provides=tuple(dict.fromkeys(provides)),
  )
