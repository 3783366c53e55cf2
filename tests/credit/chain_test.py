"""How links are combined, and what they say when they are put together wrongly."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax import credit


def test_spread_over_tokens_fills_the_loss_mask_only(advantages):
  got = advantages(credit.spread_over_tokens(), [2, 3], row_mask=[True, False])
  np.testing.assert_array_equal(got, [[0, 2, 2], [0, 0, 0]])


def test_chain_applies_in_order_and_merges_declarations(advantages):
  double = credit.stateless(lambda x, r: 2 * x, needs=("old.entropy",), min_group_size=2)
  plus = credit.stateless(lambda x, r: x + 1, needs=("old.entropy", "old.log_probs"))
  both = credit.chain(("double", double), ("plus", plus))
  assert both.needs == ("old.entropy", "old.log_probs") and both.min_group_size == 2
  np.testing.assert_array_equal(advantages(both, [3]), [7])
  assert set(both.init()) == {"double", "plus"}


def test_what_an_earlier_link_provides_is_not_a_need_of_the_chain():
  gives = credit.stateless(lambda x, r: x, provides=("credit.mark",))
  reads = credit.stateless(lambda x, r: x, needs=("credit.mark",))
  assert credit.chain(("a", gives), ("b", reads)).needs == ()
  assert credit.chain(("b", reads), ("a", gives)).needs == ("credit.mark",)


def test_names_of_a_chain_differ():
  with pytest.raises(ValueError, match="must differ, got .'a', 'a'"):
    credit.chain(("a", credit.leave_one_out()), ("a", credit.leave_one_out()))


def test_a_link_in_the_wrong_place_names_itself_and_what_stands_before_it(make_rollout):
  rollout = make_rollout([1, 0])
  with pytest.raises(ValueError, match=r"gae works on a number per token \[n t\], got credit of shape \(2,\)"):
    credit.gae().update(rollout.reward, {}, rollout)
  with pytest.raises(ValueError, match="clip_cov works on a number per token"):
    credit.clip_cov(0.1).update(rollout.reward, {"count": 0}, rollout)
  with pytest.raises(ValueError, match=r"leave_one_out works on a number per row .* before spread_over_tokens"):
    credit.leave_one_out().update(jnp.zeros((2, 3)), {}, rollout)


WRONG = [
  (lambda: credit.group_normalise(ddof=2), "ddof must be 0 or 1, got 2"),
  (lambda: credit.group_normalise(eps=-1), "eps must be >= 0, got -1"),
  (lambda: credit.group_normalise(lone="keep"), "no 'keep'"),
  (lambda: credit.leave_one_out_normalise(eps=float("nan")), "eps must be >= 0, got nan"),
  (lambda: credit.batch_normalise(ddof=2), "ddof must be 0 or 1, got 2"),
  (lambda: credit.gpg(count="rewards"), "did you mean 'reward'"),
  (lambda: credit.max_rl(truncation="G"), "no 'G'"),
  (lambda: credit.pass_at_k(k=4), "takes the whole group for the set, got k = 4"),
  (lambda: credit.pass_at_k(form="unbiased", k=1), "needs k >= 2, got 1"),
  (lambda: credit.gdpo({}), "weights must name at least one"),
  (lambda: credit.discounted_return(gamma=1.5), "gamma must be >= 0 and <= 1, got 1.5"),
  (lambda: credit.gae(lam=-0.1), "lam must be >= 0 and <= 1, got -0.1"),
  (lambda: credit.gae(length_adaptive_alpha=0), "length_adaptive_alpha must be > 0, got 0"),
  (lambda: credit.whiten(floor="max"), "whiten: floor has no 'max'"),
  (lambda: credit.overlong_penalty(max_tokens=100, cache_tokens=0), "cache_tokens must be >= 1, got 0"),
  (lambda: credit.overlong_penalty(max_tokens=10, cache_tokens=20), "max_tokens - cache_tokens must be >= 0, got -10"),
  (lambda: credit.keep_mixed_groups(tolerance=-1), "tolerance must be >= 0, got -1"),
  (lambda: credit.entropy_mask(share=0), "share must be > 0 and <= 1, got 0"),
  (lambda: credit.entropy_mask(view="behavior"), "did you mean 'behaviour'"),
  (lambda: credit.clip_cov(0.1, low=5, high=1), "high - low must be > 0, got -4"),
  (lambda: credit.kl_cov(2), "share must be >= 0 and <= 1, got 2"),
  (lambda: credit.sampler_correction(level="geometric"), "needs mode='mask', got 'truncate'"),
  (lambda: credit.sampler_correction(low=3.0), "high - low must be >= 0, got -1.0"),
  (lambda: credit.off_policy_sequence_mask(-1), "delta must be >= 0, got -1"),
  (lambda: credit.kl_in_reward(0.1, "k4"), "estimator has no 'k4'"),
  (lambda: credit.confidence("certainty"), "did you mean 'self_certainty'"),
  (lambda: credit.teacher_log_ratio(discount=2), "discount must be >= 0 and <= 1, got 2"),
]  # fmt: skip


@pytest.mark.parametrize("make, message", WRONG, ids=range(len(WRONG)))
def test_wrong_arguments_are_named(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_what_the_rollout_lacks_is_named_when_traced(make_rollout, apply):
  rollout = make_rollout([1, 0], rewards=dict(exact=jnp.ones(2)))
  with pytest.raises(ValueError, match="gdpo: weights: rollout.rewards has no 'exat'; did you mean 'exact'"):
    apply(credit.gdpo(dict(exat=1.0)), rollout)
  with pytest.raises(ValueError, match="keep_mixed_groups: component: rollout.rewards has no 'format'"):
    apply(credit.keep_mixed_groups("format"), rollout)
  with pytest.raises(ValueError, match="majority_vote needs rollout.answer_id, got None"):
    apply(credit.majority_vote(), rollout)
