"""Completions written to hang, crash or fool a mathematical verifier: bounded time, never an error, never a reward."""

import time

import pytest

from rlvr_jax.rewards import Sample, VerifierPool

TIMEOUT_SECS = 10.0
STRINGS = {
  "tower": "9**9**9",
  "tower_latex": "9^{9^{9^{9}}}",
  "big_power": "10^{10^{9}}",
  "long_exponent": "2^{99999999999999}",
  "factorial": "(9^{9})!",
  "factorials": "((9!)!)!",
  "binomial": "\\binom{10^{9}}{5}",
  "sum": "\\sum_{n=1}^{10^{12}} \\frac{1}{n}",
  "product": "\\prod_{n=1}^{100000} n",
  "integral": "\\int_0^1 \\int_0^1 e^{x^{y^{x}}} \\sin(\\tan y) dx dy",
  "open_braces": "{" * 5000,
  "closed_braces": "}" * 5000,
  "nested_braces": "{" * 3000 + "1" + "}" * 3000,
  "nested_parentheses": "(" * 5000 + "1" + ")" * 5000,
  "deep_fractions": "\\frac{1}{" * 500 + "1" + "}" * 500,
  "deep_roots": "\\sqrt{" * 200 + "2" + "}" * 200,
  "long_digits": "7" * 100_000,
  "long_text": "\\text{" + "a" * 100_000 + "}",
  "long_list": ",".join(map(str, range(20_000))),
  "long_sum": "+".join(["x"] * 20_000),
  "many_boxes": "\\boxed{" * 2000,
  "open_environment": "\\begin{pmatrix}" * 200,
  "spaces": " " * 100_000,
  "backslashes": "\\" * 100_000,
  "carets": "^" * 10_000,
  "equals": "=" * 10_000,
  "surrogate": "\ud800\udfff",
  "null": "5\x006",
  "injection": "__import__('os').system('false')",
  "attribute": "().__class__.__bases__",
  "nan": "\\text{nan}",
  "nan_bare": "nan",
  "zoo": "\\frac{1}{0}",
  "question": "?",
  "thinking": "</think></think><think>",
}  # fmt: skip


@pytest.fixture(scope="module")
def pool():
  specs = ["math", dict(name="math", label="any", answer_format="any"), dict(name="number", rel_tol=0.01)]
  with VerifierPool(specs, num_workers=2, timeout_secs=TIMEOUT_SECS) as pool:
    yield pool


@pytest.mark.parametrize("kind", STRINGS)
def test_hostile_completion(pool, kind):
  text = STRINGS[kind]
  started = time.monotonic()
  boxed, bare = pool.verify([Sample(f"So $\\boxed{{{text}}}$.", "42"), Sample(text, "42")])
  assert time.monotonic() - started < 6 * TIMEOUT_SECS
  for verdict in (*boxed.values(), *bare.values()):
    assert verdict.reward == 0.0 and verdict.status in ("wrong", "unparsable", "timeout"), verdict
  (after,) = pool.verify([Sample("$\\boxed{42}$", "42")])
  assert all(v.status == "ok" for v in after.values())


def test_throughput_of_easy_rows(pool):
  rows = [Sample(f"First we add. The answer is $\\boxed{{\\frac{{{i}}}{{7}}}}$.", f"{i}/7") for i in range(500)]
  pool.verify(rows[:8])
  started = time.monotonic()
  answers = pool.verify(rows)
  print(f"500 easy rows, 3 components: {time.monotonic() - started:.2f} s")
  assert all(a["math"].status == "ok" for a in answers)
