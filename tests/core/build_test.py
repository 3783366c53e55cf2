"""Number checks of builders, concrete and traced."""

import jax
import pytest

from rlvr_jax.core import check_number


@pytest.mark.parametrize(
  "value, bounds, words",
  [
    (-1, dict(minimum=0), "rate must be >= 0, got -1"),
    (0, dict(above=0), "rate must be > 0, got 0"),
    (2, dict(minimum=0, maximum=1), "rate must be >= 0 and <= 1, got 2"),
    (1, dict(below=1), "rate must be < 1, got 1"),
    (float("nan"), dict(minimum=0), "got nan"),
  ],
)
def test_out_of_bounds_names_the_argument_the_rule_and_the_value(value, bounds, words):
  with pytest.raises(ValueError, match=words):
    check_number("rate", value, **bounds)


def test_a_traced_number_passes():
  def double(x):
    check_number("rate", x, minimum=0)
    return 2 * x

  assert jax.jit(double)(-1.0) == -2
  check_number("rate", 0.5, minimum=0, below=1)
