"""The defaults of every method, as docs/methods.md gives them.

They are the paper's or the authors', but for those that fit ten parties with momentum 0.9: server_lr, rho, dynamic,
head_part, pull, and CCVR's samples and training.
"""

import pytest

from moonfed.training.config import make_config

ADAPTIVE = {"server_beta1": 0.9, "server_beta2": 0.99, "server_tau": 0.001}
DEFAULTS: dict[str, dict[str, object]] = {
    "moon": {"mu": 1.0, "temperature": 0.5, "negatives": 1},
    "fedprox": {"mu": 0.01},
    "fedntd": {"beta": 1.0, "temperature": 1.0},
    "fedlmd": {"beta": 1.0, "temperature": 1.0, "teacher": "global"},
    "fedvls": {"distillation": 0.1, "suppression": 0.005},
    "feddecorr": {"beta": 0.1},
    "fedrs": {"alpha": 0.5},
    "fedlc": {"margin": 1.0},
    "fedsam": {"rho": 0.05},
    "feddyn": {"dynamic": 0.1, "tested_model": "sent"},
    "fedcm": {"own_part": 0.1},
    "fedacg": {"look_ahead": 0.85, "beta": 0.001},
    "fedrep": {"head_part": 0.9},
    "ditto": {"pull": 0.1},
    "fedadam": {"server_lr": 0.03, **ADAPTIVE},
    "fedyogi": {"server_lr": 0.03, **ADAPTIVE},
    "fedadagrad": {"server_lr": 0.03, **ADAPTIVE, "server_beta1": 0.0},
    "fedexp": {"eps": 0.001},
    "feddisco": {"discrepancy_weight": 0.5, "discrepancy_offset": 0.1},
    "fedavg+ccvr": {
        **{"samples": 2000, "prior": "uniform", "head_epochs": 10, "head_batch": 256},
        **{"head_lr": 0.01, "head_momentum": 0.9},
    },
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_method_without_settings_has_its_documented_ones(name):
    options = make_config({"algorithm": {"name": name}}).algorithm.options
    assert {key: options[key] for key in DEFAULTS[name]} == DEFAULTS[name]
