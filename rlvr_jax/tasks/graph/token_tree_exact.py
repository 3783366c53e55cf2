"""What estimators estimate, on a token tree: sums over all its leaves, for a policy given at every node.

A policy is `logits["nodes branching"]` at the nodes that are not leaves, level by level from the root: the child of
node i along branch a is node i * branching + 1 + a. Leaves are numbered as `token_tree` numbers them, by their tokens
read in base `branching`. Everything is differentiable in the logits, which may hold -inf beside finite numbers.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlvr_jax.core import check_number
from rlvr_jax.tasks.graph import tokens as tk
from rlvr_jax.tasks.graph.types import GraphTask


def num_nodes(branching: int, depth: int) -> int:
  """Nodes that are not leaves: (branching**depth - 1) / (branching - 1)."""
  return (branching**depth - 1) // (branching - 1)


def leaf_tokens(branching: int, depth: int) -> Int[Array, "leaves depth"]:
  """The completion of each leaf."""
  return jnp.stack(jnp.unravel_index(jnp.arange(branching**depth), (branching,) * depth), axis=1)


def leaf_rewards(task: GraphTask, prompt_id: int | Int[Array, ""], branching: int) -> Float[Array, "leaves"]:
  """What the verifier of a `token_tree` task says of every completion, in the order of the leaves."""
  tokens = leaf_tokens(branching, task.max_new_tokens)
  facts = task.problem(jnp.asarray(prompt_id))
  return jax.vmap(lambda row: task.verify(facts, row, jnp.ones(row.shape, bool)).correct)(tokens)


def leaf_log_probs(logits: Float[Array, "nodes branching"]) -> Float[Array, "leaves"]:
  """log pi(y): the sum along the way from the root to the leaf. Nats."""
  return _prefix_log_probs(logits)[-1]


def visit_probs(logits: Float[Array, "nodes branching"]) -> Float[Array, "nodes"]:
  """Probability that a completion passes through each node."""
  return jnp.exp(jnp.concatenate(_prefix_log_probs(logits)[:-1]))


def expected_reward(logits: Float[Array, "nodes branching"], rewards: Float[Array, "leaves"]) -> Float[Array, ""]:
  """J = sum_y pi(y) r(y)."""
  return jnp.sum(jnp.exp(leaf_log_probs(logits)) * rewards)


def policy_gradient(
  logits: Float[Array, "nodes branching"], rewards: Float[Array, "leaves"]
) -> Float[Array, "nodes branching"]:
  """dJ / dlogits, the expectation of every unbiased estimator of the policy gradient."""
  return jax.grad(expected_reward)(logits, rewards)


def action_values(
  logits: Float[Array, "nodes branching"], rewards: Float[Array, "leaves"]
) -> Float[Array, "nodes branching"]:
  """Q(s, a): the value of the child of s along a, undiscounted; on the last level the reward of the leaf."""
  branching = logits.shape[1]
  values, below = rewards, []
  for level in reversed(_levels(logits)):
    below.insert(0, values.reshape(-1, branching))
    values = jnp.sum(jax.nn.softmax(level) * below[0], axis=1)
  return jnp.concatenate(below)


def node_values(logits: Float[Array, "nodes branching"], rewards: Float[Array, "leaves"]) -> Float[Array, "nodes"]:
  """V(s) = sum_a pi(a | s) Q(s, a); `node_values(...)[0]` is J."""
  return jnp.sum(jax.nn.softmax(logits) * action_values(logits, rewards), axis=1)


def policy_of_leaves(leaf_log_weights: Float[Array, "leaves"], branching: int) -> Float[Array, "nodes branching"]:
  """The policy, as log-probs, whose leaves are distributed as exp(leaf_log_weights), normalised.

    log pi(a | s) = logsumexp over the leaves below (s, a) - logsumexp over the leaves below s

  Uniform at a node below which all weights are 0 (log-weight -inf).
  """
  depth = _depth(branching, leaf_log_weights.shape[0])
  totals, levels = leaf_log_weights, []
  for _ in range(depth):
    children = totals.reshape(-1, branching)
    dead = jnp.all(jnp.isneginf(children), axis=1)
    children = jnp.where(dead[:, None], 0.0, children)
    levels.insert(0, jax.nn.log_softmax(children))
    totals = jnp.where(dead, -jnp.inf, jax.nn.logsumexp(children, axis=1))
  return jnp.concatenate(levels)


def optimal_policy(
  reference_logits: Float[Array, "nodes branching"], rewards: Float[Array, "leaves"], beta: float
) -> Float[Array, "nodes branching"]:
  """Log-probs of pi*(y) proportional to pi_ref(y) exp(r(y) / beta), which maximises `regularised_reward`."""
  check_number("beta", beta, above=0.0)
  return policy_of_leaves(leaf_log_probs(reference_logits) + rewards / beta, reference_logits.shape[1])


def sequence_kl(
  logits: Float[Array, "nodes branching"], other_logits: Float[Array, "nodes branching"]
) -> Float[Array, ""]:
  """KL(pi || other) over completions: sum_y pi(y) (log pi(y) - log other(y)). Nats."""
  log_p, log_q = leaf_log_probs(logits), leaf_log_probs(other_logits)
  possible = ~jnp.isneginf(log_p)  # where it is not, 0 * inf is kept out of the gradient too
  log_ratio = jnp.where(possible, log_p, 0.0) - jnp.where(possible, log_q, 0.0)
  return jnp.sum(jnp.where(possible, jnp.exp(log_p), 0.0) * log_ratio)


def regularised_reward(
  logits: Float[Array, "nodes branching"],
  reference_logits: Float[Array, "nodes branching"],
  rewards: Float[Array, "leaves"],
  beta: float,
) -> Float[Array, ""]:
  """J - beta KL(pi || pi_ref); its maximum is beta log sum_y pi_ref(y) exp(r(y) / beta)."""
  return expected_reward(logits, rewards) - beta * sequence_kl(logits, reference_logits)


def pass_at_k(
  logits: Float[Array, "nodes branching"], rewards: Float[Array, "leaves"], k: int, threshold: float = 1.0
) -> Float[Array, ""]:
  """Probability that at least one of k independent completions earns `threshold` or more: 1 - (1 - p)**k."""
  tk.check_size("k", k, 1)
  return 1.0 - (1.0 - expected_reward(logits, (rewards >= threshold).astype(jnp.float32))) ** k


def _depth(branching: int, leaves: int) -> int:
  depth = 0
  while branching**depth < leaves:
    depth += 1
  if branching**depth != leaves:
    raise ValueError(f"a tree with branching {branching} has a power of it as leaves, got {leaves}")
  return depth


def _levels(logits) -> list:
  """Logits of each level of the tree, root first."""
  nodes, branching = logits.shape
  depth = 0
  while num_nodes(branching, depth) < nodes:
    depth += 1
  if num_nodes(branching, depth) != nodes:
    raise ValueError(f"logits of a tree with branching {branching} cannot have {nodes} rows")
  return jnp.split(logits, [num_nodes(branching, level) for level in range(1, depth)])


def _prefix_log_probs(logits) -> list:
  """log-probs of the nodes of each level, leaves last."""
  prefixes = [jnp.zeros(1)]
  for level in _levels(logits):
    prefixes.append((prefixes[-1][:, None] + jax.nn.log_softmax(level)).reshape(-1))
  return prefixes
