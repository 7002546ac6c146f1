"""Clauses about what is learned from: groups, rewards, punishments, advantages; from the recorded rollouts."""

import math
from statistics import fmean, pvariance, stdev

from dapo.algo.filters import is_informative
from dapo.algo.length import soft_overlong_punishment
from dapo.conformance.clipping import TOLERANCE, Judge, Result
from dapo.conformance.evidence import Evidence, GroupRows, Json

UNRECORDED = "not recorded:"  # how the evidence begins where it is the record that lacks something, not the occasion


def needs_groups(judge: Judge) -> Judge:
    """What the recorded rollouts contradict fails; nothing is shown unless those of every step were recorded."""

    def guarded(e: Evidence) -> Result:
        lost = [s["step"] for s in e.steps if not e.of(s)]
        if not e.groups:
            return "not shown", f"{UNRECORDED} no rollouts at all"
        result = judge(e)
        return ("not shown", f"{UNRECORDED} the rollouts of step {lost[0]}") if lost and result[0] != "fail" else result

    return guarded


def needs_resampling(judge: Judge) -> Judge:
    """Fails where the recipe does not resample: what was not even tried is not merely unseen."""

    def guarded(e: Evidence) -> Result:
        if e.recipe.algo.filter != "resample":
            return "fail", f"the run did not resample (algo.filter = {e.recipe.algo.filter!r})"
        return judge(e)

    return guarded


def _is_mixed(group: GroupRows) -> bool:
    return is_informative(group.n_correct, len(group.graded))


def only_mixed_groups_are_trained(e: Evidence) -> Result:
    """0 < correct < graded in every trained group."""
    bad = [g for g in e.trained if not _is_mixed(g)]
    if bad:
        g = bad[0]
        return "fail", (
            f"{len(bad)} of {len(e.trained)} trained groups had all answers alike, first in step {g.step} "
            f"({g.n_correct} of {len(g.graded)} correct)"
        )
    if not e.trained:
        return "not shown", "no group was trained"
    return "pass", f"all {len(e.trained)} trained groups had 0 < correct < graded"


def dropped_groups_are_replaced(e: Evidence) -> Result:
    """Every step trained on a full batch although groups were dropped."""
    n = e.recipe.rollout.prompts_per_step
    dropped = sum(s["groups"]["all_right"] + s["groups"]["all_wrong"] for s in e.steps)
    for s in e.recorded_steps:
        there = sum(g.has("trained") for g in e.of(s))
        if there != s["groups"]["kept"]:
            return "fail", f"step {s['step']}: {s['groups']['kept']} groups are said to be trained, {there} were"
    short = [s for s in e.steps if s["groups"]["kept"] < n]
    if short:
        s = short[0]
        first = f"first step {s['step']}: {s['groups']['kept']}"
        return "fail", f"{len(short)} steps trained on fewer than {n} groups, {first}"
    if not dropped:
        return "not shown", "no group had all answers alike: nothing was to be replaced"
    offered = sum(s["groups"]["offered"] for s in e.steps)
    return "pass", f"{dropped} groups dropped; {offered} prompts offered for {len(e.steps)} full batches of {n}"


def filter_sees_correctness_only(e: Evidence) -> Result:
    """No mixed group was dropped, and none was kept for its shaped rewards."""
    wrong = [g for g in e.filtered if _is_mixed(g)]
    if wrong:
        return "fail", f"{len(wrong)} groups with right and wrong answers were dropped, first in step {wrong[0].step}"
    phantom = [g for g in e.trained if not _is_mixed(g) and len(g.shaped) > 1]
    if phantom:
        return (
            "fail",
            f"{len(phantom)} groups were kept for their shaped rewards alone, first in step {phantom[0].step}",
        )
    telling = [g for g in e.filtered if len(g.shaped) > 1]
    if not telling:
        return "not shown", f"none of {len(e.filtered)} dropped groups had rewards that differ by length"
    return "pass", f"{len(telling)} of {len(e.filtered)} dropped groups had rewards that differ by length only"


def no_filter(e: Evidence) -> Result:
    """Groups with all answers alike are trained like any other."""
    if e.filtered:
        return "fail", f"{len(e.filtered)} groups were dropped for having all answers alike"
    alike = [g for g in e.trained if not _is_mixed(g)]
    if not alike:
        return "not shown", "no group had all answers alike"
    return "pass", f"{len(alike)} groups with all answers alike were trained"


def punishment_follows_the_formula(e: Evidence) -> Result:
    """Soft Overlong Punishment, response by response."""
    r = e.recipe
    if r.algo.length != "soft-punishment":
        return "fail", f"long responses were not punished (algo.length = {r.algo.length!r})"
    expected = [soft_overlong_punishment(row["length"], r.L_max, r.L_cache) for row in e.graded]
    for row, p in zip(e.graded, expected, strict=True):
        if abs(row["punishment"] - p) > TOLERANCE:
            return "fail", (
                f"a response of {row['length']} tokens was given {row['punishment']:g}; with L_max = {r.L_max}, "
                f"L_cache = {r.L_cache} the formula gives {p:g}"
            )
    punished = sum(p < 0 for p in expected)
    if not punished:
        return "not shown", f"no response was longer than L_max - L_cache = {r.L_max - r.L_cache} tokens"
    return "pass", f"{punished} of {len(expected)} responses punished, all by the formula"


