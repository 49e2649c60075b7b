"""FedAvg (McMahan et al. 2017): plain local SGD, then the share-weighted mean of the parties' models.

Both are the defaults of core/rules.py. Methods that change the server alone have the same local rule, so that their
parties share a stack.
"""

from moonfed.core.algorithm import Preset

PRESET = Preset("fedavg")
