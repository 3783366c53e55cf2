"""Every graph task and world as the laboratory sees it: prompts, demonstrations, verdicts, hints and samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lab import lab

import rlvr_jax.tasks.graph as graph_room
import rlvr_jax.tasks.worlds as worlds_room
from rlvr_jax.core import make_view
from rlvr_jax.models import Decoder, tiny_config
from rlvr_jax.rollouts import PromptArrays
from rlvr_jax.runs.arena import make_arena, names
from rlvr_jax.runs.laboratory import _after_hint, is_graph_task
from rlvr_jax.tasks import EVAL_ID

GRAPH, WORLDS = tuple(graph_room.__all__), tuple(worlds_room.__all__)
IDS = jnp.concatenate([jnp.arange(6), EVAL_ID + jnp.arange(6)])  # a few of either split


@pytest.fixture(scope="module", autouse=True)
def quick_compiles():
  jax.config.update("jax_disable_most_optimizations", True)
  yield
  jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module", params=GRAPH + WORLDS)
def shown(request):
  """(arena, demonstrations, their view after the hint, the prompts), of one program."""
  arena = make_arena(dict(name=request.param))

  @jax.jit
  def program(ids):
    rollout = arena.demonstrate(ids)
    return rollout, _after_hint(arena, rollout), arena.prompts(ids)

  return arena, *jax.tree.map(np.asarray, program(IDS))


def text(tokens, mask):
  return tokens[mask].tolist()


def test_rows_are_in_the_form_of_samples(shown):
  """prompt | completion, of static width; the prompt ends at the column before the first action, and nothing after it
  has a gap: a token is predicted from the column before it."""
  arena, rollout, _, (prompt, prompt_mask) = shown
  n, first = len(IDS), rollout.first_action
  assert first == prompt.shape[1] and rollout.tokens.shape == (n, first + arena.max_new_tokens)
  assert rollout.num_groups == n and rollout.group_id.tolist() == list(range(n))
  assert rollout.prompt_id.tolist() == IDS.tolist() and rollout.row_mask.all() and not rollout.truncated.any()
  for found, wanted in zip(rollout.tokens[:, :first], np.where(prompt_mask, prompt, arena.task.pad_id)):
    assert found.tolist() == wanted.tolist()
  assert (rollout.valid_mask[:, :first] == prompt_mask).all() and prompt_mask[:, -1].all()
  assert not (rollout.valid_mask[:, 1:first] < rollout.valid_mask[:, : first - 1]).any()  # padding in front
  after = rollout.valid_mask[:, first:]
  assert not (after[:, 1:] > after[:, :-1]).any()  # and behind
  assert rollout.action_mask[:, first].all() and not rollout.action_mask[:, :first].any()
  assert not (rollout.action_mask & ~rollout.valid_mask).any()
  assert (rollout.tokens[~rollout.valid_mask] == arena.task.pad_id).all()
  assert (rollout.tokens >= 0).all() and (rollout.tokens < len(arena.task.symbols)).all()


def test_demonstrations_are_right(shown):
  """A graph task's own verdict of them; a world's actions, given to the world again turn by turn."""
  arena, rollout, _, _ = shown
  if arena.task.name.split(".")[0] in GRAPH:
    verdict = jax.jit(arena.verify)(jax.tree.map(jnp.asarray, rollout))
    assert verdict.correct.tolist() == [1.0] * len(IDS)
    assert verdict.parsable.all() and (verdict.answer_id >= 0).all()
    return
  reward, done, said = replay(arena.task, rollout)
  np.testing.assert_allclose(reward, 1.0, rtol=1e-6)
  assert done.all()
  observed = [text(t, v & ~a) for t, v, a in after_prompt(rollout)]
  assert observed == said


def after_prompt(rollout):
  first = rollout.first_action
  return zip(rollout.tokens[:, first:], rollout.valid_mask[:, first:], rollout.action_mask[:, first:])


def replay(world, rollout):
  """The sum of rewards, whether it is over, and all that the world says, of each row."""
  n, turns, width = len(IDS), world.max_turns, world.action_tokens
  actions, masks = np.full((n, turns, width), world.pad_id), np.zeros((n, turns, width), bool)
  for row in range(n):
    for turn in range(turns):
      words = rollout.tokens[row][rollout.turn_id[row] == turn]
      actions[row, turn, : len(words)], masks[row, turn, : len(words)] = words, True

  @jax.jit
  @jax.vmap
  def run(prompt_id, actions, masks):
    facts = world.problem(prompt_id)

    def turn(state, action):
      out = world.step(facts, state, *action)
      return out.state, (jnp.where(jnp.any(action[1]), out.reward, 0.0), out.done, out.observation, out.mask)

    return jax.lax.scan(turn, world.reset(facts), (actions, masks))[1]

  reward, done, said, mask = jax.tree.map(np.asarray, run(IDS, jnp.asarray(actions), jnp.asarray(masks)))
  mask = mask & masks.any(axis=-1)[:, :, None]  # nothing is said in turns that are not taken
  return reward.sum(axis=1), done.any(axis=1), [text(said[i], mask[i]) for i in range(n)]


def test_turns_are_numbered(shown):
  """From 0 on, without a gap, on the actions and nowhere else; each ends with its only stop token."""
  arena, rollout, _, _ = shown
  if not hasattr(arena.task, "max_turns"):
    assert rollout.turn_id is None
    return
  for tokens, action, turn in zip(rollout.tokens, rollout.action_mask, rollout.turn_id):
    assert ((turn >= 0) == action).all()
    on_actions = turn[action]
    assert (np.diff(on_actions) >= 0).all() and set(on_actions) == set(range(on_actions.max() + 1))
    assert on_actions.max() < arena.task.max_turns
    for index in range(on_actions.max() + 1):
      words = tokens[turn == index]
      assert words[-1] == arena.task.stop_id and (words[:-1] != arena.task.stop_id).all()
      assert len(words) <= arena.task.action_tokens


def test_a_teacher_reads_every_action_after_the_hint(shown):
  """Each action token stands in the view, and the column before it holds the token before it in the rollout."""
  arena, rollout, view, (prompt, _) = shown
  assert (view.take[rollout.action_mask] >= 0).all()
  rows, columns = np.nonzero(rollout.valid_mask & (np.arange(rollout.tokens.shape[1])[None] >= rollout.first_action))
  places = view.take[rows, columns]
  assert (view.tokens[rows, places] == rollout.tokens[rows, columns]).all() and view.valid_mask[rows, places].all()
  assert (view.tokens[rows, places - 1] == rollout.tokens[rows, columns - 1]).all()
  assert view.valid_mask[rows, places - 1].all()
  hint, hint_mask = jax.tree.map(np.asarray, jax.jit(arena.hint)(IDS))
  assert hint_mask.any(axis=1).all() and view.tokens.shape[1] == hint.shape[1] + rollout.tokens.shape[1]
  for row in range(len(IDS)):
    before = text(view.tokens[row, : -arena.max_new_tokens], view.valid_mask[row, : -arena.max_new_tokens])
    asked = text(rollout.tokens[row, : prompt.shape[1]], rollout.valid_mask[row, : prompt.shape[1]])
    assert before == text(hint[row], hint_mask[row]) + asked


def test_it_is_the_laboratory_s(shown):
  name = shown[0].task.name.split(".")[0]
  assert name in names() and is_graph_task(lab(task=dict(name=name)))


@pytest.mark.slow
@pytest.mark.parametrize("name, rollout", [("multiple_choice", "groups"), ("guess_number", "turns")])
def test_a_sample_has_the_form_of_a_demonstration(name, rollout):
  """The same fields, width and prompt columns, of a task whose prompts differ in length."""
  arena = make_arena(dict(name=name))
  sizes = dict(width=8, num_layers=1, num_heads=1, num_kv_heads=1, mlp_width=8)
  model = Decoder(tiny_config(len(arena.task.symbols), pad_token_id=0, eos_token_id=1, **sizes))
  sample = arena.make_sampler(dict(name=rollout, group_size=2), model)

  @jax.jit
  def program(key):
    found = sample(model.init(key), PromptArrays(*arena.prompts(IDS), IDS), key, 0)
    return found, arena.demonstrate(IDS), arena.verify(found)

  found, wanted, verdict = program(jax.random.key(0))
  first = wanted.first_action
  assert found.first_action == first and found.tokens.shape[1] == wanted.tokens.shape[1]
  for ours, theirs in ((found.tokens, wanted.tokens), (found.valid_mask, wanted.valid_mask)):
    np.testing.assert_array_equal(ours[::2, :first], theirs[:, :first])
  assert (found.turn_id is None) == (wanted.turn_id is None)
  assert verdict.correct.shape == (2 * len(IDS),) and ((verdict.correct >= 0) & (verdict.correct <= 1)).all()


def test_a_view_is_of_what_comes_after_the_prompt():
  """By hand: a prompt 1 2, a completion 3 4 and padding; the teacher's prompt is 7 8 9."""
  arena = make_arena(lab()["task"])
  rollout = jax.jit(arena.demonstrate)(jnp.arange(1))
  rollout = rollout.replace(
    tokens=jnp.array([[1, 2, 3, 4, 0]]), valid_mask=jnp.array([[True, True, True, True, False]]), first_action=2,
  )  # fmt: skip
  view = make_view(jnp.array([[7, 8, 9]]), jnp.ones((1, 3), bool), rollout)
  assert view.tokens.tolist() == [[7, 8, 9, 3, 4, 0]] and view.take.tolist() == [[-1, -1, 3, 4, -1]]


def test_an_unknown_task_is_named():
  with pytest.raises(ValueError, match=r"no graph task or world 'guess_numbr'; did you mean 'guess_number'\?"):
    make_arena(dict(name="guess_numbr"))
  with pytest.raises(ValueError, match="no graph task or world None"):
    make_arena({})
