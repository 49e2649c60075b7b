"""Draw the curves of published-setting.json beside the figures that Flower's log publishes."""

import json
import statistics
from pathlib import Path

from matplotlib.figure import Figure

HERE = Path(__file__).parent
# Flower's `moon` baseline, one run, seed 0: test accuracy after a round.
FLOWER = {1: 11.08, 2: 17.23, 3: 38.50, 4: 44.48, 5: 48.94, 10: 60.08, 20: 65.53, 30: 67.11, 50: 69.16}
FLOWER |= {70: 70.13, 90: 70.78, 100: 70.71}


def main() -> None:
    """Read the rows, draw mean and range over the seeds, write curve.png and curve.svg."""
    rounds = json.loads((HERE / "published-setting.json").read_text())["rounds"]
    figure = Figure(figsize=(7, 4.2))
    axes = figure.subplots()
    for method, colour, label in (("moon", "#1f6fb4", "MOON, μ = 5"), ("fedavg", "#b4531f", "FedAvg")):
        curves = [[100 * row["accuracy"] for row in rows] for name, rows in rounds.items() if name.startswith(method)]
        points = list(zip(*curves, strict=True))
        x = range(1, len(points) + 1)
        axes.fill_between(x, [min(p) for p in points], [max(p) for p in points], color=colour, alpha=0.18, linewidth=0)
        axes.plot(x, [statistics.fmean(p) for p in points], color=colour, label=f"{label}: mean and range of 3 seeds")
    axes.plot(list(FLOWER), list(FLOWER.values()), "k+", markersize=8, label="MOON in Flower's log, one seed")
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy, %")
    axes.set_xlim(0, len(points) + 1)
    axes.set_ylim(35, 74)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)
    axes.set_title("CIFAR-10, CNN, 10 parties, Dirichlet 0.5, 10 local epochs, split seed 0", fontsize=10)
    figure.tight_layout()
    for kind in ("png", "svg"):
        figure.savefig(HERE / f"curve.{kind}", dpi=150)


if __name__ == "__main__":
    main()
