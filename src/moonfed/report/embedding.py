"""t-SNE of the features of test rows, as in Figure 2 of the MOON paper."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from torch import Tensor

from moonfed.core.seeds import seed_for
from moonfed.report.figures import STYLE
from moonfed.report.heatmap import shorten

# Tol's muted palette and black, safe for colour-blind readers; each class also carries its name.
CLASSES = ("#CC6677", "#332288", "#C4A92F", "#117733", "#5BA9D0", "#882255", "#44AA99", "#8A8A2B", "#AA4499", "#222222")
MAX_LABEL = 12  # letters of a class
MARKERS = ("o", "s", "^", "D", "v")


def embed(features: Tensor) -> Any:
    """Project features to the plane: [row, 2]."""
    values = np.ascontiguousarray(features.double().numpy())
    perplexity = min(30.0, (len(values) - 1) / 3)
    seed = seed_for(0, "t-SNE") % 2**32
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(values)


def panel(positions: Any, labels: Tensor, title: str, names: Sequence[str] = ()) -> Figure:
    """Plot the rows of each class in its colour and marker, with the name or number of the class at their median."""
    classes = labels.cpu().numpy()
    with matplotlib.rc_context(STYLE | {"axes.grid": False, "axes.spines.left": False, "axes.spines.bottom": False}):
        figure = Figure(figsize=(3.1, 3.1), layout="constrained")
        axes = figure.subplots()
        for k in np.unique(classes):
            members = positions[classes == k]
            style = {"color": CLASSES[k % 10], "marker": MARKERS[k % 5]}
            axes.plot(
                members[:, 0], members[:, 1], linestyle="", markersize=3.2, markeredgewidth=0, alpha=0.75, **style
            )
        for k in np.unique(classes):
            x, y = np.median(positions[classes == k], axis=0)
            box = {"boxstyle": "round,pad=0.18", "facecolor": "white", "edgecolor": CLASSES[k % 10], "linewidth": 0.8}
            label = shorten(names[int(k)], MAX_LABEL) if names else str(k)
            axes.text(x, y, label, fontsize=8.5, ha="center", va="center", bbox=box | {"alpha": 0.88})
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(title, fontsize=min(11, 340 / len(title)))
    return figure
