"""Golden curves: a few committed figures of tiny runs, so that no change of the numbers goes unnoticed."""

import json
from pathlib import Path

import pytest
from worlds import settings, trained

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
RUNS = {
    "fedavg": settings("fedavg", model__model="cnn", model__norm="group"),
    "moon": settings("moon", model__model="cnn", algorithm__mu=5.0, algorithm__negatives=2),
    "scaffold": settings("scaffold", model__norm="batch"),
    "moon+fedavgm, sampled": settings("moon", algorithm__server="fedavgm", cohort__fraction=0.5),
    "fednova, stragglers": settings("fednova", cohort__stragglers=0.5, train__epochs=4),
    "solo": settings("solo"),
}


def curve(name: str, engine: str) -> list[dict[str, float]]:
    """Losses on the training and test rows, round by round."""
    _, (rows,) = trained(RUNS[name], engine)
    return [{"test_loss": row["test_loss"], **row["losses"]} for row in rows]


@pytest.mark.trains
@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", RUNS)
def test_the_curve_is_the_committed_one(name, engine):
    for now, then in zip(curve(name, engine), GOLDEN[name], strict=True):
        assert now == pytest.approx(then, rel=1e-4)


if __name__ == "__main__":
    print(json.dumps({name: curve(name, "sequential") for name in RUNS}, indent=1))
