"""Who reads which statistic, and where it comes from: decided when the step is built, where a gap is an error."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlvr_jax.core import STATISTICS, Term, Transform, nearest

ADVANTAGES = "advantages"
BEHAVIOUR = "behaviour.log_probs"
ANCHORS = ("reference",)  # views with frozen parameters of their own


class Plan(NamedTuple):
  current: tuple[str, ...]  # statistics of the policy being differentiated
  old_before: tuple[str, ...]  # statistics of the policy before the update, by a pass of their own
  old_free: tuple[str, ...]  # the same, taken from the first and only update
  anchors: Mapping[str, tuple[str, ...]]  # view -> statistics, by a pass of their own
  every: tuple[str, ...]  # the union of all needs, for display


def make_plan(
  credit: Transform | None,
  objective: Sequence[tuple[str, float, Term]],
  once: bool,
  report: Sequence[str] = (),
  supplied: Sequence[str] = (),
) -> Plan:
  """`once`: one update per rollout. Raises ValueError naming the part whose need nobody supplies, and what there is."""
  views = [f"{view}.{name}" for view in ("old", *ANCHORS) for name in STATISTICS] + [BEHAVIOUR, *supplied]
  of_policy = [*STATISTICS, *views, *([ADVANTAGES] if credit is not None else [])]
  parts = [("credit", credit.needs, views)] if credit is not None else []
  parts += [(f"objective {name!r}", term.needs, of_policy) for name, _, term in objective]
  parts += [("report", report, list(STATISTICS))]
  for label, needs, available in parts:
    for need in needs:
      if need not in available:
        hint = nearest(need, available)
        raise ValueError(f"{label} needs {need!r}, which nothing supplies{hint} There is {available}")

  def named(view, needs):
    return tuple(need.removeprefix(f"{view}.") for need in dict.fromkeys(needs) if need.startswith(f"{view}."))

  for_credit = list(credit.needs) if credit is not None else []
  of_terms = [need for _, _, term in objective for need in term.needs] + list(report)
  every = tuple(dict.fromkeys(for_credit + of_terms))
  for_credit, of_terms = ([need for need in needs if need not in supplied] for needs in (for_credit, of_terms))
  old_before = named("old", for_credit if once else for_credit + of_terms)
  old_free = named("old", of_terms) if once else ()
  current = tuple(dict.fromkeys([*(need for need in of_terms if need in STATISTICS), *old_free]))
  anchors = {view: want for view in ANCHORS if (want := named(view, for_credit + of_terms))}
  return Plan(current, old_before, old_free, anchors, every)
