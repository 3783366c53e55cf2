"""Who reads which statistic, and where it comes from: decided when the step is built, where a gap is an error."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlvr_jax.core import STATISTICS, Divergence, Term, Transform, check_keys, check_number, nearest

ADVANTAGES = "advantages"
BEHAVIOUR = "behaviour.log_probs"
WHOSE = ("policy", "initial", "ema", "given")


class ViewSpec(NamedTuple):
  """Who a teacher is, and what it reads. A need `view.statistic` is a statistic of this policy in this context.

  params:  "policy": the policy before the update; "initial": as the stage began; "ema": their moving average,
           `decay` of the old and 1 - decay of the new at every step; "given": handed to `TrainStep.init`, an expert or
           a checkpoint.
  context: None: the rows as they were sampled; else the name of one of `rollout.views`, such as a prompt with a hint.
  model:   a model of its own for "given" parameters; None: the policy's.
  """

  params: str = "initial"
  context: str | None = None
  decay: float = 0.99
  model: Any = None


BUILT_IN = {"old": ViewSpec("policy"), "reference": ViewSpec("initial")}


class Plan(NamedTuple):
  current: tuple[str, ...]  # statistics of the policy being differentiated
  before: Mapping[str, tuple[str, ...]]  # view -> statistics by a pass of their own before the update
  old_free: tuple[str, ...]  # statistics of "old" taken from the first and only update
  divergences: Mapping[str, Divergence]  # "term/name" -> evaluated in the update
  views: Mapping[str, ViewSpec]  # those that are read
  every: tuple[str, ...]  # the union of all needs, for display

  def anchors(self) -> dict[str, ViewSpec]:
    """Views with parameters of their own."""
    return {name: view for name, view in self.views.items() if view.params != "policy"}


def check_views(views: Mapping[str, ViewSpec]) -> dict[str, ViewSpec]:
  """The built-in views and these. Raises ValueError for a taken name or a field out of range."""
  for name, view in views.items():
    if name in ("old", "behaviour", "credit") or "." in name:
      raise ValueError(f"a view cannot be called {name!r}")
    check_keys(f"view {name!r}: params", [view.params], WHOSE)
    check_number(f"view {name!r}: decay", view.decay, minimum=0, maximum=1)
    if view.model is not None and view.params != "given":
      raise ValueError(f"view {name!r} has a model of its own, so its params must be 'given', got {view.params!r}")
  return BUILT_IN | dict(views)


def make_plan(
  credit: Transform | None,
  objective: Sequence[tuple[str, float, Term]],
  once: bool,
  report: Sequence[str] = (),
  supplied: Sequence[str] = (),
  views: Mapping[str, ViewSpec] = {},
  head_statistics: Sequence[str] = (),
) -> Plan:
  """`once`: one update per rollout; `head_statistics`: what the model's own heads answer.

  Raises ValueError naming the part whose need nobody supplies, and what there is.
  """
  views = check_views(views)
  own = [*STATISTICS, *head_statistics]
  constant = [f"{view}.{name}" for view in views for name in own] + [BEHAVIOUR, *supplied]
  from_credit = list(credit.provides) if credit is not None else []
  of_policy = [*own, *constant, *from_credit, *([ADVANTAGES] if credit is not None else [])]
  parts = [("credit", credit.needs, constant)] if credit is not None else []
  parts += [(f"objective {name!r}", term.needs, of_policy) for name, _, term in objective]
  parts += [("report", report, own)]
  for label, needs, available in parts:
    for need in needs:
      if need not in available:
        hint = nearest(need, available)
        raise ValueError(f"{label} needs {need!r}, which nothing supplies{hint} There is {available}")
  divergences = {f"{label}/{name}": d for label, _, term in objective for name, d in term.divergences.items()}
  check_keys("divergences: view", [d.view for d in divergences.values()], views)

  def named(view, needs):
    return tuple(need.removeprefix(f"{view}.") for need in dict.fromkeys(needs) if need.startswith(f"{view}."))

  for_credit = list(credit.needs) if credit is not None else []
  of_terms = [need for _, _, term in objective for need in term.needs] + list(report)
  every = (*for_credit, *of_terms, *(f"{d.view}.distribution" for d in divergences.values()))
  for_credit, of_terms = ([need for need in needs if need not in supplied] for needs in (for_credit, of_terms))
  old_free = named("old", of_terms) if once else ()
  current = tuple(dict.fromkeys([*(need for need in of_terms if need in own), *old_free]))
  before = {view: named(view, for_credit + ([] if view == "old" and once else of_terms)) for view in views}
  before = {view: want for view, want in before.items() if want}
  used = {*before, *(d.view for d in divergences.values())}
  read = {name: view for name, view in views.items() if name in used}
  return Plan(current, before, old_free, divergences, read, tuple(dict.fromkeys(every)))
