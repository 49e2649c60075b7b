"""The tables of the MOON paper."""

from collections.abc import Iterable
from typing import Any

from moonfed.papers.published import library
from moonfed.papers.recipe import SETS, Contrast, Line, Recipe, against, cell, made, on_average

SETTING = library().setting
SCAFFOLDS = ("scaffold", "scaffold-niid")
RIVALS = ("fedavg", "fedprox", *SCAFFOLDS, "solo")
TABLE_1 = ("moon", *RIVALS)


def printed_as(row: str) -> str:
    """Name the published row: the paper has one SCAFFOLD and does not say which."""
    return row.replace("scaffold-niid", "scaffold")


def table1() -> Recipe:
    """Accuracy of every method on the three data sets."""
    lines = [Line(m, d, cell(d, m), printed=(printed_as(m), d)) for d in SETS for m in TABLE_1]
    average = on_average("moon over fedavg, mean of the data sets", "moon", "fedavg", SETS)
    stated = [c for rival in RIVALS for c in against(["moon"], rival, SETS)]
    return made("table1", "accuracy of every method", lines, [average, *stated])


def rounds_lines(methods: Iterable[str], columns: Iterable[str] = SETS) -> list[Line]:
    """Count rounds to FedAvg's last accuracy, and to its own first crossing of it."""
    lines: list[Line] = []
    for d in columns:
        base = cell(d, "fedavg")
        for m in methods:
            place = (printed_as(m), d)
            lines.append(Line(m, d, cell(d, m), "rounds", base, place))
            lines.append(Line(f"{m}, speed-up", d, cell(d, m), "speed-up", base, (f"{place[0]}, speed-up", d)))
        lines.append(Line("fedavg, first crossing", d, base, "first", base))
    return lines


def rounds_contrasts(rows: Iterable[str], columns: Iterable[str] = SETS) -> list[Contrast]:
    """State fewer rounds than FedAvg's all, and than FedAvg's own first crossing."""
    rows = list(rows)
    return against(rows, "fedavg", columns) + against(rows, "fedavg, first crossing", columns)


def table2() -> Recipe:
    """Rounds to reach FedAvg's accuracy."""
    lines = rounds_lines(("fedavg", "fedprox", *SCAFFOLDS, "moon"))
    stated = rounds_contrasts(("moon", "fedprox")) + against(["scaffold"], "fedavg", SETS[:1])  # elsewhere never
    return made("table2", "rounds to FedAvg's accuracy", lines, stated)


def many_parties(id: str, dataset: str, rows: dict[str, tuple[str, dict[str, Any]]], **rest: Any) -> Recipe:
    """50 parties, all active; 100 parties, 20 sampled a round; each read at half its rounds and at the end."""
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
                lines.append(Line(row, column, run, printed=(printed_as(row), column)))
        lines.append(Line("solo", f"{data['parties']} parties", cell(dataset, "solo", data=data)))
    columns = list(dict.fromkeys(line.column for line in lines if line.row != "solo"))
    moons = [row for row in rows if row.startswith("moon")]
    stated = [c for other in ("fedavg", "fedprox") for c in against(moons, other, columns)]
    return made(id, f"many parties, {dataset}", lines, stated, **rest)


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
        Line(m, column, cell(dataset, m, data={"beta": beta}), printed=(printed_as(m), column))
        for column, beta in betas.items()
        for m in methods
    ]
    stated = [c for rival in methods if rival != "moon" for c in against(["moon"], rival, betas)]
    stated += against(["fedprox"], "fedavg", ["beta=5"])
    return made(id, f"three degrees of skew, {dataset}", lines, stated, **rest)


def table5() -> Recipe:
    """MOON's second term against the l2 distance of representations."""
    grid = SETTING["mu_grid_l2"]
    lines: list[Line] = []
    for d in SETS:
        lines.append(Line("none", d, cell(d, "fedavg")))
        lines += [Line(f"l2 mu={mu:g}", d, cell(d, "moon-l2", mu=mu), printed=("l2", d)) for mu in grid]
        lines.append(Line("moon", d, cell(d, "moon")))
    stated = against(["moon"], "none", SETS)
    stated += [c for mu in grid for c in against(["moon"], f"l2 mu={mu:g}", SETS)]
    note = "the paper tunes the l2 term's mu over this grid and does not print the best: all of it is run"
    return made("table5", "the second term of the local objective", lines, stated, note=note)


def table6() -> Recipe:
    """Rows a party holds."""
    lines = [Line(row, d, cell(d, "fedavg"), f"split {row}") for d in SETS for row in ("mean", "std", "test")]
    return made("table6", "rows a party holds", lines, note="no training: the split alone")


def table7() -> Recipe:
    """Every method with and without the projection head."""
    columns = SETS[:2]
    lines: list[Line] = []
    for d in columns:
        for m in TABLE_1:
            bare = f"{m}, no head"
            lines.append(Line(m, d, cell(d, m), printed=(printed_as(m), d)))
            lines.append(Line(bare, d, cell(d, m, projection=0), printed=(printed_as(bare), d)))
    stated = against(["moon"], "moon, no head", columns)
    stated += [c for head in ("", ", no head") for c in against([f"moon{head}"], f"fedavg{head}", columns)]
    return made("table7", "with and without the projection head", lines, stated)


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
    stated = against(rows, "fedavg", ["cifar10"], level=1.0)
    return made("table8", "an even split", lines, stated)


def table9() -> Recipe:
    """The effect of mu."""
    lines: list[Line] = []
    for d in SETS:
        lines += [Line("fedavg", d, cell(d, "fedavg")), *by_mu(d, SETTING["mu_grid_moon"])]
    rows = [f"moon mu={mu:g}" for mu in SETTING["mu_grid_moon"]]
    stated = against(rows, "fedavg", SETS) + against(rows[:1], "fedavg", SETS, level=1.0)
    return made("table9", "the effect of mu", lines, stated)


def table10() -> Recipe:
    """Momentum at the server."""
    grid = SETTING["server_momentum_grid"]
    lines: list[Line] = []
    for d in SETS:
        lines += [Line(m, d, cell(d, m)) for m in ("fedavg", "moon")]
        for m in ("fedavgm", "moon+fedavgm"):
            lines += [Line(f"{m} b={b:g}", d, cell(d, m, server_momentum=b), printed=(m, d)) for b in grid]
    stated = [c for b in grid for c in against([f"moon+fedavgm b={b:g}"], f"fedavgm b={b:g}", SETS)]
    stated += against([f"fedavgm b={b:g}" for b in grid], "fedavg", SETS)
    note = "the paper tunes b over this grid and does not print the best: all of it is run"
    return made("table10", "momentum at the server", lines, stated, note=note)


def table11() -> Recipe:
    """Seconds a round, every method by itself."""
    methods = ("fedavg", "fedprox", *SCAFFOLDS, "moon")
    lines = [
        Line(m, d, cell(d, m, rounds=4, alone=True), "seconds", printed=(printed_as(m), d))
        for d in SETS
        for m in methods
    ]
    note = "measured on this machine, one trial by itself, the first of four rounds left out; published on a V100"
    return made("table11", "seconds a round", lines, note=note)


def table12() -> Recipe:
    """Several negative pairs."""
    rows = {f"moon k={k}": cell("cifar10", "moon", negatives=k) for k in (1, 2, 5, 100)}
    lines = [Line(row, "cifar10", run) for row, run in rows.items()]
    stated = [c for row in list(rows)[1:] for c in against(["moon k=1"], row, ["cifar10"])]
    return made(
        "table12",
        "several negative pairs",
        lines,
        stated,
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
