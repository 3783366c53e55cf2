"""Host verifiers against written cases, and what their options and statuses promise."""

import importlib
import json
import pathlib

import pytest

from rlvr_jax.rewards import Sample
from rlvr_jax.rewards.host import exact, format_think, length, math, number, reasoning_gym
from rlvr_jax.rewards.worker import run_verifier

CASES = [json.loads(line) for line in (pathlib.Path(__file__).parent / "cases.jsonl").open(encoding="utf-8")]
BUILDERS = dict(math=math, numeric_tolerance=number, format_think=format_think)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_case(case):
  options = {k: v for k, v in case["options"].items() if k not in ("hard", "timeout_s")}
  sample = Sample(case["completion"], case["reference"], case["prompt"])
  if case["expected"] == "error":
    with pytest.raises(ValueError):
      BUILDERS[case["verifier"]](**options)
    return
  answer = run_verifier(BUILDERS[case["verifier"]](**options), sample)
  assert answer.status != "error", answer
  assert answer.reward == pytest.approx(case["expected"], abs=1e-6), (answer, case["why"])


SAME = [
  ("-3", "-3."),
  ("x=3", "3"), ("\\text{(B)}", "B"), ("(-1,1)", "-1<x<1"), ("x \\neq 2", "(-\\infty,2)\\cup(2,\\infty)"),
  ("5 \\text{ m}^2", "5 \\text{ square meters}"), ("6!", "720"), ("\\pm 2", "2, -2"), ("x^2+2x+1", "(x+1)^2"),
  ("(2,3), (4,5)", "(4,5), (2,3)"), ("x+y<3", "3>x+y"), ("\\log_2 8", "3"), ("3 \\frac12", "3.5"),
]  # fmt: skip
DIFFERENT = [
  ("-3", "3"), ("1,2", "1,2,2"), ("5\\text{ km}", "5\\text{ m}"), ("\\pi", "3.14159265"), ("|x|", "x"),
  ("0", "e^{-100}"),
  ("[1,2]", "(1,2)"), ("x+y<3", "x+y>3"), ("2^{200}", "2^{200}+1"), ("5", "\\frac{0}{0}"), ("x=1", "y=1"),
]  # fmt: skip


@pytest.mark.parametrize("reference, answer", SAME)
def test_math_accepts(reference, answer):
  assert math()(Sample(f"so $\\boxed{{{answer}}}$", reference)).status == "ok"


@pytest.mark.parametrize("reference, answer", DIFFERENT)
def test_math_rejects(reference, answer):
  assert math()(Sample(f"so $\\boxed{{{answer}}}$", reference)).status == "wrong"


def test_math_statuses_tell_a_wrong_answer_from_none_and_from_a_bad_task():
  assert math()(Sample("no box", "3")).status == "unparsable"
  assert math()(Sample("\\boxed{4}", "3")).status == "wrong"
  for reference in (None, "", ["3"], True):
    assert run_verifier(math(), Sample("\\boxed{4}", reference)).status == "error"


@pytest.mark.parametrize(
  "text, value",
  [("The answer is 5 apples, because 2+3=5", 1.0), ("Answer: **5**", 1.0), ("we get 3 and then 5", 1.0),
   ("The answer is 5. I checked 7 times.", 1.0), ("the answer is $x=5$", 1.0),
   ("5 or 6", 0.0), ("\\boxed{6} answer: 5", 0.0)],
)  # fmt: skip
def test_math_any_prefers_box_then_statement_then_last_number(text, value):
  assert math(answer_format="any")(Sample(text, "5")).reward == value


@pytest.mark.parametrize("text, reward", [("3.9", 1.0), ("3.91", 0.0), ("-3", 0.0), ("$3,000$", 0.0), ("words", 0.0)])
def test_number_is_exact_at_the_boundary(text, reward):
  # |3.9 - 3| is above 0.3 * 3 in binary floating point, and equal to it in decimals
  assert number(rel_tol=0.3)(Sample(text, 3)).reward == reward


def test_number_without_a_number_is_unparsable_and_a_wordy_reference_is_an_error():
  assert number()(Sample("no idea", "3")).status == "unparsable"
  assert run_verifier(number(), Sample("3", "three")).status == "error"


@pytest.mark.parametrize("builder, patched", [(math, "equality.same_answer"), (number, "numeric.number_of")])
def test_a_completion_that_breaks_the_comparison_is_unparsable_not_left_out(monkeypatch, builder, patched):
  original = importlib.import_module(f"rlvr_jax.rewards.host.{patched.split('.')[0]}").__dict__[patched.split(".")[1]]

  def breaks(*args, **kwargs):
    if "13" in "".join(map(str, args)):
      raise RecursionError("too deep")
    return original(*args, **kwargs)

  monkeypatch.setattr(f"rlvr_jax.rewards.host.{patched}", breaks)
  assert run_verifier(builder(), Sample("\\boxed{13}", "3")).status == "unparsable"


def test_exact_reads_only_the_answer_part():
  assert exact()(Sample("<think>Paris</think>\n Rome \n", "Rome")).status == "ok"
  assert exact()(Sample("<think>Rome</think> Paris", "Rome")).status == "wrong"
  assert exact()(Sample("<think>Rome", "Rome")).status == "unparsable"
  assert exact()(Sample("rome", "Rome")).reward == 0.0
  assert exact(casefold=True)(Sample("rome", "Rome")).reward == 1.0


@pytest.mark.parametrize("tokens, reward", [(0, 1.0), (100, 1.0), (110, 0.75), (130, 0.25), (140, 0.0), (999, 0.0)])
def test_length_falls_linearly_over_the_slack(tokens, reward):
  assert length(max_tokens=100, slack=40)(Sample("", None, num_tokens=tokens)).reward == pytest.approx(reward)


def test_length_without_slack_is_a_step_and_without_a_count_an_error():
  assert [length(max_tokens=5)(Sample("", None, num_tokens=n)).reward for n in (5, 6)] == [1.0, 0.0]
  assert run_verifier(length(max_tokens=5), Sample("text", None)).status == "error"
  with pytest.raises(ValueError, match="max_tokens"):
    length(max_tokens=0)


def test_reasoning_gym_scores_its_own_answers():
  import reasoning_gym as gym

  entry = gym.create_dataset("chain_sum", size=1, seed=3)[0]
  verify = reasoning_gym()
  right = Sample(f"<think>...</think><answer>{entry['answer']}</answer>", entry["answer"], metadata=entry)
  assert verify(right).status == "ok"
  assert verify(right._replace(completion="<answer>1000000</answer>")).reward < 1.0
  assert verify(right._replace(completion=f"{entry['answer']}")).status == "unparsable"
  assert reasoning_gym(answer_tag=False)(right._replace(completion=f"{entry['answer']}")).status == "ok"
  with pytest.raises(ValueError, match="chain_sun"):
    reasoning_gym(dataset="chain_sun")
