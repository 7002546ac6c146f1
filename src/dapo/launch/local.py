"""One process: everything that a recipe names, checked, built and put into the loop."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from dapo.config import Recipe
from dapo.data.prompts import Prompter, fit
from dapo.data.sources import Fields, Loaded, load_problems
from dapo.data.stream import PromptStream
from dapo.eval.run import Suite, SuiteResult, evaluate
from dapo.launch.console import StepConsole
from dapo.models.loading import Tokens, load_model, load_tokens, max_context, resolve_model_path
from dapo.record.events import read_events
from dapo.record.provenance import make_manifest
from dapo.record.rundir import RunDir, compare_for_resume, compare_manifests, write_atomically
from dapo.rewards.verifier import Verifier, identity, make_verifier
from dapo.rollout.collect import Collected, Collector, Progress, Settings, TooManyUngraded
from dapo.rollout.torch.engine import TorchEngine
from dapo.train import checkpoint, loop
from dapo.train.assemble import make_objective
from dapo.train.estimator import AdvantageEstimator
from dapo.train.optim import MasterAdamW
from dapo.train.policy import LocalPolicy
from dapo.train.recorder import record_abandoned, record_step
from dapo.types import Completion, Group, Problem, Rollout, Sampling, Score

SHOWN = 5  # examples in an error message
EXACT = 1e-5  # largest relative error of a matrix product in float32
EOS_WARNING = 0.5  # warn if more than this share of a step's responses ended by length


@dataclass(frozen=True)
class Prepared:
    """All that can be checked before a model is loaded, checked."""

    recipe: Recipe
    model_path: str
    tokens: Tokens
    prompts: list[tuple[Problem, tuple[int, ...]]]
    suites: tuple[Suite, ...]
    data: dict[str, Any]
    device: torch.device
    dtype: torch.dtype


def choose_device(name: str) -> torch.device:
    """Errors: ValueError if model.device asks for a GPU that is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError('model.device = "cuda" but there is no CUDA device here; use "auto" or "cpu"')
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 on GPUs and on CPUs that multiply it natively, else float32."""
    if name != "auto":
        return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]
    native = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native else torch.float32


def check_gold(problems: list[Problem], verifier: Verifier, name: str) -> None:
    """Every gold answer must score "correct" when given as `Answer: ...`. Errors: ValueError listing some that do not."""
    if name.startswith("python:"):
        return  # the format that a user's function wants is its own; that it can be loaded was checked by start()
    failed = [
        (p, score)
        for p in problems
        for score in verifier.submit(p, [f"Answer: {p.answer}"]).result()
        if score.outcome != "correct"
    ]
    if failed:
        shown = "; ".join(f"{p.id} with {p.answer!r} ({score.why})" for p, score in failed[:SHOWN])
        raise ValueError(
            f"reward.verifier = {name!r} does not accept the gold answers of {len(failed)} of {len(problems)} problems: "
            f"{shown}{'; ...' if len(failed) > SHOWN else ''}. Correct the answers or choose another verifier"
        )


def _load(recipe: Recipe, source: str, split: Any, size: int) -> Loaded:
    fields = Fields(recipe.data.problem_field, recipe.data.answer_field)
    return load_problems(source, split, size, recipe.train.seed, fields, recipe.data.duplicates == "drop")


def _check_context(context: int | None, prompts: list[tuple[Problem, tuple[int, ...]]], max_new_tokens: int) -> None:
    problem, ids = max(prompts, key=lambda item: len(item[1]))
    if context is not None and len(ids) + max_new_tokens > context:
        raise ValueError(
            f"sampling.max_new_tokens = {max_new_tokens}: with the longest prompt ({problem.id}, {len(ids)} tokens) that is "
            f"{len(ids) + max_new_tokens}, beyond the model's context of {context} tokens; use at most "
            f"{context - len(ids)}, or drop long prompts with data.max_prompt_tokens"
        )


def prepare(recipe: Recipe, recipe_folder: Path) -> Prepared:
    """Read the data and the tokenizer and check them against each other. Errors: ValueError naming key and fix."""
    device = choose_device(recipe.model.device)
    loaded = _load(recipe, recipe.data.source, "train", recipe.data.size)
    verifier = make_verifier(recipe.reward.verifier, recipe.reward.time_limit_s)
    try:
        verifier.start()
        check_gold(list(loaded.problems), verifier, recipe.reward.verifier)
    finally:
        verifier.close()
    model_path = resolve_model_path(recipe.model.path, recipe_folder)
    tokens = load_tokens(model_path)
    prompter = Prompter(tokens.tokenizer, recipe.data.template, [(m.role, m.content) for m in recipe.data.messages])
    drop = recipe.data.overlong_prompts == "drop"
    prompts, dropped = fit(loaded.problems, prompter, recipe.data.max_prompt_tokens, drop)
    _check_context(max_context(model_path), prompts, recipe.sampling.max_new_tokens)
    suites, texts, lost = [], {p.text for p, _ in prompts}, {}
    for source in recipe.eval.suites:
        held = _load(recipe, source, "held-out", recipe.eval.size)
        overlap = [p.id for p in held.problems if p.text in texts]
        if overlap:
            raise ValueError(
                f"eval.suites: {len(overlap)} problems of {source!r} are in data.source, first {overlap[0]}"
            )
        chosen, missing = fit(held.problems[: recipe.eval.size], prompter, recipe.data.max_prompt_tokens, drop)
        _check_context(max_context(model_path), chosen, recipe.sampling.max_new_tokens)
        lost[source] = len(missing)
        suites.append(Suite(source, tuple(chosen)))
    data = {
        "source": recipe.data.source,
        "fingerprint": loaded.fingerprint,
        "problems": len(prompts),
        "dropped_duplicates": loaded.dropped_duplicates,
        "dropped_overlong": len(dropped),
        "suites": {s.name: {"problems": len(s.problems), "dropped_overlong": lost[s.name]} for s in suites},
    }
    return Prepared(
        recipe, model_path, tokens, prompts, tuple(suites), data, device, choose_dtype(recipe.model.dtype, device)
    )


def exact_matmul_precision() -> str:
    """The fastest setting of torch's float32 matmul on this CPU that is accurate to float32, found by trying.

    "medium" is so on AVX-512, at twice the speed; on CPUs with AMX it multiplies in bfloat16, with relative errors of 3e-3.
    """
    left, right = torch.rand(2, 256, 256, generator=torch.Generator().manual_seed(0)) - 0.5
    exact = left.double() @ right.double()
    torch.set_float32_matmul_precision("medium")
    error = float((left @ right - exact).abs().max() / exact.abs().max())
    return "medium" if error < EXACT else "highest"


def set_up_torch(recipe: Recipe, device: torch.device) -> None:
    """Threads, and determinism on CPUs: a resumed run must end with the very same bits."""
    torch.manual_seed(recipe.train.seed)
    torch.set_num_threads(recipe.launch.threads or os.cpu_count() or 1)
    if device.type == "cpu":
        torch.set_float32_matmul_precision(exact_matmul_precision())
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _group_from_json(raw: Mapping[str, Any]) -> Group:
    rollouts = tuple(
        Rollout(
            Completion(**{**r["completion"], **{k: tuple(r["completion"][k]) for k in ("token_ids", "logp_gen")}}),
            r["text"],
            Score(**r["score"]),
            r["reward"],
            r["punishment"],
        )
        for r in raw["rollouts"]
    )
    old = raw["logp_old"]
    return Group(
        raw["group_id"],
        Problem(**raw["problem"]),
        tuple(raw["prompt_ids"]),
        rollouts,
        raw["version"],
        None if old is None else tuple(map(tuple, old)),
    )


class LocalRun:
    """A run in this process: it owns model, engine and record, and is the loop's observer."""

    def __init__(self, prepared: Prepared, run: RunDir, view: StepConsole) -> None:
        recipe = prepared.recipe
        self.prepared, self.recipe, self.run, self.view = prepared, recipe, run, view
        self.started = time.monotonic()
        self._signalled = False
        self._model = load_model(prepared.model_path, prepared.dtype, prepared.device, len(prepared.tokens.tokenizer))
        sampling = Sampling(
            recipe.sampling.temperature, recipe.sampling.top_p, recipe.sampling.top_k, recipe.sampling.max_new_tokens
        )
        self._engine = TorchEngine(self._model, prepared.tokens.eos, recipe.rollout.max_rows)
        self._verifier = make_verifier(recipe.reward.verifier, recipe.reward.time_limit_s)
        optimizer = MasterAdamW(
            self._model.named_parameters(),
            (recipe.train.beta1, recipe.train.beta2),
            recipe.train.weight_decay,
            recipe.train.grad_clip,
        )
        soft = recipe.algo.length == "soft-punishment"
        settings = Settings(
            prompts_per_step=recipe.rollout.prompts_per_step,
            group_size=recipe.rollout.group_size,
            max_prompts_per_step=recipe.max_prompts_per_step,
            surplus=recipe.rollout.surplus,
            filter=recipe.algo.filter,
            sampling=sampling,
            seed=recipe.train.seed,
            reward_correct=recipe.reward.correct,
            reward_incorrect=recipe.reward.incorrect,
            reward_no_answer=recipe.reward.no_answer,
            max_ungraded=recipe.reward.max_ungraded,
            overlong=(recipe.L_max, recipe.L_cache) if soft else None,
        )
        stream = PromptStream(len(prepared.prompts), recipe.train.seed)
        self.state = loop.LoopState(
            recipe=recipe,
            engine=self._engine,
            policy=LocalPolicy(
                self._model,
                optimizer,
                make_objective(recipe.algo),
                recipe.sampling.temperature,
                reference=recipe.algo.kl_coef > 0,
            ),
            collector=Collector(
                self._engine, self._verifier, prepared.prompts, stream, prepared.tokens.decode, settings
            ),
            advantages=AdvantageEstimator(recipe.algo.advantage),
            device=prepared.device,
        )
        self.evaluated: dict[int, list[dict[str, Any]]] = {}

    def resume(self, manifest: dict[str, Any]) -> None:
        """Take up the newest whole checkpoint; from the start if there is none yet. The manifest is today's."""
        checkpoint.clean(self.run.checkpoints)
        found = checkpoint.load_latest(self.run.checkpoints, self.view.say)
        if found is not None:
            saved = found.state
            self.state.policy.load_state(found.weights, found.moments)
            self.state.collector.load_state_dict(saved["collector"])
            self.state.advantages.load_state_dict(saved["advantages"])
            self.state.collector.carried = [_group_from_json(g) for g in saved["carried"]]
            self.state.step, self.state.bad_updates = saved["step"], saved["bad_updates"]
        step = self.state.step
        today = {key: manifest[key] for key in ("code", "libraries", "hardware")}
        self.run.events.write("resume", step=step, checkpoint=found.path.name if found else None, **today)
        self.view.say(f"resumed after step {step}" + ("" if found else " (no checkpoint yet: from the start)"))
        for event in read_events(self.run.path / "events.jsonl"):
            if event["kind"] == "eval":
                self.evaluated[event["step"]] = event["suites"]

    # the loop's observer

    def on_progress(self, step: int, progress: Progress) -> None:
        speed = progress.tokens / max(progress.seconds, 1e-9)
        note = f"step {step}: {progress.finished} groups finished, {speed:.0f} tokens/s"
        self.view.inner("groups", progress.found, progress.wanted, note)

    def on_step(self, result: loop.StepResult) -> None:
        event = record_step(self.run, self.recipe, result)
        self.view.step(event)
        if (event["truncated"] or 0) > EOS_WARNING:
            self.view.say(
                f"warning: {event['truncated']:.0%} of the responses ended at sampling.max_new_tokens = "
                f"{self.recipe.sampling.max_new_tokens} without an end-of-sequence token"
            )

    def on_abandoned(self, step: int, collected: Collected, why: str) -> None:
        record_abandoned(self.run, self.recipe, step, collected, why)

    def say(self, text: str) -> None:
        self.view.say(text)

    def on_evaluate(self, step: int) -> None:
        """Evaluate all suites, once at each step: a resumed run keeps what it knows."""
        if step in self.evaluated or not self.prepared.suites:
            return
        ends = step in (0, self.recipe.train.steps)
        k = self.recipe.eval.k if ends else self.recipe.eval.k_on_the_way
        sampling = Sampling(
            self.recipe.eval.temperature, self.recipe.eval.top_p, 0, self.recipe.sampling.max_new_tokens
        )
        results = []
        for suite in self.prepared.suites:
            results.append(
                evaluate(
                    suite,
                    self._engine,
                    self._verifier,
                    self.prepared.tokens.decode,
                    sampling,
                    k,
                    self.recipe.train.seed,
                    lambda done, total, name=suite.name: self.view.inner("eval", done, total, name),  # type: ignore[misc]
                    self.should_stop,
                )
            )
        self.evaluated[step] = [r.summary() for r in results]
        if ends:
            self._write_answers(step, results)
        self.run.events.write("eval", step=step, suites=self.evaluated[step])
        self.view.evaluation(step, results)

    def _write_answers(self, step: int, results: list[SuiteResult]) -> None:
        folder = self.run.path / "eval"
        folder.mkdir(exist_ok=True)
        rows = [
            {
                "suite": result.name,
                "id": problem.id,
                "problem": problem.text,
                "answer": problem.answer,
                "replies": [{"text": a.text, "outcome": a.score.outcome, "length": a.length} for a in answers],
            }
            for suite, result in zip(self.prepared.suites, results, strict=True)
            for (problem, _), answers in zip(suite.problems, result.answers, strict=True)
        ]
        write_atomically(folder / f"step-{step:06d}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def on_checkpoint(self, step: int, state: loop.LoopState) -> None:
        """Save, unless a checkpoint of this very state is there: a step's second state gets a revision."""
        carried = [asdict(g) for g in state.collector.carried]
        saved = {
            "step": step,
            "bad_updates": state.bad_updates,
            "collector": state.collector.state_dict(),
            "advantages": state.advantages.state_dict(),
            "carried": carried,
        }
        newest = checkpoint.listing(self.run.checkpoints)[-1:]
        if newest and json.dumps(json.loads((newest[0] / checkpoint.STATE).read_text())) == json.dumps(saved):
            return
        name = checkpoint.next_name(self.run.checkpoints, step)
        weights, moments = state.policy.state()
        checkpoint.save(self.run.checkpoints, name, weights, moments, saved, self._add_model_files)
        checkpoint.purge(self.run.checkpoints, self.recipe.train.keep_checkpoints)
        self.run.events.write("checkpoint", step=step, name=name)

    def _add_model_files(self, folder: Path) -> None:
        self._model.config.save_pretrained(folder)
        self._model.generation_config.save_pretrained(folder)
        self.prepared.tokens.tokenizer.save_pretrained(folder)

    def should_stop(self) -> bool:
        return self._signalled

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM asks for a stop at the next safe point; the second ends the process at once."""

        def ask(number: int, _frame: FrameType | None) -> None:
            if self._signalled:
                os._exit(128 + number)
            self._signalled = True
            os.write(2, b"stopping at the next safe point; once more to stop at once (checkpoints stay whole)\n")

        old = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def train(self) -> None:
        """Run the loop to its end, writing how it ended. Errors: those of loop.run."""
        try:
            with self.signals():
                loop.run(self.state, self)
        except (loop.Stopped, loop.Underfilled, loop.NotFinite, TooManyUngraded, ValueError, OSError) as error:
            self.run.events.write("stop", step=self.state.step, why=str(error), error=type(error).__name__)
            raise
        finally:
            self._verifier.close()
        self.run.events.write("end", step=self.state.step, seconds=time.monotonic() - self.started)


def start(prepared: Prepared, out: Path, resume: bool, view: StepConsole) -> LocalRun:
    """Open or make the run directory, check that a resume may go on, load the model. Errors: ValueError."""
    run = RunDir(out)
    recipe = prepared.recipe
    set_up_torch(recipe, prepared.device)
    manifest = make_manifest(
        recipe,
        prepared.data,
        identity(recipe.reward.verifier),
        prepared.model_path,
        torch.cuda.get_device_name() if prepared.device.type == "cuda" else "cpu",
        str(prepared.dtype).removeprefix("torch."),
    )
    exists = (out / "recipe.toml").exists()
    if exists and not resume:
        raise ValueError(f"{out} holds a run already; continue it with --resume, or choose another --out")
    if exists:
        changed = compare_for_resume(out, recipe)
        compare_manifests(run.manifest(), manifest)
        if changed:
            view.say("changed since the run began: " + ", ".join(f"{k}: {a} -> {b}" for k, (a, b) in changed.items()))
            run.events.write("changed", keys={k: list(v) for k, v in changed.items()})
    elif resume:
        view.say(f"{out} holds no run yet: starting from the beginning")
    local = LocalRun(prepared, run, view)
    if exists:
        local.resume(manifest)
    else:
        run.begin(recipe, manifest)
        run.events.write("start", step=0, problems=len(prepared.prompts))
    return local
