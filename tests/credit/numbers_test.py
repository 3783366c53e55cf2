"""Numbers of a builder: a neutral setting leaves the credit bit for bit as it was, and a sweep may trace them."""

import jax
import numpy as np
import pytest

from rlvr_jax import credit

NEUTRAL = {  # -> (transform, whether the credit is per token)
  "clip_cov": (credit.clip_cov(0.0, low=-9, high=9), True),
  "discounted_return": (credit.discounted_return(0.0), True),
  "entropy_mask": (credit.entropy_mask(share=1.0), True),
  "keep_mixed_groups": (credit.keep_mixed_groups(), True),
  "kl_cov": (credit.kl_cov(0.0), True),
  "kl_in_reward": (credit.kl_in_reward(0.0), False),
  "kl_in_reward, tokens": (credit.kl_in_reward(0.0), True),
  "minillm_return": (credit.minillm_return(coef=0.0), True),
  "off_policy_sequence_mask": (credit.off_policy_sequence_mask(float("inf")), True),
  "overlong_filter": (credit.overlong_filter(), False),
  "overlong_penalty": (credit.overlong_penalty(100, 10), False),
  "sampler_correction": (credit.sampler_correction(), True),
  "sampler_correction, masks": (credit.sampler_correction("sequence", "mask", high=1.0), True),
  "teacher_log_ratio": (credit.teacher_log_ratio(coef=0.0), True),
}


def case(make_rollout, same_sampler):
  rng = np.random.default_rng(0)
  views = ("old", "reference", "teacher", "behaviour")
  stats = {f"{view}.{name}": rng.normal(size=(6, 4)) for view in views for name in ("log_probs", "entropy", "value")}
  if same_sampler:
    stats["behaviour.log_probs"] = stats["old.log_probs"]
  rewards = {name: rng.normal(size=6).astype(np.float32) for name in ("a", "b")}
  group_id = [0, 0, 0, 1, 1, 1]
  mask = np.arange(4) > np.zeros((6, 1))
  return make_rollout(rng.uniform(-0.5, 1, size=6), group_id=group_id, action_mask=mask, stats=stats, rewards=rewards)


def given_credit(rollout, per_token):
  noise = np.random.default_rng(1).normal(size=rollout.tokens.shape).astype(np.float32)
  return np.where(rollout.loss_mask, noise, 0) if per_token else rollout.reward


@pytest.mark.parametrize("part, per_token", NEUTRAL.values(), ids=NEUTRAL)
def test_a_neutral_setting_changes_no_bit(part, per_token, make_rollout, apply):
  rollout = case(make_rollout, same_sampler=True)
  given = given_credit(rollout, per_token)
  got, after = apply(part, rollout, given)
  np.testing.assert_array_equal(got, given)
  np.testing.assert_array_equal(after.loss_mask, rollout.loss_mask)


SWEPT = {  # -> (builder of a transform out of the number, two values, whether the credit is per token)
  "batch_normalise.eps": (lambda x: credit.batch_normalise(x), (0.1, 0.5), False),
  "clip_cov.ratio": (lambda x: credit.clip_cov(x, low=-9), (0.2, 0.5), True),
  "clip_cov.low": (lambda x: credit.clip_cov(0.5, low=x), (-1.0, 0.0), True),
  "discounted_return.gamma": (credit.discounted_return, (0.5, 0.9), True),
  "entropy_mask.share": (lambda x: credit.entropy_mask(x, divisor="all"), (0.3, 0.8), True),
  "gae.gamma": (lambda x: credit.gae(x, 0.5), (0.5, 0.9), True),
  "gae.lam": (lambda x: credit.gae(1.0, x), (0.5, 0.9), True),
  "gae.length_adaptive_alpha": (lambda x: credit.gae(length_adaptive_alpha=x), (0.6, 0.9), True),
  "gdpo.eps": (lambda x: credit.gdpo(dict(a=1.0, b=0.5), eps=x), (0.1, 0.5), False),
  "gdpo.weights": (lambda x: credit.gdpo(dict(a=1.0, b=x)), (0.1, 0.5), False),
  "group_normalise.eps": (lambda x: credit.group_normalise(x), (0.1, 0.5), False),
  "kl_in_reward.coef": (credit.kl_in_reward, (0.1, 0.5), False),
  "leave_one_out_normalise.eps": (credit.leave_one_out_normalise, (0.1, 0.5), False),
  "max_rl.eps": (lambda x: credit.max_rl(eps=x), (0.1, 0.5), False),
  "minillm_return.discount": (lambda x: credit.minillm_return(discount=x), (0.1, 0.5), True),
  "off_policy_sequence_mask.delta": (credit.off_policy_sequence_mask, (0.0, 9.0), True),
  "overlong_penalty.cache_tokens": (lambda x: credit.overlong_penalty(4, x), (2, 3), False),
  "pass_at_k.eps": (lambda x: credit.pass_at_k(eps=x), (0.1, 0.5), False),
  "sampler_correction.high": (lambda x: credit.sampler_correction(high=x), (1.1, 2.0), True),
  "teacher_log_ratio.coef": (lambda x: credit.teacher_log_ratio(coef=x), (0.1, 0.5), True),
  "teacher_log_ratio.discount": (lambda x: credit.teacher_log_ratio(discount=x), (0.1, 0.5), True),
  "whiten.eps": (lambda x: credit.whiten(x), (0.1, 0.5), True),
}


@pytest.mark.parametrize("make, values, per_token", SWEPT.values(), ids=SWEPT)
def test_a_number_may_be_traced_and_matters(make, values, per_token, make_rollout, apply):
  rollout = case(make_rollout, same_sampler=False)
  given = given_credit(rollout, per_token)

  def of(value):
    part = make(value)
    return part.update(given, part.init(), rollout)[0]

  got = jax.jit(jax.vmap(of))(np.array(values))
  np.testing.assert_allclose(got[1], apply(make(values[1]), rollout, given)[0], rtol=1e-5, atol=1e-6)
  assert np.any(got[0] != got[1])
