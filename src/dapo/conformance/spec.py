"""The clauses: what DAPO, GRPO and DCPO are, each as something that a run's record can show or contradict.

A clause judges what was *observed*: tokens really clipped, groups really dropped and replaced, denominators really used.
"not shown" is for a clause that the run gave no occasion to observe. A failed core clause means "not that algorithm", and so
does one that every run shows and this record does not; any other failed clause is a departure that the verdict names.
Section numbers: DAPO, arXiv 2503.14476; GRPO, arXiv 2402.03300; DCPO, arXiv 2509.02333. Numbers of clauses are stable: new ones
are added at the end.
"""

from dataclasses import dataclass

from dapo.conformance import accounting, clipping, learning
from dapo.conformance.clipping import Judge
from dapo.conformance.learning import needs_groups, needs_resampling


@dataclass(frozen=True)
class Clause:
    """`number` is stable; `part` is the short name that verdicts use. `occasional`: a run may give no occasion to see it."""

    number: str
    part: str
    rule: str
    source: str
    core: bool
    judge: Judge
    occasional: bool = False


def _advantage(number: str, source: str) -> Clause:
    return Clause(number, "advantage", "A = (R - mean) / std within the group", source, True,
                  needs_groups(learning.advantages_are_group_normalised))  # fmt: skip


def _honest(letter: str, first: int) -> tuple[Clause, ...]:
    """What every run shows or contradicts, whatever the algorithm."""
    rows: tuple[tuple[str, str, Judge], ...] = (
        ("old policy", "the ratio is 1 on the first update of a step", accounting.old_policy_is_the_trainers),
        ("on-policy samples", "responses come from the step's policy", needs_groups(learning.samples_are_current)),
        ("ledger", "every generated token has one fate", accounting.ledger_adds_up),
    )
    return tuple(
        Clause(f"{letter}{first + i}", part, rule, "procedure", False, judge)
        for i, (part, rule, judge) in enumerate(rows)
    )


def _unmasked(number: str, source: str) -> Clause:
    return Clause(number, "no overlong filtering", "truncated responses stay in the loss", source, False,
                  needs_groups(accounting.denominators_match_rollouts), occasional=True)  # fmt: skip


def _ratio(letter: str, first: int, source: str) -> tuple[Clause, ...]:
    return (
        Clause(f"{letter}{first}", "token-level ratio", "each token has its own ratio", source, True,
               clipping.ratio_of_each_token, occasional=True),
        Clause(f"{letter}{first + 1}", "no sampler correction", "losses are not weighed by pi_old / pi_engine", source,
               False, clipping.no_correction),
    )  # fmt: skip


DAPO = (
    Clause("D1", "Clip-Higher", "the upper clip bound is raised, and holds", "3.1, eq. 8", True,
           clipping.upper_bound_is_raised, occasional=True),
    Clause("D2", "lower clip", "tokens with A < 0 are clipped below 1 - eps_low", "3.1, eq. 8", False,
           clipping.lower_bound_holds, occasional=True),
    Clause("D3", "clip values", "eps_low 0.2, eps_high 0.28", "4.1", False,
           clipping.clip_values("fixed_bounds", 0.2, 0.28)),
    Clause("D4", "Dynamic Sampling: filter", "groups with 0 or G correct are not trained", "3.2, eq. 11", True,
           needs_groups(learning.only_mixed_groups_are_trained)),
    Clause("D5", "Dynamic Sampling: refill", "dropped groups are replaced until the batch is full", "3.2", True,
           needs_resampling(learning.dropped_groups_are_replaced), occasional=True),
    Clause("D6", "Dynamic Sampling: criterion", "the filter sees correctness, not the shaped reward", "3.2, eq. 11",
           True, needs_resampling(learning.filter_sees_correctness_only), occasional=True),
    Clause("D7", "token-level loss", "tokens weigh the same, whatever their response", "3.3, eq. 8", True,
           accounting.token_level),
    _unmasked("D8", "3.4"),
    Clause("D9", "Soft Overlong Punishment", "the reward falls over the last L_cache tokens", "3.4, eq. 13", True,
           needs_groups(learning.punishment_follows_the_formula), occasional=True),
    Clause("D10", "no KL term", "no divergence from a reference model", "2.3", True, accounting.no_kl),
    Clause("D11", "rule-based reward", "+1 if the answer is equivalent, else -1", "2.4, eq. 7", False,
           needs_groups(learning.rewards_are_plus_minus_one)),
    Clause("D12", "several updates", "several updates a step, so that the clip can act", "4.1", False,
           accounting.several_updates),
    _advantage("D13", "eq. 9"),
    *_honest("D", 14),
    *_ratio("D", 17, "eq. 8"),
    Clause("D19", "no other clip", "the clip acts for A > 0 above and for A < 0 below only", "eq. 8", False,
           clipping.no_other_clip),
)  # fmt: skip