def no_punishment(e: Evidence) -> Result:
    """The reward is for the answer alone."""
    punished = sum(row["punishment"] != 0 for row in e.graded)
    if punished:
        return "fail", f"{punished} responses were punished for their length"
    return "pass", f"none of {len(e.graded)} responses was punished"


def rewards_are_plus_minus_one(e: Evidence) -> Result:
    """+1 if correct, else -1."""
    wrong = [r for r in e.graded if r["reward"] != (1.0 if r["outcome"] == "correct" else -1.0)]
    if wrong:
        return (
            "fail",
            f"{len(wrong)} rewards are not +1 for correct, -1 for incorrect; the first is {wrong[0]['reward']:g}",
        )
    return "pass", f"{len(e.graded)} rewards are +1 for correct, -1 for incorrect"


def rewards_tell_wrong_from_missing(e: Evidence) -> Result:
    """1 if correct, 0 if an answer is wrong, -1 if there is none."""
    for r in e.graded:
        expected = 1.0 if r["outcome"] == "correct" else -1.0 if r["extracted"] is None else 0.0
        if r["reward"] != expected:
            what = "no answer" if r["extracted"] is None else f"answer {r['extracted']!r} ({r['outcome']})"
            return "fail", f"a response with {what} was given {r['reward']:g}, expected {expected:g}"
    return "pass", f"{len(e.graded)} rewards are 1 for correct, 0 for wrong, -1 for no answer"


def _shaped(rows: list[Json]) -> list[float]:
    return [r["reward"] + r["punishment"] - (r["kl_penalty"] or 0.0) for r in rows]


def _compare(group: GroupRows, expected: list[float]) -> str | None:
    for row, value in zip(group.graded, expected, strict=True):
        if row["advantage"] is None:
            return f"step {group.step}: a graded response of a trained group has no advantage"
        if not math.isclose(row["advantage"], value, rel_tol=1e-4, abs_tol=1e-5):
            return f"step {group.step}: advantage {row['advantage']:.6f}, expected {value:.6f}"
    return None


def advantages_are_group_normalised(e: Evidence) -> Result:
    """(R - mean) / (std + 1e-6) with the unbiased standard deviation of the group."""
    checked = 0
    for g in (g for g in e.trained if len(g.graded) > 1):
        rewards = _shaped(g.graded)
        center, scale = fmean(rewards), stdev(rewards) + 1e-6
        if wrong := _compare(g, [(reward - center) / scale for reward in rewards]):
            return "fail", wrong
        checked += len(rewards)
    if not checked:
        return "not shown", "no trained group"
    return "pass", f"{checked} advantages equal (R - mean) / (std + 1e-6) of their group"


TIE = 1e-9  # blends of one magnitude: the second is taken


def _smooth(rewards: list[float], i: int, mean: float, var: float) -> tuple[list[float], float, float]:
    """(advantages, mean and variance over all visits) of the i-th visit, i from 1."""
    new_mean, new_var = fmean(rewards), pvariance(rewards) if len(set(rewards)) > 1 else 0.0
    total_mean = (new_mean + (i - 1) * mean) / i
    total_var = (new_var + (i - 1) * var + (i - 1) / i * (mean - new_mean) ** 2) / i
    out = []
    for reward in rewards:
        new = (reward - new_mean) / math.sqrt(new_var) if new_var > 0 else 0.0
        total = (reward - total_mean) / math.sqrt(total_var) if total_var > 0 else 0.0
        blends = ((i - 1) / i * new + total / i, new / i + (i - 1) / i * total)
        out.append(blends[0] if abs(blends[0]) < abs(blends[1]) * (1 - TIE) else blends[1])
    return out, total_mean, total_var


def advantages_are_smooth(e: Evidence) -> Result:
    """Smooth advantage standardisation, recomputed from every visit to every prompt."""
    if len(e.recorded_steps) < len(e.steps):
        return "not shown", f"{UNRECORDED} visits cannot be counted where steps are missing"
    visits: dict[str, tuple[int, float, float]] = {}
    again = alive = 0
    for g in e.visited:
        name = g.rows[0]["problem_id"]
        count, mean, var = visits.get(name, (0, 0.0, 0.0))
        expected, mean, var = _smooth(_shaped(g.graded), count + 1, mean, var)
        visits[name] = (count + 1, mean, var)
        if not g.has("trained"):
            continue
        if wrong := _compare(g, expected):
            return "fail", f"{wrong} on visit {count + 1} to {name}"
        again += count > 0
        alive += count > 0 and not _is_mixed(g) and any(expected)
    if not again:
        return "not shown", "no prompt was rolled out twice: nothing was smoothed"
    return "pass", (
        f"all advantages follow the visits to their prompts; {again} groups were later visits, and {alive} of those had all "
        f"answers alike and still a gradient"
    )


def samples_are_current(e: Evidence) -> Result:
    """Every trained response came from the policy of its step."""
    rows = [(g.step, r) for g in e.trained for r in g.rows]
    if not rows:
        return "not shown", "no group was trained"
    old = [r for step, r in rows if r["version"] != step - 1]
    if old:
        return "fail", f"{len(old)} trained responses came from an earlier policy"
    return "pass", f"all {len(rows)} trained responses came from the policy of their step"
