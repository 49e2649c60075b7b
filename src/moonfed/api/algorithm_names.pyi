# Written by tools/write_algorithm_stub.py; run it again after a change of an algorithm.
from typing import Literal

from moonfed.core.algorithm import Algorithm

__all__ = [
    "balanced_softmax",
    "centralised",
    "ditto",
    "fedacg",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedbn",
    "fedcm",
    "feddecorr",
    "feddisco",
    "feddyn",
    "fedexp",
    "fedlc",
    "fedlmd",
    "fedma",
    "fednova",
    "fedntd",
    "fedper",
    "fedprox",
    "fedrep",
    "fedrs",
    "fedsam",
    "fedvls",
    "fedyogi",
    "gossip",
    "median",
    "moon",
    "moon_l2",
    "scaffold",
    "scaffold_niid",
    "solo",
    "trimmed_mean",
]

def balanced_softmax(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm balanced-softmax.

    Balanced softmax (Menon et al. 2021; in federated learning CalFAT, Chen et al. 2022): scores by class shares.

    Loss = CE(logits + log(pi_c + 1e-9), y), pi_c the share of class c at the party. A class that a party lacks is
    masked (-20.7). Models are tested on plain logits, as if classes were even.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def centralised(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
) -> Algorithm:
    """Make the algorithm centralised.

    Centralised training: all rows in one place, one optimiser from the first round to the last.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def ditto(
    *,
    pull: float = 0.1,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
) -> Algorithm:
    """Make the algorithm ditto.

    Ditto (Li, Hu, Beirami & Smith 2021): beside FedAvg's model every party trains one of its own, drawn towards it.

    w is FedAvg's. v_i is private: v_i <- v_i - lr (grad F_i(v_i) + lambda (v_i - w_t)), w_t the model that the party
    received, on the batches that train w. v_i begins as the first model received and is kept from round to round, its
    momentum is not. lambda 0 is training alone; with lr lambda = 1 and no momentum a step ends at w_t - lr grad
    F_i(v_i). v_i is what is evaluated, on rows like the party's own.

    Keywords:
        pull: lambda, pull of the party's own model towards the global one; >= 0; default 0.1
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedacg(
    *,
    beta: float = 0.001,
    look_ahead: float = 0.85,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedacg.

    FedACG (Kim, Kim & Han 2024): parties start from where the server's momentum is about to take the model.

    The server sends w_t + lambda m_t. Parties train from there with + beta ||w - sent||^2. Then m_{t+1} = lambda
    m_t + mean of (w_i - sent) and w_{t+1} = w_t + m_{t+1}, which is the tested model. Nothing more travels than in
    FedAvg. The mean is by rows here, plain in the authors' code. lambda 0 is FedProx with mu = 2 beta.

    Keywords:
        beta: weight of the squared distance to the sent model; >= 0; default 0.001
        look_ahead: lambda, decay of the server's momentum; >= 0; < 1; default 0.85
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedadagrad(
    *,
    server_lr: float = 0.03,
    server_beta1: float = 0.0,
    server_tau: float = 0.001,
    server: str | None = None,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedadagrad.

    FedAdagrad (Reddi et al. 2021, algorithm 2): FedAdam whose squares are added up, so that its steps only get smaller.

    v <- v + D^2. Adagrad is usually run without momentum, so b1 is 0 by default.

    Keywords:
        server_lr: the server's learning rate; > 0; default 0.03
        server_beta1: b1, decay of the mean of past updates; >= 0; < 1; default 0.0
        server_tau: tau, added to the root: the larger, the less adaptive; > 0; default 0.001
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedadam(
    *,
    server_lr: float = 0.03,
    server_beta1: float = 0.9,
    server_tau: float = 0.001,
    server_beta2: float = 0.99,
    server: str | None = None,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedadam.

    FedAdam (Reddi et al. 2021, algorithm 2): Adam at the server, on top of any local rule.

    With D the mean update: m <- b1 m + (1 - b1) D; v <- b2 v + (1 - b2) D^2; w <- w + lr m / (sqrt(v) + tau). As in
    the paper there is no bias correction (the authors' code has it). m and v begin at 0 as in that code, in the paper v
    begins at tau^2 or more. Buffers are averaged, not adapted.

    Keywords:
        server_lr: the server's learning rate; > 0; default 0.03
        server_beta1: b1, decay of the mean of past updates; >= 0; < 1; default 0.9
        server_tau: tau, added to the root: the larger, the less adaptive; > 0; default 0.001
        server_beta2: b2, decay of the mean of their squares; >= 0; < 1; default 0.99
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedavg(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedavg.



    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedavgm(
    *,
    server_momentum: float = 0.7,
    momentum_form: Literal["damped", "plain"] = "damped",
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedavgm.

    FedAvgM (Hsu et al. 2019): momentum at the server, on top of any local rule.

    Keywords:
        server_momentum: b, the server's momentum; >= 0; < 1; default 0.7
        momentum_form: damped: b v + (1 - b) delta, the authors'; plain: b v + delta; 'damped' or
            'plain'; default 'damped'
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedbn(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
) -> Algorithm:
    """Make the algorithm fedbn.

    FedBN (Li et al. 2021): every party keeps the normalisation layers, with their statistics; the rest is averaged.

    w_l <- sum_i (n_i / n) w_l_i for every layer l that normalises nothing; the others, statistics included, stay w_l_i.
    For parties whose inputs differ rather than their classes. Layers are found by their type; the authors' code goes by
    names with "bn", which misses those of residual shortcuts, and averages plainly where rows weigh here. Without
    normalisation layers it is FedAvg, judged on rows like the party's own.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedcm(
    *,
    own_part: float = 0.1,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedcm.

    FedCM (Xu et al. 2021): every step of every party follows the direction of the last round too.

    A step's gradient is alpha g + (1 - alpha) d, d = -mean of delta_i / (lr a_i) over the last cohort, a_i the
    party's sum of gradient coefficients (its steps, where there is no momentum). d is sent with the model; parties
    remember nothing. Weight decay is not scaled by alpha. alpha 1 is FedAvg; the first round, where d is 0, is
    FedAvg's with gradients times alpha.

    Keywords:
        own_part: alpha, the party's own part of a step; 1 is FedAvg; > 0; <= 1; default 0.1
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def feddecorr(
    *,
    beta: float = 0.1,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm feddecorr.

    FedDecorr (Shi et al. 2023): keep the dimensions of a representation from becoming copies of each other.

    Loss = CE + beta (1/B) mean over j != k of R_jk^2, R = X^T X of the batch's representations X, each dimension
    centred and divided by its standard deviation. That is the authors' code; the paper's mean of squared
    correlations, (1/d^2) ||corr||_F^2, is smaller by (B - 1)^2 / B d / (d - 1) (62 at B = 64, d = 256).

    Keywords:
        beta: weight of the decorrelation; >= 0; default 0.1
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def feddisco(
    *,
    discrepancy_weight: float = 0.5,
    discrepancy_offset: float = 0.1,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm feddisco.

    FedDisco (Ye et al. 2023): parties whose classes are far from even count less than their rows say.

    p_k is proportional to max(0, n_k / n - a d_k / sum_j d_j + b), d_k = KL(class shares of party k || even
    shares), n and the sums over the cohort. a = b = 0 is FedAvg. Where every p_k would be 0, which the authors'
    code does not handle, FedAvg's shares are used. The server sees each party's class counts and update, so this is
    no sum.

    Keywords:
        discrepancy_weight: a, how much uneven classes count; >= 0; default 0.5
        discrepancy_offset: b, added to every party's weight; >= 0; default 0.1
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def feddyn(
    *,
    dynamic: float = 0.1,
    tested_model: Literal["sent", "mean"] = "sent",
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm feddyn.

    FedDyn (Acar et al. 2021), in the form of the authors' code: local objectives whose optima agree.

    A party remembers h_i, 0 at first. Its loss is CE + (a_i / 2) ||w - w_t||^2 + a_i <w, h_i>, a_i = alpha n / (N
    n_i) for n_i of n rows and N parties; afterwards h_i <- h_i + w_i - w_t. The server keeps h, the mean of all
    parties' h_i, and sends m + h, m the plain mean of the cohort's models. The sent model is the tested one, as in
    most ports; the authors test m, which tested_model=mean does. alpha 0 is not FedAvg: h does not depend on it.

    Keywords:
        dynamic: alpha, weight of the dynamic regulariser; >= 0; default 0.1
        tested_model: which model is tested and kept: sent, m + h; mean, m as in the authors' code;
            'sent' or 'mean'; default 'sent'
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedexp(
    *,
    eps: float = 0.001,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedexp.

    FedExP (Jhunjhunwala, Wang & Joshi 2023): extrapolate the mean update while the parties' updates disagree.

    With D the mean update: D <- eta D, eta = max(1, sum_i p_i ||delta_i||^2 / (2 (||D||^2 + eps))), norms over all
    weights. The authors' code multiplies eps by the size of the cohort and tests the mean of the last two models;
    here eps is the paper's and the model that is sent is tested.

    Keywords:
        eps: eps, bounds the extrapolation where the mean update is small; > 0; default 0.001
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedlc(
    *,
    margin: float = 1.0,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedlc.

    FedLC (Zhang et al. 2022): a margin for classes that a party has few rows of.

    Loss = CE(logits - tau n_c^(-1/4), y), n_c the party's rows of class c; 0 rows count as 1e-8, which masks the
    class (-100 tau). The printed loss leaves the true class out of the denominator and is unbounded; like every
    port, this is the ordinary softmax. Models are tested on plain logits.

    Keywords:
        margin: tau, the margin of a class with one row; >= 0; default 1.0
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedlmd(
    *,
    beta: float = 1.0,
    temperature: float = 1.0,
    teacher: Literal["global", "none"] = "global",
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    moon_temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedlmd.

    FedLMD (Lu et al. 2023): distil the global model's scores of the classes that a party has few rows of.

    A class is a majority class of a party if it has more rows than the mean over all classes. Loss = CE + beta
    tau^2 KL(q || l): q the global softmax without majority classes and the true class, l the local one without the
    true class. Without a teacher (FedLMD-Tf) q is even over the same classes and costs no forward pass.

    Keywords:
        beta: weight of the distillation; >= 0; default 1.0
        temperature: tau, the temperature of the distillation; > 0; default 1.0
        teacher: global: the global model; none: even scores (FedLMD-Tf); 'global' or 'none';
            default 'global'
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedma(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedma.

    FedMA (Wang, Yurochkin, Sun, Papailiopoulos & Khazaeni 2020): match the parties' hidden units, then average.

    The order of a layer's units is arbitrary, so units of two parties that do the same may be in different
    places. Layer by layer from the input, the units of party j go to the places i of the global model by

        min over permutations P_j of sum_i ||w_{j, P_j(i)} - theta_i||^2        (section 2.1, one unit per place)

    where w is a unit's row of weights, its inputs in the order of the layer before, and its bias. Then, with
    shares p_j, theta_i <- sum_j p_j w_{j, P_j(i)}; the columns of the next layer follow. Classes stay.

    What differs from the paper:
    - Units are matched to those of the model that the round began with, once. The paper matches them to the
      estimate of the other parties, in turns, with a Beta-Bernoulli process prior that lets the global network
      grow (BBP-MAP). Here its width is fixed and the costs are plain squared distances.
    - All layers are matched after each round of full training. The paper matches one layer, sends it back frozen
      and lets the parties retrain the rest: one exchange per layer.
    - The output layer is averaged with the parties' shares; in the paper with their shares of each class.
    - Weights and statistics of a normalisation move with the units before it. The paper has none.

    Where no unit moves this is FedAvg to the bit. That is the usual case, as all parties begin a round with the
    same model: docs/methods.md has the counts.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fednova(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fednova.

    FedNova (Wang et al. 2020): each update is divided by its own amount of work before the mean is taken.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedntd(
    *,
    beta: float = 1.0,
    temperature: float = 1.0,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    moon_temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedntd.

    FedNTD (Lee et al. 2022): keep the global model's scores among the classes that a row does not belong to.

    Loss = CE + beta tau^2 KL(q || l), q and l the global and the local softmax at temperature tau without the true
    class, batch mean, gradient through l only. The authors run 100 parties with beta 1 and tau 1; with ten parties
    and ten epochs, where the first author expects little of it, try 0.1 to 1.

    Keywords:
        beta: weight of the distillation; >= 0; default 1.0
        temperature: tau, the temperature of the distillation; > 0; default 1.0
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedper(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
) -> Algorithm:
    """Make the algorithm fedper.

    FedPer (Arivazhagan et al. 2019): every party keeps an output layer of its own; the rest is averaged.

    With w = (w_B, w_P), w_P the output layer: a party trains both together from (w_B, w_P_i) and keeps w_P_i; the
    server averages w_B <- sum_i (n_i / n) w_B_i. With the whole model shared it is FedAvg. The models are judged on
    rows like the party's own, so the accuracies are no rivals of a global model's.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedprox(
    *,
    mu: float = 0.01,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    moon_mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedprox.

    FedProx (Li et al. 2020): stay near the round's global model, eq. 6 of Shi.

    Keywords:
        mu: weight of the proximal term; >= 0; default 0.01
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedrep(
    *,
    head_part: float = 0.9,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
) -> Algorithm:
    """Make the algorithm fedrep.

    FedRep (Collins et al. 2021): first the party's own output layer with the body fixed, then the body with it fixed.

    With phi the body and h_i the output layer: h_i <- SGD on F_i(phi_t, h_i), then phi_i <- SGD on F_i(phi_i, h_i),
    and phi_{t+1} = sum_i (n_i / n) phi_i. The first part of a round's steps trains h_i, the rest, one step at least,
    phi_i; the authors give phi_i one epoch, here its part of the steps is set. Weight decay alone fills the momentum
    of the part that is fixed, which is little unless the decay is large. Judged on rows like the party's own.

    Keywords:
        head_part: part of a round's steps that train the output layer; >= 0; <= 1; default 0.9
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedrs(
    *,
    alpha: float = 0.5,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedrs.

    FedRS (Li & Zhan 2021): scale down the scores of classes that a party has no rows of.

    Loss = CE(f_c logits_c, y), f_c = 1 where the party has rows of class c, else alpha; alpha 1 is FedAvg. The
    authors' code scales held classes by their shares too and leaves the bias out; this is the printed form, as in
    the ports.

    Keywords:
        alpha: factor on the scores of classes that a party lacks; 1 is FedAvg; >= 0; <= 1; default
            0.5
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedsam(
    *,
    rho: float = 0.05,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedsam.

    FedSAM (Qu et al. 2022; Caldarola et al. 2022): apply the gradient of a point uphill.

    e = rho g / ||g||, g the gradient of the batch at w, the norm over all weights of the party; the step is SGD's
    with the gradient at w + e. BatchNorm's statistics are those of the first pass.

    Keywords:
        rho: radius of the step uphill; >= 0; default 0.05
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedvls(
    *,
    distillation: float = 0.1,
    suppression: float = 0.005,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedvls.

    FedVLS (Guo et al. 2025): for classes that a party lacks, keep the global model's scores.

    pi_c is the share of class c at the party. Three parts: CE(logits + log(pi_c + 1e-9), y); lambda KL(global ||
    local), both softmaxes over the vacant classes alone; gamma sum_c pi_c log mean_rows exp([y != c] (logit_c -
    log(pi_c + 1e-9) - log C)), which suppresses scores of classes that are not the row's. The last is the authors'
    code, whose gamma is 0.005; the paper prints weight 1, no prior, and 0 instead of 1 where y = c.

    Keywords:
        distillation: lambda, weight of the vacant classes' distillation; >= 0; default 0.1
        suppression: weight of the suppression of other classes' logits; >= 0; default 0.005
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def fedyogi(
    *,
    server_lr: float = 0.03,
    server_beta1: float = 0.9,
    server_tau: float = 0.001,
    server_beta2: float = 0.99,
    server: str | None = None,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm fedyogi.

    FedYogi (Reddi et al. 2021, algorithm 2): FedAdam whose mean of squares moves by D^2 at most, in either direction.

    v <- v - (1 - b2) D^2 sign(v - D^2): after a few large updates it falls more slowly than Adam's.

    Keywords:
        server_lr: the server's learning rate; > 0; default 0.03
        server_beta1: b1, decay of the mean of past updates; >= 0; < 1; default 0.9
        server_tau: tau, added to the root: the larger, the less adaptive; > 0; default 0.001
        server_beta2: b2, decay of the mean of their squares; >= 0; < 1; default 0.99
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def gossip(
    *,
    topology: str = "ring",
    topology_changes: Literal["never", "every-round"] = "never",
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm gossip.

    Gossip averaging (DFedAvgM; Sun, Li & Wang 2022): no server, parties average with their neighbours in a graph.

    Party i starts from its own model x_i, trains it to z_i with any local rule, and mixes: x_i <- sum_j W_ij
    z_j, W the Metropolis weights of the graph (core/topology.py). Only parties that took part mix, among
    themselves; the others keep their models. MOON's positive anchor is x_i, the mean of the neighbourhood. Buffers
    are mixed alike. The consensus model, the plain mean over all parties, takes the place of the server's. D-PSGD
    (Lian et al. 2017) mixes x_j instead and adds the party's own unmixed step; it is not here.

    Keywords:
        topology: graph of the parties instead of a server: ring, torus, complete, random:K, a CSV
            file of edges or a list of them ('0-1 1-2'); default 'ring'
        topology_changes: when a graph random:K is drawn anew: never, every-round; 'never' or
            'every-round'; default 'never'
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def median(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm median.

    The coordinate-wise median (Yin et al. 2018): a minority cannot move an entry beyond the other parties' values.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def moon(
    *,
    mu: float = 1.0,
    temperature: float = 0.5,
    negatives: int = 1,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
) -> Algorithm:
    """Make the algorithm moon.

    MOON (Li, He & Song 2021), eq. 3 and 7: pull the local representation towards the global model's
    and push it away from those of the party's own last k models.

    Keywords:
        mu: weight of the contrastive term; >= 0; default 1.0
        temperature: tau, the temperature of the contrastive term; > 0; default 0.5
        negatives: k, how many of the party's previous models are negatives; >= 1; <= 1000; default
            1
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def moon_l2(
    *,
    mu: float = 0.1,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    moon_mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm moon-l2.

    The ablation of the MOON paper's section 4.7, eq. 6: the distance to the global representation as second term.

    Keywords:
        mu: weight of the l2 representation term; >= 0; default 0.1
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def scaffold(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm scaffold.

    SCAFFOLD (Karimireddy et al. 2020), in the form that is correct with momentum and parties of unequal size.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def scaffold_niid(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm scaffold-niid.

    SCAFFOLD as NIID-Bench runs it, for comparison: random start, correction after the step, buffers corrected too.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def solo(
    *,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    trim: float = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
) -> Algorithm:
    """Make the algorithm solo.

    SOLO: every party trains a model of its own on its own rows, and nothing is ever sent.

    Keywords:
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """

def trimmed_mean(
    *,
    trim: float = 0.2,
    server: str | None = None,
    server_lr: float = ...,
    server_beta1: float = ...,
    server_tau: float = ...,
    server_beta2: float = ...,
    look_ahead: float = ...,
    server_momentum: float = ...,
    momentum_form: Literal["damped", "plain"] = ...,
    discrepancy_weight: float = ...,
    discrepancy_offset: float = ...,
    tested_model: Literal["sent", "mean"] = ...,
    eps: float = ...,
    topology: str = ...,
    topology_changes: Literal["never", "every-round"] = ...,
    samples: int = ...,
    prior: Literal["uniform", "rows"] = ...,
    head_epochs: int = ...,
    head_batch: int = ...,
    head_lr: float = ...,
    head_momentum: float = ...,
    mu: float = ...,
    temperature: float = ...,
    negatives: int = ...,
) -> Algorithm:
    """Make the algorithm trimmed-mean.

    The coordinate-wise trimmed mean (Yin et al. 2018): extreme values of a few parties do not count.

    Keywords:
        trim: fraction of the parties removed at each end, rounded up; 0: plain mean; >= 0; < 0.5;
            default 0.2
        server: other rules at the server (adagrad, adam, fedacg, fedadagrad, fedadam, fedavg,
            fedavgm, feddisco, fedexp, fedma, fednova, fedyogi, gossip, median, momentum, trimmed-
            mean, yogi, or 'fednova+momentum'), moon to add that method's term to the loss, phases
            after training (ccvr), several joined by a plus; default: its own, and no phase
    """
