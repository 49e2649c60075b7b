"""Tables and figures of the other documents, and our own variants of MOON's largest claims."""

from itertools import pairwise

from moonfed.papers.moon_figures import by_epochs, crowd_curves, curves
from moonfed.papers.moon_tables import CROWD, SETTING, TABLE_1, many_parties, rounds_contrasts, rounds_lines, skews
from moonfed.papers.recipe import SETS, Cell, Contrast, Line, Recipe, cell, contrasts, make_recipe

THREE = ("moon", "fedavg", "fedprox")
SHI_SETTING = "parties and local epochs are not printed: the MOON paper's; mu too"
XU_SETTING = "parties, epochs, rounds and mu are not printed: the MOON paper's"


def shi_table1() -> Recipe:
    """Accuracy of three methods."""
    lines = [Line(m, d, cell(d, m)) for d in SETS for m in THREE]
    claims = contrasts(["moon", "fedprox"], "fedavg", SETS) + contrasts(["moon"], "fedprox", SETS)
    return make_recipe("shi-table1", "accuracy of three methods", lines, claims, note=SHI_SETTING)


def shi_table2() -> Recipe:
    """Rounds to FedAvg's accuracy."""
    claims = rounds_contrasts(("moon", "fedprox")) + contrasts(["moon"], "fedprox", SETS)
    return make_recipe("shi-table2", "rounds to FedAvg's accuracy", rounds_lines(THREE), claims, note=SHI_SETTING)


def xu_table(id: str, dataset: str) -> Recipe:
    """Even and skewed splits."""
    splits = {"iid": {"partition": "iid"}, "non-iid": {}}
    lines = [Line(m, s, cell(dataset, m, data=data)) for s, data in splits.items() for m in ("fedavg", "moon")]
    claims = contrasts(["moon"], "fedavg", splits)
    return make_recipe(id, f"even and skewed splits, {dataset}", lines, claims, note=XU_SETTING)


def xu_table3() -> Recipe:
    """An increasing number of parties."""
    crowds = {f"{n} parties": cell("cifar10", "fedavg", data={"parties": n}) for n in (4, 8, 16, 32)}
    moons = {f"{n} parties": cell("cifar10", "moon", data={"parties": n}) for n in (4, 8, 16, 32)}
    lines = [
        Line(row, column, run, printed=("accuracy", column))
        for row, runs in (("fedavg", crowds), ("moon", moons))
        for column, run in runs.items()
    ]
    columns = list(crowds)
    claims = [
        Contrast(f"{row}: {few} over {more}", (((row, few), (row, more)),))
        for row in ("fedavg", "moon")
        for few, more in pairwise(columns)
    ]
    note = "neither method nor data set is named: both methods on CIFAR-10, by our choice"
    return make_recipe("xu-table3", "an increasing number of parties", lines, claims, note=note)


def frilingos_runs() -> dict[str, Cell]:
    """Twenty parties, all active; read after 40 rounds and after the paper's 100."""
    ours = SETTING["frilingos"]
    names = {"fedavg": {}, "fedprox": {}, "scaffold": {}, "scaffold-niid": {}}
    runs = {m: cell("cifar10", m, data={"parties": ours["parties"]}, **o) for m, o in names.items()}
    for mu in (ours["mu_moon"], *(mu for mu in ours["mu_tried"] if mu != ours["mu_moon"])):
        runs[f"moon mu={mu:g}"] = cell("cifar10", "moon", data={"parties": ours["parties"]}, mu=float(mu))
    return runs


def read_at(run: Cell, rounds: int) -> Cell:
    """Make a cell that reads the same run at another round."""
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
    claims = [
        *[c for other in ("fedavg", "fedprox", moon) for c in contrasts(["scaffold"], other, at_40)],
        *contrasts(["scaffold, first crossing"], "fedavg, first crossing", at_40),
        *[c for other in ("fedavg", "fedprox") for c in contrasts([moon], other, at_40, level=0.01)],
        *contrasts([moon], "moon mu=5", at_40),
        *contrasts([moon, "moon mu=5"], "fedavg", late),
    ]
    note = "local epochs are not printed: the MOON paper's 10"
    return make_recipe("frilingos-fig1", "accuracy by round, twenty parties", lines, claims, note=note)


def frilingos_fig2() -> Recipe:
    """Training loss by round of the same runs."""
    short = SETTING["frilingos"]["rounds"]
    lines = [Line(row, f"{short} rounds", read_at(run, short), "loss") for row, run in frilingos_runs().items()]
    note = "the whole loss of each method, including MOON's contrastive and FedProx's proximal part"
    return make_recipe("frilingos-fig2", "training loss by round, twenty parties", lines, note=note)


def stragglers() -> Recipe:
    """Stragglers whose partial work is kept or dropped."""
    lines = [Line(m, "none slow", cell("cifar10", m)) for m in ("fedavg", "fedprox")]
    claims: list[Contrast] = []
    for share in (0.5, 0.9):
        column = f"{share:.0%} slow"
        for m in ("fedavg", "fedprox"):
            for word, keep in (("kept", True), ("dropped", False)):
                run = cell("cifar10", m, cohort={"stragglers": share, "stragglers_keep": keep})
                lines.append(Line(f"{m}, {word}", column, run))
            claims += contrasts([f"{m}, kept"], f"{m}, dropped", [column])
        claims += contrasts(["fedprox, kept"], "fedavg, dropped", [column])
        hurt = (("fedavg", "none slow"), ("fedavg, dropped", column))
        claims.append(Contrast(f"fedavg, none slow, over fedavg, dropped, {column}", (hurt,)))
    note = "shares as in Li et al. 2020; the documents state the claim and print no value"
    return make_recipe("stragglers", "slow parties", lines, claims, note=note)


OURS = "CIFAR-10 with the CNN, our own variant: no document prints a value"
OUR_CROWD = {row: rule for row, rule in CROWD.items() if row != "moon mu=1"} | {"moon mu=5": ("moon", {"mu": 5.0})}
OUR_TABLE_3 = many_parties("table3-cifar10", "cifar10", OUR_CROWD, ours=True, published="table3", note=OURS)

OTHER_PAPERS = (
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
