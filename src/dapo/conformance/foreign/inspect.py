"""Whose configuration a file is, what it says of each part of DAPO, and what its run may honestly be called."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from dapo.conformance.foreign import flags, hugging_face, trees, verl
from dapo.conformance.foreign.config import Config
from dapo.conformance.foreign.parts import (
    CLIP,
    CORE,
    KL,
    OVERLONG,
    RATIO,
    REWARD,
    SAMPLING,
    STD,
    TOKENS,
    Finding,
    slips,
)
from dapo.conformance.foreign.read import read


@dataclass(frozen=True)
class System:
    """A system whose configurations can be read.

    version: the one that the mapping was read from. entries: modules, scripts or commands that launch it, as they end. owns: by
    its keys, where no entry is known. view: the settings by the names that `inspect` knows.
    """

    name: str
    version: str
    entries: tuple[str, ...]
    owns: Callable[[Config], bool]
    inspect: Callable[[Config], list[Finding]]
    view: Callable[[Config], Config] = lambda config: config


SYSTEMS = (
    System("verl", "2026-08-22 (1dda039b9)", (verl.MAIN_PPO, verl.RECIPE, verl.ASYNC), verl.is_verl, verl.inspect_verl),
    System("EasyR1", "2026-07-30", ("verl.trainer.main",), verl.is_easyr1, verl.inspect_easyr1),
    System("ms-swift", "2026-08-22", ("swift rlhf", "megatron rlhf"), hugging_face.is_swift, hugging_face.inspect_swift),
    System("TRL", "2026-07-24 (1.16.0)", ("trl grpo",), hugging_face.is_trl, hugging_face.inspect_trl, hugging_face.view_trl),
    System("OpenRLHF", "0.11.0, 2026-08-13 (3c3be623)", ("openrlhf.cli.train_ppo_ray",), flags.is_openrlhf,
           flags.inspect_openrlhf),
    System("open-instruct", "2026-08-20", ("open_instruct.grpo_fast", "open_instruct.grpo"), flags.is_open_instruct,
           flags.inspect_open_instruct),
    System("slime", "2026-08-21", (), flags.is_slime, flags.inspect_slime),
    System("NeMo-RL", "2026-08-22 (7ea279abf)", ("run_grpo_math", "run_grpo"), trees.is_nemo, trees.inspect_nemo),
    System("SkyRL", "2026-08-21", (trees.SKYRL_DAPO, "entrypoints.main_base"), trees.is_skyrl, trees.inspect_skyrl),
    System("prime-rl", "2026-08-21", ("run rl",), trees.is_prime, trees.inspect_prime),
    System("ROLL", "2026-08-19", ("start_rlvr_pipeline",), trees.is_roll, trees.inspect_roll),
    System("AReaL", "2026-08-22", ("areal.launcher.local", "areal.launcher.ray", "areal.launcher.slurm"), trees.is_areal,
           trees.inspect_areal),
)  # fmt: skip
ON = ("on-as-paper", "on-different-value")
NOTHING = ("off", "set-but-no-effect", "conflict", "unknown-key")


@dataclass(frozen=True)
class Inspection:
    """A foreign file, judged. `conforms`: nothing in it contradicts DAPO, and nothing is left to code."""

    system: str
    version: str
    findings: tuple[Finding, ...]
    conforms: bool
    sentence: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def inspect_file(path: Path) -> Inspection:
    """Errors: ValueError if the file cannot be read, or holds no launch of a known system, or several; OSError."""
    launches = read(path)
    owned = [(system, replace(c, entry=entry)) for c in launches for system, entry in _by_entry(c.words)]
    if not owned:
        owned = [(system, c) for c in launches for system in SYSTEMS if system.owns(c)]
    names = list(dict.fromkeys(system.name for system, _ in owned))
    if len(names) != 1:
        known = ", ".join(system.name for system in SYSTEMS)
        found = f"it looks like {' and '.join(names)}" if names else "no system's keys or entry point were found"
        raise ValueError(
            f"{path}: cannot tell whose configuration this is: {found}; known are {known}, and dapo's recipes"
        )
    system, config = owned[0]
    if any(other.settings != config.settings for _, other in owned):
        raise ValueError(f"{path} launches {len(owned)} runs with different settings; put each into a file of its own")
    try:
        config = system.view(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    findings = system.inspect(config)
    findings += slips(config)
    return Inspection(system.name, system.version, tuple(findings), *conclude(findings, "dapo" in path.stem.lower()))


def _by_entry(words: Sequence[str]) -> list[tuple[System, str]]:
    """The systems that a command launches, with the module, script or command that says so."""
    named = [w.removesuffix(".py").replace("/", ".") if w.endswith(".py") else w for w in words if "=" not in w]
    named += [f"{a.rpartition('/')[2]} {b}" for a, b in pairwise(words)]
    return [
        (system, entry)
        for system in SYSTEMS
        for entry in system.entries
        if any(word == entry or word.endswith(f".{entry}") for word in named)
    ]


def state(findings: Sequence[Finding], part: str) -> str:
    """One word for a part: on, different, off or code; the worst of its findings counts."""
    verdicts = [f.verdict for f in findings if f.part == part]
    if "conflict" in verdicts or not any(v in ON or v == "needs-code" for v in verdicts):
        return "off"
    if "needs-code" in verdicts:
        return "code"
    return "different" if "on-different-value" in verdicts else "on"


def conclude(findings: Sequence[Finding], named_dapo: bool) -> tuple[bool, str]:
    """(nothing contradicts DAPO and nothing is left to code, the sentence): what a run of this file may be called."""
    states = {part: state(findings, part) for part in CORE}
    beside = [f for f in findings if f.part not in CORE]
    off = [part for part in CORE if states[part] == "off"] + [
        f.part for f in beside if f.part == RATIO and f.verdict == "off"
    ]
    clash = [f.part for f in beside if f.verdict == "conflict"]
    code = [part for part in CORE if states[part] == "code"] + [f.part for f in beside if f.verdict == "needs-code"]
    different = [part for part in CORE if states[part] == "different"]
    different += [
        f.part for f in beside if f.verdict == "on-different-value" or (f.part == REWARD and f.verdict == "off")
    ]
    if off or clash:
        return False, _refusal(off, clash, code) + ("; the file's name says dapo" if named_dapo else "")
    if code:
        return False, f"DAPO only if its code does what the file leaves open: {', '.join(dict.fromkeys(code))}"
    if different:
        return True, f"DAPO with named departures, by configuration: {', '.join(dict.fromkeys(different))}"
    return True, "DAPO by configuration; what a run did is for its record to show"


def _refusal(off: list[str], clash: list[str], code: list[str]) -> str:
    on = [part for part in (CLIP, SAMPLING, TOKENS, OVERLONG) if part not in off and part not in code]
    base = "GRPO" if STD not in off else "a policy gradient without the group's deviation"
    has = f" with {', '.join(on)}" if on else ""
    kl = " and a KL term" if KL in off else ""
    lacks = [part for part in off if part != KL]
    pieces = [f"it lacks {', '.join(lacks)}"] if lacks else []
    pieces += [f"conflict in {', '.join(clash)}"] if clash else []
    pieces += [f"left to code: {', '.join(dict.fromkeys(code))}"] if code else []
    return "; ".join([f"not DAPO: {base}{has}{kl}", *pieces])
