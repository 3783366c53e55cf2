"""rlvr_jax: reinforcement learning with verifiable rewards in JAX."""
