"""The worker's side of the pool: `python -m rlvr_jax.rewards.worker FD`, run by `rewards.process` only.

Frames on the socket FD. In: one pickled set-up, then pickled lists of tasks. Out, as JSON so that the parent never
unpickles what a verifier made: "ready" or a fault, then one verdict for every component of every task, in order.
"""

import importlib
import json
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from rlvr_jax.rewards.verdict import Sample, Verdict, verdict

Verifier = Callable[[Sample], Verdict]


def make_verifier(spec: Mapping[str, Any]) -> Verifier:
  """The verifier of `dict(name=..., **options)`; a name "package.module:builder" is imported from there."""
  options = {k: v for k, v in spec.items() if k not in ("name", "weight", "label")}
  module, _, builder = spec["name"].rpartition(":")
  return getattr(importlib.import_module(module or "rlvr_jax.rewards.host"), builder)(**options)


def run_verifier(verifier: Verifier, sample: Sample) -> Verdict:
  """The verifier's verdict; whatever it raises, and anything that is no verdict, is status `error`."""
  try:
    answer = verifier(sample)
    if not isinstance(answer, Verdict):
      raise TypeError(f"a verifier must return a Verdict, got {type(answer).__name__} {answer!r:.80}")
    return verdict(*answer)
  except (Exception, SystemExit) as e:
    return verdict(0.0, "error", f"{type(e).__name__}: {e}")


def _run_task(verifiers: Sequence[Verifier], payload: bytes, start: int):
  """Yields (component, verdict) from component `start` on."""
  try:
    sample = pickle.loads(payload)
  except Exception as e:
    for k in range(start, len(verifiers)):
      yield k, verdict(0.0, "error", f"the worker cannot read the sample: {type(e).__name__}: {e}")
    return
  for k in range(start, len(verifiers)):
    yield k, run_verifier(verifiers[k], sample)


def _limit_memory(memory_mb: int | None) -> None:
  if memory_mb is not None:
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, memory_mb << 20))
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(fd: int) -> None:
  conn, parent = Connection(fd), os.getppid()
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the parent's to handle
  setup = pickle.loads(conn.recv_bytes())
  try:
    _limit_memory(setup["memory_mb"])
    verifiers = [make_verifier(spec) for spec in setup["specs"]]
  except Exception as e:
    conn.send_bytes(json.dumps(dict(fault=f"{type(e).__name__}: {e}")).encode())
    return
  conn.send_bytes(json.dumps("ready").encode())
  while True:
    while not conn.poll(5.0):
      if os.getppid() != parent:  # a forked sibling may hold the parent's end open
        return
    for row, start, payload in pickle.loads(conn.recv_bytes()):
      # The parent keeps the deadline. This alarm, at its default action, ends a hung worker whose parent was killed.
      signal.setitimer(signal.ITIMER_REAL, setup["orphan_secs"])
      for k, answer in _run_task(verifiers, payload, start):
        conn.send_bytes(json.dumps([row, k, *answer]).encode())
        signal.setitimer(signal.ITIMER_REAL, setup["orphan_secs"])
    signal.setitimer(signal.ITIMER_REAL, 0.0)


if __name__ == "__main__":
  try:
    main(int(sys.argv[1]))
  except (EOFError, BrokenPipeError, ConnectionResetError):
    pass  # the parent is gone or has closed the pool
