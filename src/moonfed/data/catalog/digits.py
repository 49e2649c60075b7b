"""The built-in data set: scikit-learn's 1,797 handwritten digits, 8x8 pixels, 17 grey levels."""

from typing import Any

import numpy as np
import torch

from moonfed.data.dataset import Augmentation, Dataset

# The rows are in the order of the 14 forms they were written on, by 13 writers. The last three forms, from this row on,
# are the test set, so the model is tested on forms it has not seen.
FIRST_TEST_ROW = 1415


def digits() -> Dataset:
    """Load the digits: 1,415 training rows and 382 test rows."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    images = torch.from_numpy(np.asarray(bunch["images"], dtype=np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(np.asarray(bunch["target"], dtype=np.int64))
    train = images[:FIRST_TEST_ROW].double()
    return Dataset(
        name="digits",
        inputs=images[:FIRST_TEST_ROW],
        labels=labels[:FIRST_TEST_ROW],
        test_inputs=images[FIRST_TEST_ROW:],
        test_labels=labels[FIRST_TEST_ROW:],
        classes=10,
        mean=(round(train.mean().item(), 4),),
        std=(round(train.std().item(), 4),),
        augmentation=Augmentation(),
        batch=16,
    )
