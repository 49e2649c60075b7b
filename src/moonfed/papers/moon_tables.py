"""The tables of the MOON paper."""

from collections.abc import Iterable
from typing import Any

from moonfed.papers.published import library
from moonfed.papers.recipe import SETS, Contrast, Line, Recipe, cell, contrasts, make_recipe, on_average

SETTING = library().setting
SCAFFOLDS = ("scaffold", "scaffold-niid")
RIVALS = ("fedavg", "fedprox", *SCAFFOLDS, "solo")
TABLE_1 = ("moon", *RIVALS)


def published_row(row: str) -> str:
    """Name the published row: the paper has one SCAFFOLD and does not specify which."""
    return row.replace("scaffold-niid", "scaffold")


def table1() -> Recipe:
    """Accuracy of every method on the three data sets."""
    lines = [Line(m, d, cell(d, m), printed=(published_row(m), d)) for d in SETS for m in TABLE_1]
    average = on_average("moon over fedavg, mean of the data sets", "moon", "fedavg", SETS)
    claims = [c for rival in RIVALS for c in contrasts(["moon"], rival, SETS)]
    return make_recipe("table1", "accuracy of every method", lines, [average, *claims])


def rounds_lines(methods: Iterable[str], columns: Iterable[str] = SETS) -> list[Line]:
    """Lines of rounds to FedAvg's final accuracy, with FedAvg's own first crossing of it."""
    lines: list[Line] = []
    for d in columns:
        base = cell(d, "fedavg")
        for m in methods:
            place = (published_row(m), d)
            lines.append(Line(m, d, cell(d, m), "rounds", base, place))
            lines.append(Line(f"{m}, speed-up", d, cell(d, m), "speed-up", base, (f"{place[0]}, speed-up", d)))
        lines.append(Line("fedavg, first crossing", d, base, "first", base))
    return lines


def rounds_contrasts(rows: Iterable[str], columns: Iterable[str] = SETS) -> list[Contrast]:
    """Claim fewer rounds than all of FedAvg's, and than FedAvg's own first crossing."""
    rows = list(rows)
    return contrasts(rows, "fedavg", columns) + contrasts(rows, "fedavg, first crossing", columns)


def table2() -> Recipe:
    """Rounds to reach FedAvg's accuracy."""
    lines = rounds_lines(("fedavg", "fedprox", *SCAFFOLDS, "moon"))
    claims = rounds_contrasts(("moon", "fedprox"))
    claims += contrasts(["scaffold"], "fedavg", SETS[:1])  # on the other data sets it never gets there
    return make_recipe("table2", "rounds to FedAvg's accuracy", lines, claims)


def many_parties(id: str, dataset: str, rows: dict[str, tuple[str, dict[str, Any]]], **rest: Any) -> Recipe:
    """50 parties, all active; 100 parties, 20 sampled per round; each read at half its rounds and at the end."""
    crowds = (
        ({"parties": 50}, {}, (100, 200)),
        ({"parties": 100}, {"fraction": 0.2}, (250, 500)),
    )
    lines: list[Line] = []
    for data, cohort, ends in crowds:
        for rounds in ends:
            column = f"{data['parties']} parties, {rounds} rounds"
            for row, (method, options) in rows.items():
                run = cell(dataset, method, rounds, data=data, cohort=cohort, **options)
                lines.append(Line(row, column, run, printed=(published_row(row), column)))
        lines.append(Line("solo", f"{data['parties']} parties", cell(dataset, "solo", data=data)))
    columns = list(dict.fromkeys(line.column for line in lines if line.row != "solo"))
    moons = [row for row in rows if row.startswith("moon")]
    claims = [c for other in ("fedavg", "fedprox") for c in contrasts(moons, other, columns)]
    return make_recipe(id, f"many parties, {dataset}", lines, claims, **rest)


CROWD: dict[str, tuple[str, dict[str, Any]]] = {
    "moon mu=1": ("moon", {"mu": 1.0}),
    "moon mu=10": ("moon", {"mu": 10.0}),
    "fedavg": ("fedavg", {}),
    "fedprox": ("fedprox", {}),
    "scaffold": ("scaffold", {}),
    "scaffold-niid": ("scaffold-niid", {}),
}


def skews(id: str, dataset: str, methods: Iterable[str], **rest: Any) -> Recipe:
    """Every method at three degrees of skew."""
    betas = {f"beta={beta:g}": beta for beta in (0.1, 0.5, 5.0)}
    methods = list(methods)
    lines = [
        Line(m, column, cell(dataset, m, data={"beta": beta}), printed=(published_row(m), column))
        for column, beta in betas.items()
        for m in methods
    ]
    claims = [c for rival in methods if rival != "moon" for c in contrasts(["moon"], rival, betas)]
    claims += contrasts(["fedprox"], "fedavg", ["beta=5"])
    return make_recipe(id, f"three degrees of skew, {dataset}", lines, claims, **rest)


