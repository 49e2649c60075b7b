"""The figures of the MOON paper."""

from collections.abc import Iterable, Sequence
from typing import Any

from moonfed.papers.moon_tables import CROWD, SCAFFOLDS, SETTING, many_parties, published_row
from moonfed.papers.recipe import SETS, Line, Recipe, cell, contrasts, make_recipe

EPOCHS = (1, 5, 10, 20, 40)  # ours: the text does not print those of Figure 7
FOUR_MODELS = ("all data", "one party's data", "fedavg, global model", "fedavg, party's model")


def fig2() -> Recipe:
    """How well four models separate the classes."""
    whole = SETTING["solo_epochs"] // SETTING["local_epochs"]
    alike = cell("cifar10", "fedavg")
    cells = (cell("cifar10", "centralised", rounds=whole), cell("cifar10", "solo"), alike, alike)
    lines = [Line(row, "cifar10", run, "separation") for row, run in zip(FOUR_MODELS, cells, strict=True)]
    everything, subset, shared, local = FOUR_MODELS
    claims = contrasts([everything], subset, ["cifar10"]) + contrasts([shared], local, ["cifar10"])
    note = (
        "separation: the silhouette of the test rows' features by class, from -1 to 1; 300 epochs where not specified"
    )
    return make_recipe("fig2", "features of four models", lines, claims, note=note)


def heat_map(id: str, beta: float) -> Recipe:
    """Rows of each class at each party."""
    lines = [Line("std", d, cell(d, "fedavg", data={"beta": beta}), "split std") for d in SETS]
    note = "no training: only the split; the heat map is beside the table"
    return make_recipe(id, f"rows of each class at each party, beta {beta:g}", lines, note=note)


def curves(id: str, title: str, methods: Iterable[str], **rest: Any) -> Recipe:
    """Accuracy by round, also for FedProx with mu = 1."""
    methods = list(methods)
    lines: list[Line] = []
    for d in SETS:
        lines += [Line(m, d, cell(d, m)) for m in methods]
        lines.append(Line("fedprox mu=1", d, cell(d, "fedprox", mu=1.0)))
    rivals = [m for m in methods if m != "moon"]
    claims = [c for rival in rivals for c in contrasts(["moon"], rival, SETS)] + contrasts(
        ["fedprox"], "fedprox mu=1", SETS
    )
    return make_recipe(id, title, lines, claims, **rest)


def by_epochs(id: str, methods: Sequence[str]) -> Recipe:
    """Every method with few and many local epochs."""
    lines = [
        Line(f"{m} E={e}", d, cell(d, m, epochs=e), printed=(published_row(f"{m} E={e}"), d))
        for d in SETS
        for e in EPOCHS
        for m in methods
    ]
    rivals = [m for m in methods if m in ("fedavg", "fedprox")]
    claims = [c for e in EPOCHS for rival in rivals for c in contrasts([f"moon E={e}"], f"{rival} E={e}", SETS)]
    claims += [c for m in methods for c in contrasts([f"{m} E=10"], f"{m} E={EPOCHS[-1]}", SETS)]
    return make_recipe(
        id, "local epochs", lines, claims, note="the document does not print the epochs of its figure: ours"
    )


def crowd_curves(id: str, table: Recipe, **rest: Any) -> Recipe:
    """Accuracy by round with many parties: the runs of a table, read at their end."""
    ends = ("200 rounds", "500 rounds")
    lines = [line for line in table.lines if line.column.endswith(ends)]
    claims = [c for c in table.contrasts if c.text.endswith(ends)]
    return make_recipe(id, table.title, lines, claims, **rest)


def fig11() -> Recipe:
    """Temperature and width of the projection head."""
    lines: list[Line] = []
    for d in SETS:
        lines += [Line(f"tau={t:g}", d, cell(d, "moon", temperature=t)) for t in SETTING["temperature_grid"]]
        lines += [Line(f"dim={n}", d, cell(d, "moon", projection=n)) for n in SETTING["projection_dim_grid"]]
    claims = [
        c
        for d in SETS
        for kind, best, grid in (
            ("tau", SETTING["best_temperature"][d], SETTING["temperature_grid"]),
            ("dim", SETTING["best_projection_dim"][d], SETTING["projection_dim_grid"]),
        )
        for other in grid
        if other != best
        for c in contrasts([f"{kind}={best:g}"], f"{kind}={other:g}", [d])
    ]
    return make_recipe(
        "fig11", "temperature and projection dimension", lines, claims, note="best first, as the text names it"
    )


MOON_FIGURES = (
    fig2(),
    heat_map("fig5", 0.5),
    curves("fig6", "accuracy by round", ("moon", "fedavg", "fedprox", *SCAFFOLDS), reference="flower"),
    by_epochs("fig7", ("moon", "fedavg", "fedprox", *SCAFFOLDS)),
    crowd_curves("fig8", many_parties("table3", "cifar100", CROWD)),
    heat_map("fig9", 0.1),
    heat_map("fig10", 5.0),
    fig11(),
)
