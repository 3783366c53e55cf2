"""The pool must answer every row, in order, whatever a verifier does to its process."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from rlvr_jax.rewards import Sample, VerifierPool

BUILDERS = """
import os, sys, time, ctypes, hashlib
from rlvr_jax.rewards.verdict import Verdict, verdict

def behave(marker=None):
  print("built", flush=True)
  def verify(sample):
    do, _, arg = sample.completion.partition(" ")
    if do == "hang":
      while True: pass
    if do == "hang_in_c": 9 ** (9 ** 9)
    if do == "exit": os._exit(3)
    if do == "sys_exit": sys.exit(3)
    if do == "segfault": ctypes.string_at(0)
    if do == "raise": raise KeyError("no such thing")
    if do == "nan": return Verdict(float("nan"), "ok", "")
    if do == "big": return Verdict(2.0, "ok", "")
    if do == "float": return 0.5
    if do == "chatter":
      for _ in range(100): print("x" * 100_000)
      print("y" * 100_000, file=sys.stderr)
      return verdict(1.0, "ok", "z" * 10**7)
    if do == "memory": return verdict(float(len(bytearray(1 << 40)) > 0), "ok")
    if do == "stdin": return verdict(0.0, "wrong", repr(sys.stdin.read()))
    if do == "jax": return verdict(0.0, "wrong", f"{'jax' in sys.modules} {os.environ['OMP_NUM_THREADS']}")
    if do == "sleep": time.sleep(float(arg))
    if do == "once":
      if not os.path.exists(arg):
        open(arg, "w").close()
        os._exit(1)
    value = int(hashlib.sha256(repr(sample.reference).encode()).hexdigest()[:4], 16) / 65535
    return verdict(value, "ok", str(sample.reference))
  return verify

def cannot_be_built():
  raise RuntimeError("no licence file")