def table5() -> Recipe:
    """MOON's second term against the l2 distance of representations."""
    grid = SETTING["mu_grid_l2"]
    lines: list[Line] = []
    for d in SETS:
        lines.append(Line("none", d, cell(d, "fedavg")))
        lines += [Line(f"l2 mu={mu:g}", d, cell(d, "moon-l2", mu=mu), printed=("l2", d)) for mu in grid]
        lines.append(Line("moon", d, cell(d, "moon")))
    claims = contrasts(["moon"], "none", SETS)
    claims += [c for mu in grid for c in contrasts(["moon"], f"l2 mu={mu:g}", SETS)]
    note = "the paper tunes the l2 term's mu over this grid and does not print the best: all of it is run"
    return make_recipe("table5", "the second term of the local objective", lines, claims, note=note)


def table6() -> Recipe:
    """Rows per party."""
    lines = [Line(row, d, cell(d, "fedavg"), f"split {row}") for d in SETS for row in ("mean", "std", "test")]
    return make_recipe("table6", "rows per party", lines, note="no training: only the split")


def table7() -> Recipe:
    """Every method with and without the projection head."""
    columns = SETS[:2]
    lines: list[Line] = []
    for d in columns:
        for m in TABLE_1:
            bare = f"{m}, no head"
            lines.append(Line(m, d, cell(d, m), printed=(published_row(m), d)))
            lines.append(Line(bare, d, cell(d, m, projection=0), printed=(published_row(bare), d)))
    claims = contrasts(["moon"], "moon, no head", columns)
    claims += [c for head in ("", ", no head") for c in contrasts([f"moon{head}"], f"fedavg{head}", columns)]
    return make_recipe("table7", "with and without the projection head", lines, claims)


def by_mu(dataset: str, mus: Iterable[float], **changes: Any) -> list[Line]:
    """MOON at some mu."""
    return [Line(f"moon mu={mu:g}", dataset, cell(dataset, "moon", mu=float(mu), **changes)) for mu in mus]


def table8() -> Recipe:
    """An even split."""
    even = {"partition": "iid"}
    lines = [
        *by_mu("cifar10", SETTING["mu_grid_moon"], data=even),
        Line("fedavg", "cifar10", cell("cifar10", "fedavg", data=even)),
    ]
    rows = [f"moon mu={mu:g}" for mu in SETTING["mu_grid_moon"]]
    claims = contrasts(rows, "fedavg", ["cifar10"], level=0.01)
    return make_recipe("table8", "an even split", lines, claims)


def table9() -> Recipe:
    """The effect of mu."""
    lines: list[Line] = []
    for d in SETS:
        lines += [Line("fedavg", d, cell(d, "fedavg")), *by_mu(d, SETTING["mu_grid_moon"])]
    rows = [f"moon mu={mu:g}" for mu in SETTING["mu_grid_moon"]]
    claims = contrasts(rows, "fedavg", SETS) + contrasts(rows[:1], "fedavg", SETS, level=0.01)
    return make_recipe("table9", "the effect of mu", lines, claims)


def table10() -> Recipe:
    """Momentum at the server."""
    grid = SETTING["server_momentum_grid"]
    lines: list[Line] = []
    for d in SETS:
        lines += [Line(m, d, cell(d, m)) for m in ("fedavg", "moon")]
        for m in ("fedavgm", "moon+fedavgm"):
            lines += [Line(f"{m} b={b:g}", d, cell(d, m, server_momentum=b), printed=(m, d)) for b in grid]
    claims = [c for b in grid for c in contrasts([f"moon+fedavgm b={b:g}"], f"fedavgm b={b:g}", SETS)]
    claims += contrasts([f"fedavgm b={b:g}" for b in grid], "fedavg", SETS)
    note = "the paper tunes b over this grid and does not print the best: all of it is run"
    return make_recipe("table10", "momentum at the server", lines, claims, note=note)


def table11() -> Recipe:
    """Seconds per round, every method alone."""
    methods = ("fedavg", "fedprox", *SCAFFOLDS, "moon")
    lines = [
        Line(m, d, cell(d, m, rounds=4, alone=True), "seconds", printed=(published_row(m), d))
        for d in SETS
        for m in methods
    ]
    note = "measured on this machine, one trial alone, without the first of four rounds; published on a V100"
    return make_recipe("table11", "seconds per round", lines, note=note)


def table12() -> Recipe:
    """Several negative pairs."""
    rows = {f"moon k={k}": cell("cifar10", "moon", negatives=k) for k in (1, 2, 5, 100)}
    lines = [Line(row, "cifar10", run) for row, run in rows.items()]
    claims = [c for row in list(rows)[1:] for c in contrasts(["moon k=1"], row, ["cifar10"])]
    return make_recipe(
        "table12",
        "several negative pairs",
        lines,
        claims,
        note="with a queue of the last k models; the authors' is not one for k >= 3",
    )


MOON_TABLES = (
    table1(),
    table2(),
    many_parties("table3", "cifar100", CROWD),
    skews("table4", "cifar100", TABLE_1),
    table5(),
    table6(),
    table7(),
    table8(),
    table9(),
    table10(),
    table11(),
    table12(),
)
