"""What a run has learnt: pass@k, avg@k, intervals over prompts, paired comparisons and the learning curve."""

from rlvr_jax.evals.curve import curve, read_rows
from rlvr_jax.evals.intervals import Interval, bootstrap_interval, paired_bootstrap, sign_flip_test, wilson_interval
from rlvr_jax.evals.pass_at_k import avg_at_k, pass_at_k
from rlvr_jax.evals.result import Comparison, EvalResult, compare, summarise_eval

__all__ = [
  "Comparison", "EvalResult", "Interval",
  "avg_at_k", "bootstrap_interval", "compare", "curve", "paired_bootstrap", "pass_at_k", "read_rows", "sign_flip_test",
  "summarise_eval", "wilson_interval",
]  # fmt: skip
