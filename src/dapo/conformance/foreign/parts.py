"""The parts of DAPO as other systems configure them: findings, and the rules that the systems share.

Every rule looks at a few keys of a Config and says what is so, the value and the paper's value, and why.
"""

import difflib
from dataclasses import dataclass
from typing import Any, Literal

from dapo.conformance.foreign.config import Config, Unresolved

Verdict = Literal[
    "on-as-paper", "on-different-value", "off", "set-but-no-effect", "conflict", "needs-code", "unknown-key"
]
CLIP, SAMPLING, TOKENS, OVERLONG = "Clip-Higher", "Dynamic Sampling", "token-level loss", "Soft Overlong Punishment"
KL, STD, MASK, DUAL = "no KL term", "group-normalised advantage", "no overlong filtering", "dual clip"
REWARD, RATIO, OTHER = "rule-based reward", "token-level ratio", "other"
CORE = (CLIP, SAMPLING, TOKENS, OVERLONG, KL, STD)
L_MAX, L_CACHE = 20480, 4096
UNFILTERED = "groups with all answers alike are trained"
OF_MEANS = "the mean is of responses' means"
SLIP = 0.88  # similarity of two names
MOST_SLIPS = 500


@dataclass(frozen=True)
class Finding:
    """One part, judged by configuration. `seen`: the keys with their values; `paper`: what the paper has; `why`: the reason."""

    part: str
    verdict: Verdict
    seen: str
    paper: str
    why: str = ""


def show(c: Config, key: str, default: Any = None) -> str:
    """`key = value`, or that it is not set and what then holds."""
    if c.has(key):
        return f"{key} = {brief(c.settings[key])}"
    return f"{key} not set" + (f" (default {default})" if not c.incomplete else f" ({c.incomplete})")


def brief(value: Any, depth: int = 2) -> str:
    """A value in few words; lists are cut, whatever they hold."""
    if isinstance(value, list):
        inside = ", ".join(brief(v, depth - 1) for v in value[:6]) if depth else "..."
        return f"[{inside}{', ...' if len(value) > 6 else ''}]"
    if isinstance(value, dict):
        return "{...}"
    text = str(value)
    text = text if len(text) <= 200 else f"{text[:200]}..."
    return f"({text})" if isinstance(value, Unresolved) else text


def open_question(*values: Any) -> str:
    """Why something cannot be decided: the first value that is Unresolved; empty if none is."""
    found = next((v for v in values if isinstance(v, Unresolved)), None)
    return f"decided at run time: {found}" if found is not None else ""


def is_number(value: Any) -> bool:
    """True for int and float of a size that a setting can have, not for bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15


def clip_higher(
    c: Config, low_key: str, high_key: str, low: float = 0.2, high: float | None = None, both: str = ""
) -> Finding:
    """Asymmetric ratio bounds. low, high: defaults (None: the upper follows the lower); both: what null falls back to."""
    eps_low, eps_high = c.get(low_key, low), c.get(high_key, high)
    fallback = c.get(both, low) if both else low
    eps_low = fallback if eps_low is None else eps_low
    eps_high = (fallback if both else eps_low) if eps_high is None else eps_high
    seen = f"{show(c, low_key, low)}, {show(c, high_key, high if high is not None else 'the same')}"
    paper = "0.2 / 0.28"
    if why := open_question(eps_low, eps_high):
        return Finding(CLIP, "needs-code", seen, paper, why)
    if not (is_number(eps_low) and is_number(eps_high)):
        return Finding(CLIP, "conflict", seen, paper, "a bound is not a number")
    if (eps_low, eps_high) == (0.2, 0.28):
        return Finding(CLIP, "on-as-paper", seen, paper)
    if eps_high <= eps_low:
        return Finding(CLIP, "off", seen, paper, f"bounds {eps_low:g} / {eps_high:g}: the upper one is not raised")
    return Finding(CLIP, "on-different-value", seen, paper, f"bounds {eps_low:g} / {eps_high:g}")


def switch(c: Config, part: str, key: str, on: Any, default: Any, paper: str, why_off: str = "") -> Finding:
    """A part that one key turns on: on-as-paper if its value is `on` (or one of them), else off."""
    value = c.get(key, default)
    seen = show(c, key, default)
    if why := open_question(value):
        return Finding(part, "needs-code", seen, paper, why)
    wanted = on if isinstance(on, tuple) else (on,)
    if any(value is w if isinstance(w, bool) else value == w for w in wanted):
        return Finding(part, "on-as-paper", seen, paper)
    return Finding(part, "off", seen, paper, why_off)


def zero(c: Config, part: str, terms: dict[str, Any], paper: str = "0") -> Finding:
    """A term that must not be there: off-values are 0, False and "none"; terms: {key: default}, and null is the default."""
    given = {key: c.get(key, default) for key, default in terms.items()}
    values = {key: terms[key] if value is None else value for key, value in given.items()}
    seen = ", ".join(show(c, key, default) for key, default in terms.items())
    present = [key for key, v in values.items() if not isinstance(v, Unresolved) and v not in (0, False, None, "none")]
    if present:
        return Finding(part, "off", seen, paper, f"{present[0]} is {brief(values[present[0]])}")
    if why := open_question(*values.values()):
        return Finding(part, "needs-code", seen, paper, why)
    return Finding(part, "on-as-paper", seen, paper)


@dataclass(frozen=True)
class Soft:
    """What a system's soft overlong punishment would use; `capped`: it never goes below -factor."""

    L_max: Any
    L_cache: Any
    factor: Any
    limit: Any  # of generation, in response tokens
    capped: bool
    seen: str


