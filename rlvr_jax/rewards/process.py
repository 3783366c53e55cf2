"""The parent's handle on one worker process: start, talk, kill. Knows nothing of rows or verdicts."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from typing import Any

TAIL_BYTES = 2000
MAX_FRAME_BYTES = 1 << 20


def _environment() -> dict[str, str]:
  """The parent's, with the parent's import path, one thread per worker, no accelerator and a fixed hash order."""
  one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
  path = os.pathsep.join(os.path.abspath(p) for p in sys.path)
  return {**os.environ, **one_thread, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "JAX_PLATFORMS": "cpu"}


class WorkerProcess:
  """One `python -m rlvr_jax.rewards.worker` in its own session, so that killing it takes its children along.

  A fresh interpreter, not fork or multiprocessing's spawn: jax's threads do not survive a fork, and spawn would run the
  user's main module again. Frames travel on a socket of their own; what verifiers print is kept as a short tail.
  """

  def __init__(self, setup: dict[str, Any]):
    self.conn, theirs = multiprocessing.Pipe()
    command = [sys.executable, "-P", "-m", "rlvr_jax.rewards.worker", str(theirs.fileno())]
    self.process = subprocess.Popen(
      command,
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      bufsize=0,
      pass_fds=(theirs.fileno(),),
      env=_environment(),
      start_new_session=True,
    )
    theirs.close()
    self.output = self.process.stdout
    os.set_blocking(self.output.fileno(), False)
    self.tail = b""
    self.ready, self.printing = False, True
    self.started = time.monotonic()
    self.deadline = None
    self.tasks = []  # tasks sent and not fully answered, in order
    self.send(pickle.dumps(setup))

  @property
  def pid(self) -> int:
    return self.process.pid

  def send(self, frame: bytes) -> bool:
    """False when the worker is gone; its end is then noticed by `receive`."""
    try:
      self.conn.send_bytes(frame)
      return True
    except OSError:
      return False

  def receive(self) -> Any:
    """One frame; None when the worker is gone."""
    try:
      return json.loads(self.conn.recv_bytes(MAX_FRAME_BYTES))
    except (EOFError, OSError, ValueError):
      return None

  def drain(self) -> None:
    """Keeps the end of what the worker printed, so that it never blocks on a full pipe."""
    data = self.output.read(1 << 16)
    self.printing = data != b""  # b"" is end of file, None is nothing for now
    self.tail = (self.tail + (data or b""))[-TAIL_BYTES:]

  def kill(self, grace_secs: float = 0.0) -> str:
    """Kills the worker and its children; returns how it ended, with the last line it printed."""
    try:
      code = self.process.wait(grace_secs)
    except subprocess.TimeoutExpired:
      code = None
    try:
      os.killpg(self.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
      pass
    code = self.process.wait() if code is None else code
    self.drain()
    self.conn.close()
    self.output.close()
    last = self.tail.decode("utf-8", "replace").strip().splitlines()[-1:]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return how + (f", last output {last[0][-200:]!r}" if last else "")
