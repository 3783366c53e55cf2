"""A model small enough to check by hand: a table of transitions, with or without heads beside the vocabulary's."""

import jax
import jax.numpy as jnp


class Table:
  """log π(y | x) is the softmax of row x of the table."""

  def hidden(self, params, tokens, positions, valid_mask):
    return jax.nn.one_hot(tokens, params["table"].shape[0], dtype=params["table"].dtype)

  def head(self, params):
    return params["table"].T

  def axes(self):
    return dict(table=(None, "vocab"))


class HeadedTable(Table):
  """The statistics `value` and `log_z` of a token are entries of two more tables, for the token before it."""

  head_names = ("value", "log_z")

  def head_statistics(self, params, tokens, valid_mask, hidden):
    def by_token(entries):
      return jnp.pad((hidden @ entries).astype(jnp.float32)[:, :-1], ((0, 0), (1, 0)))

    return {name: by_token(params[name]) for name in self.head_names}

  def axes(self):
    return super().axes() | {name: ("vocab",) for name in self.head_names}
