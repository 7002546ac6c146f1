"""Killable worker processes for rewards that may hang, crash or lie: a failure is "could not grade", never a 0.

Each worker leads a process group of its own; at the wall limit the group gets SIGKILL and the worker is replaced. A job
whose worker died is tried once more. No SIGALRM, so it works from any thread.
"""

import json
import math
import os
import queue
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dapo.types import Problem, Score

STARTUP_S = 120.0  # for a worker to import the user's module


def to_score(value: Any) -> Score:
    """One item of a reward function's list as a Score; what is no finite number, bool or Score cannot be graded."""
    if isinstance(value, dict) and value.get("outcome") in ("correct", "incorrect", "ungraded"):
        if value["value"] is not None and not math.isfinite(value["value"]):
            return Score("ungraded", why=f"the reward function returned a Score with value {value['value']}")
        return Score(value["outcome"], value["extracted"], value["why"], value["value"])
    if isinstance(value, bool):
        return Score("correct" if value else "incorrect", extracted="", why="reward function")  # not: no answer
    if isinstance(value, (int, float)) and math.isfinite(value):
        return Score("correct" if value > 0 else "incorrect", extracted="", why="reward function", value=float(value))
    return Score(
        "ungraded", why=f"the reward function returned {value!r}; a finite number, a bool or a Score is needed"
    )


class _Worker:
    """One child process; started when first needed."""

    def __init__(self, module: str, function: str) -> None:
        self._names = (module, function)
        self._process: subprocess.Popen[bytes] | None = None
        self._jobs = self._answers = -1

    def ask(self, job: bytes, limit_s: float) -> bytes | None:
        """The answer line; None if the worker died. Errors: TimeoutError at the wall limit. Kills it in both cases.

        Starting the worker has an allowance of its own, STARTUP_S. Errors: ValueError if the function cannot be loaded.
        """
        self.start()
        deadline = time.monotonic() + limit_s
        try:
            self._write(job, deadline)
            return self._read_line(deadline)
        except TimeoutError:
            self.kill()
            raise
        except (BrokenPipeError, EOFError):
            self.kill()
            return None

    def start(self) -> None:
        """Start the process, if it is not there, and wait until it has loaded the function."""
        if self._process is not None:
            return
        job_read, self._jobs = os.pipe()
        self._answers, answer_write = os.pipe()
        os.set_blocking(self._jobs, False)
        command = [sys.executable, "-m", "dapo.rewards.worker", *self._names, str(job_read), str(answer_write)]
        self._process = subprocess.Popen(command, pass_fds=(job_read, answer_write), start_new_session=True)
        os.close(job_read)
        os.close(answer_write)
        name = ":".join(self._names)
        try:
            hello = json.loads(self._read_line(time.monotonic() + STARTUP_S))
        except (TimeoutError, EOFError):
            self.kill()
            raise ValueError(
                f"reward.verifier = 'python:{name}': its process died or took over {STARTUP_S} s"
            ) from None
        if "error" in hello:
            self.kill()
            raise ValueError(f"reward.verifier = 'python:{name}' cannot be loaded: {hello['error']}")

    def _write(self, job: bytes, deadline: float) -> None:
        while job:
            _, ready, _ = select.select([], [self._jobs], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            job = job[os.write(self._jobs, job[:65536]) :]

    def _read_line(self, deadline: float) -> bytes:
        received = b""
        while not received.endswith(b"\n"):
            ready, _, _ = select.select([self._answers], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise EOFError
            received += part
        return received

    def kill(self) -> None:
        """SIGKILL the worker's whole process group."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._jobs)
        os.close(self._answers)
        self._process = None


class FunctionPool:
    """Runs `module.function(problem: dict, texts: list[str]) -> list` in worker processes."""

    def __init__(self, module: str, function: str, limit_s: float, workers: int = 1) -> None:
        self._limit_s = limit_s
        self._idle: queue.Queue[_Worker] = queue.Queue()
        self._workers = [_Worker(module, function) for _ in range(workers)]
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="reward")

    def start(self) -> None:
        """Load the function now. Errors: ValueError if that fails."""
        for worker in self._workers:
            worker.start()

    def submit(self, problem: Problem, texts: list[str]) -> "Future[list[Score]]":
        return self._threads.submit(self._grade, problem, texts)

    def close(self) -> None:
        """Stop the workers. Waits for jobs that are running, at most the wall limit each."""
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.kill()

    def _grade(self, problem: Problem, texts: list[str]) -> list[Score]:
        fields = {"id": problem.id, "text": problem.text, "answer": problem.answer}
        job = json.dumps({"problem": fields, "texts": texts}).encode() + b"\n"
        worker = self._idle.get()
        try:
            answer = worker.ask(job, self._limit_s) or worker.ask(job, self._limit_s)
        except TimeoutError:
            return self._failed(texts, f"the reward function took more than {self._limit_s:g} s and was killed")
        finally:
            self._idle.put(worker)
        if answer is None:
            return self._failed(texts, "the reward worker died twice on this job")
        return self._scores(json.loads(answer), texts)

    def _scores(self, answer: dict[str, Any], texts: list[str]) -> list[Score]:
        if "error" in answer:
            return self._failed(texts, answer["error"])
        values = answer["values"]
        if not isinstance(values, list) or len(values) != len(texts):
            got = f"a list of {len(values)}" if isinstance(values, list) else f"{values!r}"
            return self._failed(texts, f"the reward function returned {got} for {len(texts)} texts")
        return [to_score(v) for v in values]

    @staticmethod
    def _failed(texts: list[str], why: str) -> list[Score]:
        return [Score("ungraded", why=why) for _ in texts]
