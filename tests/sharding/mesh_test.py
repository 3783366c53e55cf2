"""The table of logical axes, and what places arrays by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from rlvr_jax.sharding import RULES, constrain, make_mesh, named_sharding, place, replicate, spec
from rlvr_jax.sharding.mesh import MESH_AXES


@pytest.fixture(scope="module")
def mesh():
  return make_mesh(2, 2, 2)


def shard_shape(x) -> tuple[int, ...]:
  return x.sharding.shard_shape(x.shape)


def test_one_size_of_the_mesh_takes_the_devices_left():
  assert dict(make_mesh().shape) == dict(data=8, fsdp=1, tensor=1)
  assert dict(make_mesh(2, -1, 2).shape) == dict(data=2, fsdp=2, tensor=2)
  assert dict(make_mesh(1, 1, 1, devices=jax.devices()[:1]).shape) == dict(data=1, fsdp=1, tensor=1)


@pytest.mark.parametrize(
  "sizes, message",
  [
    ((3, 1, 1), "needs 3 devices, there are 8"),
    ((-1, 3, 1), "8 devices are not a multiple of 3"),
    ((-1, -1, 1), "at most one -1, got data=-1 fsdp=-1 tensor=1"),
    ((0, 1, 1), "must be positive .* data=0"),
    ((-2, 1, 1), "must be positive .* data=-2"),
  ],
)
def test_sizes_that_do_not_fit_the_devices_are_named(sizes, message):
  with pytest.raises(ValueError, match=message):
    make_mesh(*sizes)


def test_the_table_names_only_axes_of_the_mesh():
  assert {a for axes in RULES.values() for a in axes or ()} <= set(MESH_AXES)


def test_spec_reads_the_table():
  assert spec(("embed", "heads", None, "head_dim")) == P("fsdp", "tensor", None, None)
  assert spec(("batch", "time")) == P(("data", "fsdp"), None)
  assert spec(()) == P()


def test_two_axes_of_one_array_on_one_mesh_axis_collide():
  with pytest.raises(ValueError, match=r"\('heads', 'mlp'\): 'heads' and 'mlp' are both on mesh axis 'tensor'"):
    spec(("heads", "mlp"))
  with pytest.raises(ValueError, match="'batch' and 'embed' are both on mesh axis 'fsdp'"):  # through one of its two
    spec(("batch", "time", "embed"))


def test_an_unknown_axis_is_named_with_the_nearest():
  with pytest.raises(ValueError, match="no 'embd'; did you mean 'embed'"):
    spec(("embd",))


def test_a_dimension_that_does_not_divide_is_replicated(mesh):
  assert named_sharding(mesh, ("embed", "kv_heads"), (4, 2)).spec == P("fsdp", "tensor")
  assert named_sharding(mesh, ("embed", "kv_heads"), (4, 3)).spec == P("fsdp", None)
  assert named_sharding(mesh, ("batch",), (6,)).spec == P(None)  # 6 rows over data * fsdp = 4
  assert named_sharding(mesh, ("kv_heads",)).spec == P("tensor")  # without a shape the table stands
  with pytest.raises(ValueError):
    named_sharding(mesh, ("embed",), (4, 4))


def test_place_puts_each_array_where_its_axes_say(mesh):
  tree = dict(w=np.arange(32.0).reshape(4, 8), b=np.arange(3.0), empty={}, scalar=np.float32(1))
  placed = place(mesh, tree, dict(w=("embed", "mlp"), b=("kv_heads",), empty={}, scalar=()))
  assert shard_shape(placed["w"]) == (2, 4) and placed["b"].sharding.is_fully_replicated
  assert placed["scalar"].sharding.is_fully_replicated
  assert all(len(x.sharding.device_set) == 8 for x in jax.tree.leaves(placed))
  assert jax.tree.all(jax.tree.map(np.array_equal, placed, tree))


def test_place_cuts_one_tuple_of_axes_to_the_rank_of_each_leaf(mesh):
  placed = place(mesh, dict(tokens=np.zeros((8, 6)), reward=np.zeros(8), step=np.float32(0)), ("batch", "time"))
  assert shard_shape(placed["tokens"]) == (2, 6) and shard_shape(placed["reward"]) == (2,)
  assert shard_shape(placed["step"]) == ()


def test_place_counts_arrays_and_axes(mesh):
  with pytest.raises(ValueError):
    place(mesh, [np.zeros(2), np.zeros(2)], [("embed",)])


def test_replicate_puts_everything_everywhere(mesh):
  key, x = replicate(mesh, (jax.random.key(0), np.arange(3)))
  assert key.sharding.is_fully_replicated and len(x.sharding.device_set) == 8
  assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def test_constrain_does_nothing_without_a_mesh():
  double = lambda x: constrain(x, ("batch", "time")) * 2
  assert "sharding_constraint" not in str(jax.make_jaxpr(double)(jnp.ones((8, 2))))
  x = jnp.ones((8, 2))
  assert constrain(x, ("batch", "time")) is x
  with jax.set_mesh(jax.make_mesh((8,), ("other",))):  # nor on one that is not the project's
    assert "sharding_constraint" not in str(jax.make_jaxpr(double)(jnp.ones((8, 2))))


def test_constrain_lays_out_by_the_table_on_a_mesh(mesh):
  with jax.set_mesh(mesh):
    out = jax.jit(lambda x, y: (constrain(x, ("batch", "time")), constrain(y, ("batch", "heads"))))(
      replicate(mesh, np.arange(16.0).reshape(8, 2)), replicate(mesh, np.ones((6, 4)))
    )
  assert shard_shape(out[0]) == (2, 2) and np.array_equal(out[0], np.arange(16.0).reshape(8, 2))
  assert shard_shape(out[1]) == (6, 2)  # six rows do not divide by four


def test_a_state_that_goes_round_through_constrain_compiles_once(mesh):
  traces = []

  def step(state):
    traces.append(1)
    return dict(w=constrain(state["w"] + 1, ("embed", "mlp")), v=constrain(state["v"] + 1, ("kv_heads", None)))

  state = place(mesh, dict(w=np.zeros((4, 8)), v=np.zeros((3, 2))), dict(w=("embed", "mlp"), v=("kv_heads", None)))
  step = jax.jit(step, donate_argnums=0)
  with jax.set_mesh(mesh):
    for _ in range(3):
      state = step(state)
  assert len(traces) == 1 and step._cache_size() == 1
  assert state["w"][0, 0] == 3
