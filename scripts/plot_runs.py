"""Learning curves of runs of one recipe, as a picture: python scripts/plot_runs.py OUT.png RUN [RUN ...]

Left: accuracy before filtering by family (thin lines) and on held-out problems (dots with 95 % intervals). Right: what
became of the groups that were generated, averaged over the runs.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from dapo.record.events import read_events

COLOURS = ("#0b6e99", "#c2571a", "#4a7c2f", "#7a3b8f")
FATES = {"kept": "#4a7c2f", "all right": "#a8c99a", "all wrong": "#c9a29a"}


def accuracy_panel(axis, runs) -> None:
    families = sorted({f for events in runs for e in events if e["kind"] == "step" for f in e["accuracy_by_family"]})
    for family, colour in zip(families, COLOURS, strict=False):
        for events in runs:
            steps = [e for e in events if e["kind"] == "step" and e["accuracy_by_family"].get(family) is not None]
            axis.plot(
                [e["step"] for e in steps],
                [e["accuracy_by_family"][family] for e in steps],
                color=colour,
                alpha=0.35,
                lw=1,
            )
        points = [
            (e["step"], s)
            for events in runs
            for e in events
            if e["kind"] == "eval"
            for s in e["suites"]
            if s["suite"].endswith(family)
        ]
        spread = np.linspace(-0.3, 0.3, len(runs)) if len(runs) > 1 else [0.0]
        shift = [spread[i] for i, events in enumerate(runs) for e in events if e["kind"] == "eval"]
        x = [p + s for (p, _), s in zip(points, shift, strict=True)]
        y = [s["accuracy"] for _, s in points]
        error = [[s["accuracy"] - s["low"] for _, s in points], [s["high"] - s["accuracy"] for _, s in points]]
        axis.errorbar(x, y, yerr=error, fmt="o", color=colour, ms=4, lw=1, capsize=2, label=f"{family}, held out")
    axis.set(
        xlabel="rollout step",
        ylabel="accuracy",
        ylim=(0, 1),
        title="accuracy: held out (dots), before filtering (lines)",
    )
    axis.legend(loc="lower right", frameon=False)


def fate_panel(axis, runs) -> None:
    steps = min(sum(e["kind"] == "step" for e in events) for events in runs)
    share = {name: np.zeros(steps) for name in FATES}
    for events in runs:
        for i, e in enumerate([e for e in events if e["kind"] == "step"][:steps]):
            g = e["groups"]
            parts = {"all right": g["all_right"], "all wrong": g["all_wrong"]}
            parts["kept"] = g["finished"] - sum(parts.values())
            for name, count in parts.items():
                share[name][i] += count / max(1, g["finished"]) / len(runs)
    axis.stackplot(
        range(1, steps + 1), share.values(), colors=FATES.values(), labels=["mixed (informative)", *list(FATES)[1:]]
    )
    axis.set(
        xlabel="rollout step",
        ylabel="share of finished groups",
        ylim=(0, 1),
        xlim=(1, steps),
        title="what dynamic sampling saw",
    )
    axis.legend(loc="lower left", framealpha=0.9)


def main() -> None:
    out, *folders = sys.argv[1:]
    runs = [read_events(Path(folder) / "events.jsonl") for folder in folders]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    accuracy_panel(axes[0], runs)
    fate_panel(axes[1], runs)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
