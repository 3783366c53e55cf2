"""One table of every part a config can name, read off the code: what it is, formula, source, needs, cost."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import rlvr_jax.credit as credit
import rlvr_jax.objectives as objectives
import rlvr_jax.rewards.graph as graph_rewards
import rlvr_jax.rollouts as rollouts
import rlvr_jax.selection as selection
import rlvr_jax.tasks.graph as graph_tasks
import rlvr_jax.tasks.worlds as worlds
from rlvr_jax.core import Term, Transform, build
from rlvr_jax.objectives import reducers

NOT_PARTS = (
  "chain", "stateless", "PromptArrays", "Refilled", "informative_groups", "join_groups", "merge_groups", "settle",
)  # fmt: skip
GIVEN = ("model", "stop_ids", "pad_id", "num_prompts", "per_step", "world_step", "world_reset")  # not by the config
ROOMS: Mapping[str, ModuleType] = {
  "credit": credit, "objectives": objectives, "objectives.reducers": reducers, "selection": selection,
  "rollouts": rollouts, "rewards.graph": graph_rewards, "tasks.graph": graph_tasks, "tasks.worlds": worlds,
}  # fmt: skip
WITH_FORMULA = ("credit", "objectives", "selection", "objectives.reducers", "rollouts")


class Part(NamedTuple):
  room: str
  name: str
  signature: str
  summary: str
  formula: str
  source: str
  needs: tuple[str, ...]
  cost: str
  configs: tuple[str, ...]  # those that name it


def _docstrings(builder: Any, room: ModuleType) -> tuple[str, str]:
  """(of the builder, or of its module where the module is this one method; of the module)."""
  module = inspect.getmodule(builder)
  public = [n for n in getattr(room, "__all__", ()) if getattr(getattr(room, n), "__module__", "") == module.__name__]
  own, whole = inspect.getdoc(builder) or "", (module.__doc__ or "").strip()
  return (own if len(public) > 1 and own else whole), whole


def _summary(doc: str) -> str:
  return " ".join(doc.split("\n\n")[0].split()).removesuffix(".").split(". ")[0]


def _formula(doc: str) -> str:
  """The first block of indented lines; it starts the paragraph after the summary."""
  for block in doc.split("\n\n")[1:]:
    if block.startswith("  ") and not re.match(r"\s+(Args|Ref|Peers|Differs|Raises)", block):
      return "\n".join(line.strip() for line in block.splitlines())
  return ""


def _source(doc: str) -> str:
  found = re.search(r"^Ref:\s+(.*?)(?=^\S|\Z)", doc, re.MULTILINE | re.DOTALL)
  return " ".join(found.group(1).split()).removesuffix(".") if found else ""


def _table_row(doc: str, name: str) -> str:
  """The second cell of the row about `name` in a table of a docstring."""
  found = re.search(rf"^\| {name} \| (.*?) \|", doc, re.MULTILINE)
  return found.group(1) if found else ""


def cost_of(part: Any) -> str:
  """What a part makes the step do beyond sampling and one update, from what it needs."""
  needs = set(getattr(part, "needs", ()))
  costs = []
  if isinstance(part, Transform):
    costs += ["old pass"] if any(need.startswith("old.") for need in needs) else []
  elif isinstance(part, Term):
    costs += ["old pass, from the second update on"] if any(need.startswith("old.") for need in needs) else []
  views = sorted({need.split(".")[0] for need in needs if "." in need} - {"old", "behaviour", "credit"})
  costs += [f"{view} pass" for view in views]
  if "value" in needs or "old.value" in needs or "log_z" in needs:
    costs.append("a head, and its trunk where it has one")
  for divergence in getattr(part, "divergences", {}).values():
    costs.append(f"{divergence.view} pass in every update, whole vocabulary")
  return "; ".join(costs) or "free"


def specs_in(path: Path) -> Iterator[dict[str, Any]]:
  """Every `dict(name=..., ...)` of literals in a config file."""
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
      named = {k.arg: k.value for k in node.keywords if k.arg}
      if isinstance(named.get("name"), ast.Constant):
        spec = {}
        for key, value in named.items():
          try:
            spec[key] = ast.literal_eval(value)
          except ValueError:
            spec[key] = 8 if key in ("length", "max_tokens") else {"correct": 1.0} if key == "weights" else None
        yield spec


def example_specs(folder: Path) -> dict[str, tuple[dict[str, Any], list[str]]]:
  """Part name -> a spec of it out of the configs, and the configs that have one."""
  found: dict[str, tuple[dict[str, Any], list[str]]] = {}
  for path in sorted(folder.rglob("*.py")):
    label = path.relative_to(folder).with_suffix("").as_posix()
    for spec in specs_in(path):
      _, users = found.setdefault(spec["name"], (spec, []))
      if label not in users:
        users.append(label)
  return found


def parts(configs: Path) -> list[Part]:
  """Every part of every room, in the order of the rooms; credit and objectives are built, to read their needs."""
  examples, out = example_specs(configs), []
  for label, room in ROOMS.items():
    for name in sorted(set(room.__all__) - set(NOT_PARTS)):
      builder = getattr(room, name)
      doc, whole = _docstrings(builder, room)
      spec, users = examples.get(name, (dict(name=name), []))
      spec = {k: v for k, v in spec.items() if k not in ("weight", "label")}
      part = build(room, spec) if label in ("credit", "objectives") else None
      needs = part.needs if part else ()
      needs += tuple(f"{d.view}.distribution" for d in getattr(part, "divergences", {}).values())
      formula = (_formula(doc) or _table_row(whole, name)) if label in WITH_FORMULA else ""
      arguments = [p for p in inspect.signature(builder).parameters.values() if p.name not in GIVEN]
      signature = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in arguments)
      out.append(
        Part(label, name, signature, _summary(doc), formula, _source(doc), needs, cost_of(part), tuple(users))
      )  # fmt: skip
  return out


HEADER = """# Methods

Every part a config can name, read off the code by `experiments/methods.py`; do not edit. Cost is what a part adds to
sampling and one update: `free`; an `old pass`, a forward pass of the policy before its update (parts share one);
a pass of another view; a head. A builder of your own is named `package.module:builder`.
"""


def _cell(text: str) -> str:
  return text.replace("|", "\\|").replace("\n", " ")


def _code(formula: str) -> str:
  """Lines of a formula as code that a table can hold."""
  lines = [" ".join(line.replace("`", "").split()) for line in formula.splitlines()]
  return "<br>".join(f"`{_cell(line)}`" for line in lines)


def _users(configs: Sequence[str]) -> str:
  more = f" and {len(configs) - 3} more" if len(configs) > 3 else ""
  return ", ".join(f"`{c}`" for c in configs[:3]) + more


def to_markdown(rows: Sequence[Part]) -> str:
  lines = [HEADER]
  for room in dict.fromkeys(row.room for row in rows):
    mine = [row for row in rows if row.room == room]
    has_formula, has_needs = any(r.formula for r in mine), room in ("credit", "objectives")
    head = ["name", "what", *["formula"] * has_formula, "source", *["needs", "cost"] * has_needs, "configs"]
    lines += [f"## `{room}`", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for r in mine:
      cells = [f"`{r.name}({r.signature})`", _cell(r.summary), *[_code(r.formula)] * has_formula, _cell(r.source)]
      cells += [", ".join(f"`{n}`" for n in r.needs), r.cost] if has_needs else []
      lines.append(f"| {' | '.join([*cells, _users(r.configs)])} |")
    lines.append("")
  return "\n".join(lines).rstrip() + "\n"
