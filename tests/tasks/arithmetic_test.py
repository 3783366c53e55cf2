"""The embedded task: right answers, demonstrations worked by hand, a split that is disjoint and stable."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_jax.core import build
from rlvr_jax.tasks import text
from rlvr_jax.tasks.text import arithmetic
from rlvr_jax.tasks.text.arithmetic import _columns, _running
from rlvr_jax.tasks.types import is_held_out

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("knobs", [dict(), dict(num_terms=4, num_digits=3, operators="+-", demonstration="running")])
def test_reference_is_the_result(knobs):
  task = arithmetic(num_train=300, num_eval=50, **knobs)
  num_terms, num_digits = knobs.get("num_terms", 2), knobs.get("num_digits", 2)
  for example in (*task.train, *task.eval):
    expression = example.prompt.removesuffix("=")
    assert example.prompt.endswith("=") and str(eval(expression)) == example.reference
    terms = expression.replace("-", "+").split("+")
    assert len(terms) == num_terms and all(len(term) <= num_digits for term in terms)
    assert example.demonstration.split(";")[-1] == example.reference
  assert any("-" in e.prompt for e in task.train) == ("-" in knobs.get("operators", "+"))


def test_demonstrations_by_hand():
  assert _columns((17, 25), "+") == "7+5=12;1+2+1=4;42"
  assert _columns((97, 25), "+") == "7+5=12;9+2+1=12;122"
  assert _columns((5, 100, 7), "++") == "5+0+7=12;0+1=1;1=1;112"
  assert _columns((0, 0), "+") == "0+0=0;0"
  assert _running((17, 25, 1), "+-") == "42;41"
  assert _running((3, 9), "-") == "-6"


def test_split_is_by_hash_and_disjoint():
  task = arithmetic(num_train=2000, num_eval=200)
  train, held_out = ({e.prompt for e in rows} for rows in (task.train, task.eval))
  assert (len(train), len(held_out)) == (2000, 200) and not train & held_out
  assert all(is_held_out(p, 0.125) for p in held_out) and not any(is_held_out(p, 0.125) for p in train)
  assert len({e.prompt_id for e in (*task.train, *task.eval)}) == 2200


def test_seed_changes_train_only():
  first, second = arithmetic(num_train=50, num_eval=20, seed=0), arithmetic(num_train=50, num_eval=20, seed=1)
  assert first.eval == second.eval and {e.prompt for e in first.train} != {e.prompt for e in second.train}
  assert first.fingerprint != second.fingerprint


def test_same_rows_in_every_process():
  """Golden: a changed fingerprint means that old runs no longer resume and old results are on other prompts."""
  code = "from rlvr_jax.tasks.text import arithmetic; print(arithmetic(num_train=5, num_eval=2).fingerprint)"
  out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=ROOT)
  here = arithmetic(num_train=5, num_eval=2)
  assert out.stdout.strip() == here.fingerprint
  assert [e.prompt for e in here.train[:3]] == ["29+14=", "8+63=", "35+76="]
  assert [e.prompt for e in here.eval] == ["86+67=", "26+18="]


def test_all_of_a_small_space():
  """100 problems with one digit; the hash holds some out, and each side can be had in full."""
  num_eval = sum(is_held_out(f"{a}+{b}=", 0.125) for a in range(10) for b in range(10))
  task = arithmetic(num_digits=1, num_train=100 - num_eval, num_eval=num_eval)
  assert len({e.prompt for e in (*task.train, *task.eval)}) == 100
  with pytest.raises(ValueError, match=f"about {100 - num_eval} different train problems, fewer than num_train=100"):
    arithmetic(num_digits=1, num_train=100, num_eval=1)


def test_bad_knobs():
  for knobs, message in [
    (dict(num_terms=1), "num_terms >= 2"),
    (dict(operators="*"), "operators must be"),
    (dict(operators=""), "operators must be"),
    (dict(demonstration="column"), "did you mean 'columns'"),
    (dict(demonstration="columns", operators="+-"), "needs operators '\\+'"),
    (dict(num_train=0), "no train rows"),
  ]:
    with pytest.raises(ValueError, match=message):
      arithmetic(**knobs)
  with pytest.raises(ValueError, match="has no 'num_term'; did you mean 'num_terms'"):
    build(text, dict(name="arithmetic", num_term=3))
