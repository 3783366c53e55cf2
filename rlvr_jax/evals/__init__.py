"""What runs have learnt: pass@k, maj@k, calibration, diversity, intervals over prompts or seeds, curves, reports."""

from rlvr_jax.evals.calibration import ReliabilityBin, agreement_share, brier_score, calibration_error, reliability
from rlvr_jax.evals.curve import curve, read_rows
from rlvr_jax.evals.diversity import (
  distinct_answers,
  distinct_completions,
  distinct_n,
  effective_answers,
  mean_token_entropy,
  simpson_index,
)
from rlvr_jax.evals.intervals import (
  Interval,
  bootstrap_interval,
  paired_bootstrap,
  ratio_interval,
  sign_flip_test,
  wilson_interval,
)
from rlvr_jax.evals.majority import maj_at_k, majority_accuracy
from rlvr_jax.evals.pass_at_k import avg_at_k, pass_at_k
from rlvr_jax.evals.report import CurveData, ReportRow, compare_configs, plot_curves, write_report
from rlvr_jax.evals.result import Comparison, EvalResult, compare, summarise_eval
from rlvr_jax.evals.seeds import SeedComparison, holm, mean_over_seeds, paired_over_seeds

__all__ = [
  "Comparison", "CurveData", "EvalResult", "Interval", "ReliabilityBin", "ReportRow", "SeedComparison",
  "agreement_share", "avg_at_k", "bootstrap_interval", "brier_score", "calibration_error", "compare",
  "compare_configs", "curve", "distinct_answers", "distinct_completions", "distinct_n", "effective_answers", "holm",
  "maj_at_k", "majority_accuracy", "mean_over_seeds", "mean_token_entropy", "paired_bootstrap", "paired_over_seeds",
  "pass_at_k", "plot_curves", "ratio_interval", "read_rows", "reliability", "sign_flip_test", "simpson_index",
  "summarise_eval", "wilson_interval", "write_report",
]  # fmt: skip
