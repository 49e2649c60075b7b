"""The tables and figures of the other documents, and our own forms of MOON's largest claims."""

from itertools import pairwise

from moonfed.papers.moon_figures import by_epochs, crowd_curves, curves
from moonfed.papers.moon_tables import CROWD, SETTING, TABLE_1, many_parties, rounds_contrasts, rounds_lines, skews
from moonfed.papers.recipe import SETS, Cell, Contrast, Line, Recipe, against, cell, made

THREE = ("moon", "fedavg", "fedprox")
SHI_SETTING = "parties and local epochs are not printed: the MOON paper's; mu too"
XU_SETTING = "parties, epochs, rounds and mu are not printed: the MOON paper's"


def shi_table1() -> Recipe:
    """Accuracy of three methods."""
    lines = [Line(m, d, cell(d, m)) for d in SETS for m in THREE]
    stated = against(["moon", "fedprox"], "fedavg", SETS) + against(["moon"], "fedprox", SETS)
    return made("shi-table1", "accuracy of three methods", lines, stated, note=SHI_SETTING)


def shi_table2() -> Recipe:
    """Rounds to FedAvg's accuracy."""
    stated = rounds_contrasts(("moon", "fedprox")) + against(["moon"], "fedprox", SETS)
    return made("shi-table2", "rounds to FedAvg's accuracy", rounds_lines(THREE), stated, note=SHI_SETTING)


def xu_table(id: str, dataset: str) -> Recipe:
    """Even and skewed splits."""
    splits = {"iid": {"partition": "iid"}, "non-iid": {}}
    lines = [Line(m, s, cell(dataset, m, data=data)) for s, data in splits.items() for m in ("fedavg", "moon")]
    stated = against(["moon"], "fedavg", splits)
    return made(id, f"even and skewed splits, {dataset}", lines, stated, note=XU_SETTING)


def xu_table3() -> Recipe:
    """More and more parties."""
    crowds = {f"{n} parties": cell("cifar10", "fedavg", data={"parties": n}) for n in (4, 8, 16, 32)}
    moons = {f"{n} parties": cell("cifar10", "moon", data={"parties": n}) for n in (4, 8, 16, 32)}
    lines = [
        Line(row, column, run, printed=("accuracy", column))
        for row, runs in (("fedavg", crowds), ("moon", moons))
        for column, run in runs.items()
    ]
    columns = list(crowds)
    stated = [
        Contrast(f"{row}: {few} over {more}", (((row, few), (row, more)),))
        for row in ("fedavg", "moon")
        for few, more in pairwise(columns)
    ]
    note = "neither method nor data set is named: both methods on CIFAR-10, by our choice"
    return made("xu-table3", "more and more parties", lines, stated, note=note)


def frilingos_runs() -> dict[str, Cell]:
    """Twenty parties, all active; read after 40 rounds and after the paper's 100."""
    ours = SETTING["frilingos"]
    names = {"fedavg": {}, "fedprox": {}, "scaffold": {}, "scaffold-niid": {}}
    runs = {m: cell("cifar10", m, data={"parties": ours["parties"]}, **o) for m, o in names.items()}
    for mu in (ours["mu_moon"], *(mu for mu in ours["mu_tried"] if mu != ours["mu_moon"])):
        runs[f"moon mu={mu:g}"] = cell("cifar10", "moon", data={"parties": ours["parties"]}, mu=float(mu))
    return runs


def read_at(run: Cell, rounds: int) -> Cell:
    """Read the same run at another round."""
    return Cell(run.settings | {"train": run.settings["train"] | {"rounds": rounds}}, run.alone)


def frilingos_fig1() -> Recipe:
    """Accuracy by round with twenty parties."""
    runs, short = frilingos_runs(), SETTING["frilingos"]["rounds"]
    ends = {f"{short} rounds": short, "100 rounds": 100}
    lines = [Line(row, end, read_at(run, n)) for end, n in ends.items() for row, run in runs.items()]
    base = read_at(runs["fedavg"], short)
    fast = {f"{row}, first crossing": read_at(runs[row], short) for row in ("fedavg", "scaffold", "scaffold-niid")}
    lines += [Line(row, f"{short} rounds", run, "first", base) for row, run in fast.items()]
    at_40, late, moon = [f"{short} rounds"], ["100 rounds"], f"moon mu={SETTING['frilingos']['mu_moon']:g}"
    stated = [
        *[c for other in ("fedavg", "fedprox", moon) for c in against(["scaffold"], other, at_40)],
        *against(["scaffold, first crossing"], "fedavg, first crossing", at_40),
        *[c for other in ("fedavg", "fedprox") for c in against([moon], other, at_40, level=1.0)],
        *against([moon], "moon mu=5", at_40),
        *against([moon, "moon mu=5"], "fedavg", late),
    ]
    note = "local epochs are not printed: the MOON paper's 10"
    return made("frilingos-fig1", "accuracy by round, twenty parties", lines, stated, note=note)


def frilingos_fig2() -> Recipe:
    """Training loss by round of the same runs."""
    short = SETTING["frilingos"]["rounds"]
    lines = [Line(row, f"{short} rounds", read_at(run, short), "loss") for row, run in frilingos_runs().items()]
    note = "the whole loss of each method, MOON's contrastive and FedProx's proximal part included"
    return made("frilingos-fig2", "training loss by round, twenty parties", lines, note=note)


def stragglers() -> Recipe:
    """Slow parties, their partial work kept or dropped."""
    lines = [Line(m, "none slow", cell("cifar10", m)) for m in ("fedavg", "fedprox")]
    stated: list[Contrast] = []
    for share in (0.5, 0.9):
        column = f"{share:.0%} slow"
        for m in ("fedavg", "fedprox"):
            for word, keep in (("kept", True), ("dropped", False)):
                run = cell("cifar10", m, cohort={"stragglers": share, "stragglers_keep": keep})
                lines.append(Line(f"{m}, {word}", column, run))
            stated += against([f"{m}, kept"], f"{m}, dropped", [column])
        stated += against(["fedprox, kept"], "fedavg, dropped", [column])
        hurt = (("fedavg", "none slow"), ("fedavg, dropped", column))
        stated.append(Contrast(f"fedavg, none slow, over fedavg, dropped, {column}", (hurt,)))
    note = "shares as in Li et al. 2020; the documents state the claim and print no value"
    return made("stragglers", "slow parties", lines, stated, note=note)


OURS = "CIFAR-10 with the CNN, a form of ours: no document prints a value"
OUR_CROWD = {row: rule for row, rule in CROWD.items() if row != "moon mu=1"} | {"moon mu=5": ("moon", {"mu": 5.0})}
OUR_TABLE_3 = many_parties("table3-cifar10", "cifar10", OUR_CROWD, ours=True, published="table3", note=OURS)

OTHERS = (
    shi_table1(),
    shi_table2(),
    skews("shi-table3", "cifar100", THREE, note=SHI_SETTING),
    curves("shi-fig6", "accuracy by round", THREE, note=SHI_SETTING),
    by_epochs("shi-fig7", THREE),
    xu_table("xu-table1", "cifar100"),
    xu_table("xu-table2", "cifar10"),
    xu_table3(),
    frilingos_fig1(),
    frilingos_fig2(),
    stragglers(),
    OUR_TABLE_3,
    skews("table4-cifar10", "cifar10", TABLE_1, ours=True, published="table4", note=OURS),
    crowd_curves("fig8-cifar10", OUR_TABLE_3, ours=True, published="fig8", note=OURS),
)