def soft_overlong(s: Soft) -> Finding:
    """The punishment's numbers against the paper's, the generation limit and each other."""
    paper = f"L_max {L_MAX}, L_cache {L_CACHE}, factor 1, at most -1"
    if why := open_question(s.L_max, s.L_cache, s.factor):
        return Finding(OVERLONG, "needs-code", s.seen, paper, why)
    if not s.capped and (why := open_question(s.limit)):
        return Finding(OVERLONG, "needs-code", s.seen, paper, f"without a cap the generation limit decides; {why}")
    if not all(is_number(v) for v in (s.L_max, s.L_cache, s.factor)):
        return Finding(OVERLONG, "conflict", s.seen, paper, "a length is missing or not a number")
    if not 0 < s.L_cache < s.L_max:
        return Finding(OVERLONG, "conflict", s.seen, paper, f"need 0 < L_cache {s.L_cache} < L_max {s.L_max}")
    if is_number(s.limit) and s.limit > s.L_max and not s.capped:
        worst = -s.factor * (s.limit - (s.L_max - s.L_cache)) / s.L_cache
        return Finding(
            OVERLONG, "conflict", s.seen, paper,
            f"L_max {s.L_max} is below the generation limit {s.limit} and the formula has no cap: down to {worst:.2f}",
        )  # fmt: skip
    if is_number(s.limit) and s.limit != s.L_max:
        return Finding(
            OVERLONG, "on-different-value", s.seen, paper, f"L_max {s.L_max} is not the generation limit {s.limit}"
        )
    if (s.L_max, s.L_cache, s.factor) == (L_MAX, L_CACHE, 1):
        return Finding(OVERLONG, "on-as-paper", s.seen, paper, open_question(s.limit))
    return Finding(
        OVERLONG, "on-different-value", s.seen, paper, f"L_max {s.L_max}, L_cache {s.L_cache}, factor {s.factor:g}"
    )


def dual_clip(c: Config, key: str, default: Any) -> Finding:
    """The cap for negative advantages: 10 in the reproduction's script, absent from the paper."""
    value = c.get(key, default)
    seen = show(c, key, default)
    if why := open_question(value):
        return Finding(DUAL, "needs-code", seen, "none", why)
    if value in (None, False, 0):
        return Finding(DUAL, "on-as-paper", seen, "none")
    if value == 10:
        return Finding(DUAL, "on-as-paper", seen, "none", "from the reproduction's script, not in the paper")
    return Finding(DUAL, "on-different-value", seen, "none", "the reproduction's script has 10")


def stale(c: Config, part: str, keys: dict[str, str]) -> list[Finding]:
    """Keys that this version of the system does not know: {key or prefix.: what it is called now}."""
    found = [
        (k, now)
        for key, now in keys.items()
        for k in c.settings
        if k == key or (key.endswith(".") and k.startswith(key))
    ]
    return [Finding(part, "unknown-key", f"{k} = {c.settings[k]}", "", now) for k, now in found]


def slips(c: Config) -> list[Finding]:
    """Keys that no rule looked at and that are almost a key of the mapping, beside it: probably slips of the pen."""
    found = []
    for key in sorted(set(c.settings) - c.asked)[:MOST_SLIPS]:
        parent, _, name = key.rpartition(".")
        siblings = [k.rpartition(".")[2] for k in c.asked if k.rpartition(".")[0] == parent]
        close = difflib.get_close_matches(name, siblings, 1, SLIP)
        if close:
            why = f"not a key of the mapping; {close[0]} is"
            found.append(Finding(OTHER, "unknown-key", show(c, key), "", why))
    return found


def both_overlong(overlong: Finding | None, masked: Any, seen: str) -> Finding:
    """Soft punishment and masking together are a conflict (DAPO section 3.4: one replaces the other)."""
    if why := open_question(masked):
        return Finding(MASK, "needs-code", seen, "off", why)
    if masked is not True:
        return Finding(MASK, "on-as-paper", seen, "off")
    if overlong and overlong.verdict in ("on-as-paper", "on-different-value", "needs-code"):
        return Finding(
            MASK, "conflict", seen, "off", "truncated responses are masked and punished: alternatives, never both"
        )
    return Finding(MASK, "on-different-value", seen, "off", "overlong filtering, which the soft punishment replaced")


def other(c: Config, key: str, default: Any, why: str) -> list[Finding]:
    """Something that DAPO has not: named if it is on, left to code if that is decided elsewhere."""
    value = c.get(key, default)
    if not isinstance(value, Unresolved) and value in (None, False, 0, "none"):
        return []
    question = open_question(value)
    return [
        Finding(
            OTHER, "needs-code" if question else "on-different-value", show(c, key, default), "off", question or why
        )
    ]


def token_ratio(c: Config, key: str, default: str, fine: tuple[str, ...]) -> list[Finding]:
    """The level of the importance ratio, where a system has a key for it; nothing is said of its default."""
    value = c.get(key, default)
    if value in fine:
        return []
    why = open_question(value) or f"{value}: the ratio or its clip is not the token's"
    return [Finding(RATIO, "needs-code" if open_question(value) else "off", show(c, key, default), "token", why)]