"""
BEHAVE = dict(name="user_verifiers:behave", label="user")


@pytest.fixture(autouse=True)
def user_module(tmp_path, monkeypatch):
  (tmp_path / "user_verifiers.py").write_text(textwrap.dedent(BUILDERS))
  monkeypatch.syspath_prepend(str(tmp_path))


def ask(pool, *completions):
  return [row["user"] for row in pool.verify([Sample(c, i) for i, c in enumerate(completions)])]


@pytest.mark.parametrize("bad", ["hang", "hang_in_c"])
def test_a_hang_is_a_timeout_and_the_other_rows_are_answered(bad):
  with VerifierPool([BEHAVE], num_workers=2, timeout_secs=0.7) as pool:
    started = time.monotonic()
    answers = ask(pool, "a", bad, *"bcdef")
    assert time.monotonic() - started < 8
    assert [a.status for a in answers] == ["ok", "timeout", "ok", "ok", "ok", "ok", "ok"]
    assert answers[1].reward == 0.0 and "0.7 s" in answers[1].reason
    assert [a.reason for i, a in enumerate(answers) if i != 1] == ["0", "2", "3", "4", "5", "6"]
    assert pool.counters == dict(restarts=1, timeouts=1, errors=0)
    assert ask(pool, "again")[0].status == "ok"


@pytest.mark.parametrize("bad, how", [("exit", "exit code 3"), ("segfault", "signal 11")])
def test_a_crash_is_tried_once_more_and_then_an_error(bad, how):
  with VerifierPool([BEHAVE], num_workers=1) as pool:
    answers = ask(pool, "a", bad, "b")
    assert [a.status for a in answers] == ["ok", "error", "ok"]
    assert all(words in answers[1].reason for words in ("died 2 times", how, "built"))
    assert pool.counters == dict(restarts=2, timeouts=0, errors=1)


def test_a_crash_that_does_not_repeat_costs_a_retry_only(tmp_path):
  with VerifierPool([BEHAVE], num_workers=1) as pool:
    answers = ask(pool, "a", f"once {tmp_path / 'marker'}", "b")
    assert [a.reason for a in answers] == ["0", "1", "2"]
    assert pool.counters == dict(restarts=1, timeouts=0, errors=0)


def test_what_a_verifier_raises_or_returns_amiss_is_an_error_with_its_reason():
  with VerifierPool([BEHAVE], num_workers=1) as pool:
    answers = ask(pool, "raise", "nan", "big", "float", "sys_exit", "memory")
    assert [a.status for a in answers] == ["error"] * 6
    for answer, words in zip(answers, ["no such thing", "nan", "2.0", "must return a Verdict", "3", "MemoryError"]):
      assert words in answer.reason
    assert pool.counters == dict(restarts=0, timeouts=0, errors=6)


def test_output_of_a_verifier_neither_blocks_nor_enters_the_protocol():
  with VerifierPool([BEHAVE], num_workers=1, timeout_secs=20) as pool:
    chatter, after = ask(pool, "chatter", "a")
    assert chatter.status == "ok" and len(chatter.reason) < 400 and after.reason == "1"


def test_a_worker_has_no_stdin_no_jax_and_one_thread():
  with VerifierPool([BEHAVE], num_workers=1) as pool:
    stdin, modules = ask(pool, "stdin", "jax")
    assert stdin.reason == "''" and modules.reason == "False 1"


def test_a_worker_killed_from_outside_costs_one_retry_and_no_row():
  with VerifierPool([BEHAVE], num_workers=2) as pool:
    killer = threading.Timer(0.5, os.kill, (pool.worker_pids[0], signal.SIGKILL))
    killer.start()
    answers = ask(pool, *["sleep 0.02"] * 80)
    killer.join()
    assert [a.reason for a in answers] == [str(i) for i in range(80)]
    assert pool.counters == dict(restarts=1, timeouts=0, errors=0)
    os.kill(pool.worker_pids[0], signal.SIGKILL)  # while idle
    assert [a.reason for a in ask(pool, *"abcd")] == ["0", "1", "2", "3"]


def test_order_and_verdicts_do_not_depend_on_timing_or_on_the_number_of_workers():
  rows = [f"sleep {0.004 * (i * 7 % 11)}" for i in range(60)]
  answers = []
  for num_workers in (1, 2, 3):
    with VerifierPool([BEHAVE], num_workers=num_workers) as pool:
      answers.append(ask(pool, *rows))
  assert answers[0] == answers[1] == answers[2]
  assert [a.reason for a in answers[0]] == [str(i) for i in range(60)]


def test_a_component_that_hangs_leaves_the_others_their_verdicts():
  specs = ["exact", BEHAVE, dict(name="length", max_tokens=5, weight=0.1)]
  with VerifierPool(specs, num_workers=1, timeout_secs=0.5) as pool:
    (row,) = pool.verify([Sample("hang", "hang", num_tokens=3)])
    assert list(row) == ["exact", "user", "length"]
    assert [v.status for v in row.values()] == ["ok", "timeout", "ok"]
    assert pool.weights == dict(exact=1.0, user=1.0, length=0.1)


def test_samples_that_cannot_travel_are_errors_of_their_row():
  with VerifierPool([BEHAVE], num_workers=1) as pool:
    rows = pool.verify([Sample("a", 0), Sample("a", lambda: 0), Sample("\ud800", 2)])
    assert [r["user"].status for r in rows] == ["ok", "error", "ok"]
    assert "pickled" in rows[1]["user"].reason
    assert pool.verify([]) == []


def test_an_interrupted_batch_does_not_leak_into_the_next(monkeypatch):
  with VerifierPool([BEHAVE], num_workers=1) as pool:
    step, calls = pool._step, []

    def interrupt():
      calls.append(None)
      if len(calls) == 3:
        raise KeyboardInterrupt
      step()

    monkeypatch.setattr(pool, "_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
      ask(pool, *["sleep 0.05"] * 8)
    assert [a.reason for a in ask(pool, *["sleep 0.01"] * 3)] == ["0", "1", "2"]


@pytest.mark.parametrize(
  "specs, words",
  [
    ([], "at least one"),
    ([dict(name="maths")], "did you mean 'math'"),
    ([dict(name="math", answer_formt="boxed")], "did you mean 'answer_format'"),
    ([dict(name="math", answer_format="box")], "answer_format must be one of"),
    ([dict(name="length")], "max_tokens"),
    ([dict(weight=1.0)], "'name'"),
    ([dict(name="exact", weight=float("nan"))], "finite"),
    ([dict(name="exact"), dict(name="exact", casefold=True)], "used twice"),
    ([dict(name="number", rel_tol=-0.1)], "rel_tol"),
    ([dict(name="user verifiers:behave")], "package.module:builder"),
    ([dict(name="__main__:behave")], "__main__"),
    ([dict(name="no_such_module:behave")], "no_such_module"),
    ([dict(name="user_verifiers:behaves")], "behaves"),
    ([dict(name="user_verifiers:behave", wrong=1)], "wrong"),
    ([dict(name="user_verifiers:cannot_be_built")], "no licence file"),
  ],
)
def test_bad_specs_are_named_at_construction(specs, words):
  with pytest.raises(ValueError, match=words):
    VerifierPool(specs, num_workers=1)


def test_closed_pool_and_bad_numbers_raise():
  pool = VerifierPool(["exact"], num_workers=1)
  pid = pool.worker_pids[0]
  pool.close()
  pool.close()
  with pytest.raises(ProcessLookupError):
    os.kill(pid, 0)
  with pytest.raises(ValueError, match="closed"):
    pool.verify([Sample("a", "a")])
  for name in ("num_workers", "timeout_secs", "max_retries"):
    with pytest.raises(ValueError, match=name):
      VerifierPool(["exact"], **{name: -1})


def test_a_script_without_main_guard_works_and_its_workers_die_with_it(tmp_path):
  script = tmp_path / "script.py"
  script.write_text(
    "import os, signal\n"
    "from rlvr_jax.rewards import Sample, VerifierPool\n"
    "pool = VerifierPool(['exact'], num_workers=2)\n"
    "print(pool.verify([Sample('a', 'a')])[0]['exact'].status, *pool.worker_pids, flush=True)\n"
    "os.kill(os.getpid(), signal.SIGKILL)\n"
  )
  run = subprocess.run(
    [sys.executable, str(script)],
    capture_output=True,
    text=True,
    timeout=60,
    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
  )
  status, *pids = run.stdout.split()
  assert status == "ok", run.stderr
  deadline = time.monotonic() + 10
  while any(_runs(p) for p in pids) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not any(_runs(p) for p in pids)


def test_a_hung_worker_does_not_outlive_its_parent_for_long(tmp_path):
  script = tmp_path / "script.py"
  script.write_text(
    "import os, signal, threading\n"
    "from rlvr_jax.rewards import Sample, VerifierPool\n"
    "pool = VerifierPool(['user_verifiers:behave'], num_workers=1, timeout_secs=0.5)\n"
    "print(pool.worker_pids[0], flush=True)\n"
    "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
    "pool.verify([Sample('hang', 0)])\n"
  )
  path = os.pathsep.join([str(tmp_path), *sys.path])
  run = subprocess.run(
    [sys.executable, str(script)], capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": path}
  )
  deadline = time.monotonic() + 15  # its own alarm: 2 * 0.5 + 5 s
  while _runs(run.stdout.strip()) and time.monotonic() < deadline:
    time.sleep(0.1)
  assert run.stdout.strip() and not _runs(run.stdout.strip()), run.stderr


def _runs(pid):
  try:
    with open(f"/proc/{pid}/stat") as f:
      return f.read().rsplit(")")[-1].split()[0] != "Z"
  except FileNotFoundError:
    return False


def test_importing_the_room_does_not_import_jax():
  code = "import sys, rlvr_jax.rewards.host, rlvr_jax.rewards; print('jax' in sys.modules, 'sympy' in sys.modules)"
  run = subprocess.run(
    [sys.executable, "-c", code],
    capture_output=True,
    text=True,
    timeout=60,
    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
  )
  assert run.stdout.split() == ["False", "False"], run.stderr
