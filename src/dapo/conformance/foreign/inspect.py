"""Whose configuration a file is, what it says of each part of DAPO, and what its run may honestly be called."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dapo.conformance.foreign import flags, hugging_face, trees, verl
from dapo.conformance.foreign.config import Config
from dapo.conformance.foreign.parts import CLIP, CORE, KL, OVERLONG, SAMPLING, STD, TOKENS, Finding, slips
from dapo.conformance.foreign.read import read


@dataclass(frozen=True)
class System:
    """A system whose configurations can be read. `version`: the one that the mapping was read from."""

    name: str
    version: str
    owns: Callable[[Config], bool]
    inspect: Callable[[Config], list[Finding]]
    view: Callable[[Config], Config] = lambda config: config  # the settings by the names that `inspect` knows


SYSTEMS = (
    System("verl", "2026-08-22 (1dda039b9)", verl.is_verl, verl.inspect_verl),
    System("EasyR1", "2026-07-30", verl.is_easyr1, verl.inspect_easyr1),
    System("ms-swift", "2026-08-22", hugging_face.is_swift, hugging_face.inspect_swift),
    System("TRL", "2026-07-24 (1.16.0)", hugging_face.is_trl, hugging_face.inspect_trl, hugging_face.view_trl),
    System("OpenRLHF", "0.11.0, 2026-08-13 (3c3be623)", flags.is_openrlhf, flags.inspect_openrlhf),
    System("open-instruct", "2026-08-20", flags.is_open_instruct, flags.inspect_open_instruct),
    System("slime", "2026-08-21", flags.is_slime, flags.inspect_slime),
    System("NeMo-RL", "2026-08-22 (7ea279abf)", trees.is_nemo, trees.inspect_nemo),
    System("SkyRL", "2026-08-21", trees.is_skyrl, trees.inspect_skyrl),
    System("prime-rl", "2026-08-21", trees.is_prime, trees.inspect_prime),
    System("ROLL", "2026-08-19", trees.is_roll, trees.inspect_roll),
    System("AReaL", "2026-08-22", trees.is_areal, trees.inspect_areal),
)
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
    """Errors: ValueError if the file cannot be read, or belongs to no known system or to several; OSError."""
    config = read(path)
    owners = [system for system in SYSTEMS if system.owns(config)]
    if len(owners) != 1:
        known = ", ".join(system.name for system in SYSTEMS)
        names = " and ".join(system.name for system in owners)
        found = f"it looks like {names}" if owners else "no system's keys or entry point were found"
        raise ValueError(
            f"{path}: cannot tell whose configuration this is: {found}; known are {known}, and dapo's own recipes"
        )
    (system,) = owners
    config = system.view(config)
    findings = system.inspect(config)
    findings += slips(config)
    name = "dapo" in path.stem.lower()
    return Inspection(system.name, system.version, tuple(findings), *conclude(findings, name))


def state(findings: Sequence[Finding], part: str) -> str:
    """One word for a part: on, different, off or code; the worst of its findings counts."""
    verdicts = [f.verdict for f in findings if f.part == part]
    if "conflict" in verdicts or not any(v in ON or v == "needs-code" for v in verdicts):
        return "off"
    if "needs-code" in verdicts:
        return "code"
    return "different" if "on-different-value" in verdicts else "on"


def conclude(findings: Sequence[Finding], named_dapo: bool) -> tuple[bool, str]:
    """(nothing contradicts DAPO and nothing is open, the sentence): what a run of this file may be called."""
    states = {part: state(findings, part) for part in CORE}
    off = [part for part in CORE if states[part] == "off"]
    code = [part for part in CORE if states[part] == "code"]
    different = [part for part in CORE if states[part] == "different"]
    different += [f.part for f in findings if f.part not in CORE and f.verdict in ("on-different-value", "conflict")]
    caution = "; the file's name says dapo" if named_dapo and off else ""
    if off:
        on = [part for part in (CLIP, SAMPLING, TOKENS, OVERLONG) if part not in off and part not in code]
        base = "GRPO" if STD not in off else "a policy gradient without the group's deviation"
        kl = " and a KL term" if KL in off else ""
        has = f" with {', '.join(on)}" if on else ""
        more = f"; left to code: {', '.join(code)}" if code else ""
        return False, f"not DAPO: {base}{has}{kl}; it lacks {', '.join(off)}{more}{caution}"
    if code:
        return False, f"DAPO only if its code does what the file leaves open: {', '.join(code)}"
    if different:
        return True, f"DAPO with named departures, by configuration: {', '.join(dict.fromkeys(different))}"
    return True, "DAPO by configuration; what a run did is for its record to show"
