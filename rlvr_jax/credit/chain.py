"""How transforms are made and combined."""

from collections.abc import Callable, Sequence

from rlvr_jax.core import Transform


def stateless(update: Callable, needs: Sequence[str] = (), min_group_size: int = 1) -> Transform:
  """The transform of a function `(credit, rollout) -> credit` that carries nothing from step to step."""
  return Transform(
    init=dict,
    update=lambda credit, state, rollout: (update(credit, rollout), state),
    needs=tuple(needs),
    min_group_size=min_group_size,
  )


def chain(*parts: tuple[str, Transform]) -> Transform:
  """One transform out of several, in order. The names key the carried state, so reordering does not scramble a restore.

  Raises ValueError when two parts have the same name.
  """
  names = [name for name, _ in parts]
  if len(set(names)) < len(names):
    raise ValueError(f"credit: the names of a chain must differ, got {names}")

  def update(credit, state, rollout):
    after = {}
    for name, part in parts:
      credit, after[name] = part.update(credit, state[name], rollout)
    return credit, after

  return Transform(
    init=lambda: {name: part.init() for name, part in parts},
    update=update,
    needs=tuple(dict.fromkeys(need for _, part in parts for need in part.needs)),
    min_group_size=max([1, *(part.min_group_size for _, part in parts)]),
  )
