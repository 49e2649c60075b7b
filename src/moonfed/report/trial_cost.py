"""What a trial costs: bytes and seconds."""

from moonfed.report.blocks import Table
from moonfed.report.cell_text import EMPTY
from moonfed.report.figures import colour
from moonfed.report.methods import Setting

MEGABYTES = ("MB up per round", "MB down per round", "MB in all")


def cost_table(setting: Setting, name: str) -> Table:
    """Rounds, bytes and seconds of one trial."""
    rows: list[list[str]] = []
    for method in setting.methods:
        up, down = method.mean("bytes_up"), method.mean("bytes_down")
        seconds, n = method.training_seconds, method.rounds
        if up is None or down is None:
            rows.append([method.name, *[EMPTY] * 6])
            continue
        cells = [str(n), f"{up / 1e6:.2f}", f"{down / 1e6:.2f}", f"{n * (up + down) / 1e6:.1f}"]
        times = [EMPTY, EMPTY] if seconds is None else [f"{seconds:.2f}", f"{n * seconds:.0f}"]
        rows.append([method.name, *cells, *times])
    note = (
        "MB are millions of bytes between the server, or neighbours, and all parties of a round. Seconds are those of "
        "training, summed over parties; trials that share a stack share its time by their steps. They are not known "
        "of sites, nor of runs that did not record them."
    )
    unit = "GPU-seconds" if all(r.on_gpu for m in setting.methods for r in m.records) else "seconds"
    return Table(
        name,
        "Cost of one trial",
        ["method", "rounds", *MEGABYTES, f"{unit} per round", f"{unit} in all"],
        rows,
        colours=[colour(setting.place(method)) for method in setting.methods],
        note=note,
    )


def traffic_cells(setting: Setting) -> list[str]:
    """Millions of bytes of a trial, sent and received by all parties, by method.

    Empty where methods that send anything do not differ.
    """
    totals: list[float | None] = []
    for method in setting.methods:
        parts = [value for name in ("bytes_up", "bytes_down") if (value := method.mean(name)) is not None]
        totals.append(method.rounds * sum(parts) if parts else None)
    known = [total for total in totals if total]
    if not known or max(known) < 1.01 * min(known):
        return []
    return [EMPTY if total is None else f"{total / 1e6:.1f}" for total in totals]
