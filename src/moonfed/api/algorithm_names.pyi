# Written by tools/write_algorithm_stub.py; run it again after a change of an algorithm.
from typing import Literal

from moonfed.core.rules import Algorithm

Server = Literal["fedavg", "fedavgm", "fednova", "median", "scaffold", "scaffold-niid", "solo", "trimmed-mean"]

__all__ = [
    "centralised",
    "fedavg",
    "fedavgm",
    "fednova",
    "fedprox",
    "median",
    "moon",
    "moon_l2",
    "scaffold",
    "scaffold_niid",
    "solo",
    "trimmed_mean",
]

def centralised(
    *,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm centralised.

    Centralised training: all rows in one place, one optimiser from the first round to the last.

    Keywords:
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def fedavg(
    *,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm fedavg.

    FedAvg (McMahan et al. 2017): plain local SGD, then the share-weighted mean of the parties' models.

    Keywords:
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def fedavgm(
    *,
    server_momentum: float = 0.7,
    momentum_form: Literal["damped", "plain"] = "damped",
    server: Server | None = None,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm fedavgm.

    FedAvgM (Hsu et al. 2019): momentum at the server, on top of any local rule.

    Keywords:
        server_momentum: b, the server's momentum; >= 0; < 1; default 0.7
        momentum_form: damped: b v + (1 - b) delta, the authors'; plain: b v + delta; 'damped' or
            'plain'; default 'damped'
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def fednova(
    *,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm fednova.

    FedNova (Wang et al. 2020): each update is divided by its own amount of work before the mean is taken.

    Keywords:
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def fedprox(
    *,
    mu: float = 0.01,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm fedprox.

    FedProx (Li et al. 2020): stay near the round's global model, eq. 6 of Shi.

    Keywords:
        mu: weight of the proximal term; >= 0; default 0.01
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def median(
    *,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm median.

    The coordinate-wise median (Yin et al. 2018): a minority cannot move an entry beyond the other parties' values.

    Keywords:
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def moon(
    *,
    mu: float = 1.0,
    temperature: float = 0.5,
    negatives: int = 1,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm moon.

    MOON (Li, He & Song 2021), eq. 3 and 7: pull the local representation towards the global model's
    and push it away from those of the party's own last k models.

    Keywords:
        mu: weight of the contrastive term; >= 0; default 1.0
        temperature: tau, the temperature of the contrastive term; > 0; default 0.5
        negatives: k, how many of the party's previous models are negatives; >= 1; <= 1000; default
            1
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def moon_l2(
    *,
    mu: float = 0.1,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm moon-l2.

    The ablation of the MOON paper's section 4.7, eq. 6: the distance to the global representation as second term.

    Keywords:
        mu: weight of the l2 representation term; >= 0; default 0.1
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def scaffold(
    *,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm scaffold.

    SCAFFOLD (Karimireddy et al. 2020), in the form that is correct with momentum and parties of unequal size.

    Keywords:
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def scaffold_niid(
    *,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm scaffold-niid.

    SCAFFOLD as NIID-Bench runs it, for comparison: random start, correction after the step, buffers corrected too.

    Keywords:
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def solo(
    *,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    trim: float = ...,
) -> Algorithm:
    """Make the algorithm solo.

    SOLO: every party trains a model of its own on its own rows, and nothing is ever sent.

    Keywords:
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """

def trimmed_mean(
    *,
    trim: float = 0.2,
    server: Server | None = None,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
) -> Algorithm:
    """Make the algorithm trimmed-mean.

    The coordinate-wise trimmed mean (Yin et al. 2018): extreme values of a few parties do not count.

    Keywords:
        trim: fraction of the parties removed at each end, rounded up; 0: plain mean; >= 0; < 0.5;
            default 0.2
        server: the server's side of another algorithm (fedavg, fedavgm, fednova, median, scaffold,
            scaffold-niid, solo, trimmed-mean); default: its own
    """