GRPO = (
    Clause("G1", "symmetric clip", "1 - eps to 1 + eps", "eq. 3", True, clipping.symmetric_clip, occasional=True),
    Clause("G2", "no filter", "every group is trained", "4.1", True, needs_groups(learning.no_filter), occasional=True),
    Clause("G3", "sequence-level loss", "token mean in each response, then mean over responses", "eq. 3", True,
           needs_groups(accounting.weights_follow_length("sequence-mean", meaned=True)), occasional=True),
    Clause("G4", "no length punishment", "the reward is for the answer alone", "4.1", True,
           needs_groups(learning.no_punishment)),
    Clause("G5", "KL term", "k3 in the loss, beta 0.04", "eq. 3 and 4", False, accounting.kl_in_loss),
    Clause("G6", "clip values", "eps 0.2", "4.2", False, clipping.clip_values("fixed_bounds", 0.2, 0.2)),
    _advantage("G7", "4.1"),
    *_honest("G", 8),
    *_ratio("G", 11, "eq. 3"),
    Clause("G13", "no other clip", "the clip acts for A > 0 above and for A < 0 below only", "eq. 3", False,
           clipping.no_other_clip),
    _unmasked("G14", "eq. 3"),
)  # fmt: skip

DCPO = (
    Clause("C1", "dynamic adaptive clipping", "the bounds widen as the old probability falls", "dynamic adaptive clipping",
           True, clipping.bounds_follow_the_probability, occasional=True),
    Clause("C2", "clip values", "eps_low 0.16, eps_high 0.2", "experiments", False,
           clipping.clip_values("adaptive_bounds", 0.16, 0.2)),
    Clause("C3", "ratio cap", "for A < 0 the ratio is capped at 10", "dynamic adaptive clipping", False,
           clipping.cap_for_negative_advantages(10.0), occasional=True),
    Clause("C4", "smooth advantage standardisation", "rewards are standardised over all visits to their prompt",
           "smooth advantage standardisation", True, needs_groups(learning.advantages_are_smooth), occasional=True),
    Clause("C5", "no filter", "every group is trained", "experiments", True, needs_groups(learning.no_filter), occasional=True),
    Clause("C6", "only-token-mean loss", "token mean in each response, and the sum over responses", "OTM loss", True,
           needs_groups(accounting.weights_follow_length("only-token-mean", meaned=False)), occasional=True),
    Clause("C7", "no KL term", "no divergence from a reference model", "experiments", True, accounting.no_kl),
    Clause("C8", "no length punishment", "the reward is for the answer alone", "experiments", True,
           needs_groups(learning.no_punishment)),
    Clause("C9", "reward", "1 for correct, 0 for wrong, -1 for no answer", "experiments", False,
           needs_groups(learning.rewards_tell_wrong_from_missing)),
    *_honest("C", 10),
    *_ratio("C", 13, "objective"),
    _unmasked("C15", "OTM loss"),
)  # fmt: skip

SPECS: dict[str, tuple[Clause, ...]] = {"dapo": DAPO, "grpo": GRPO, "dcpo": DCPO}
