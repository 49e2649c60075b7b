"""A site's rows: its own, read as the run wants them, or its share of a simulated split."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from moonfed.core.errors import UserError
from moonfed.data import DATASETS, Dataset
from moonfed.data.partition import Rows
from moonfed.data.readers.encoding import Encoding, encoding_of
from moonfed.data.readers.schema import read_by
from moonfed.federation.pki.site_folder import SiteSettings
from moonfed.training.config import Config
from moonfed.training.trial import split_rows


def open_rows(
    settings: SiteSettings, config: Config, encoding: Encoding | None, say: Callable[[str], None]
) -> tuple[Dataset, Rows]:
    """Load a site's rows; with an encoding, that of the coordinator's own data, else in the way of a known data set."""
    if encoding is not None:
        if settings.data is None:
            raise UserError(
                "this run is on rows like the coordinator's own, and this site has none, but a share of a simulated "
                "split; make a site with moonfed site init --data PATH"
            )
        data = read_by(encoding, settings.data, settings.reading, say)
        return data, np.arange(len(data.labels))
    like = DATASETS[config.data.dataset]()
    if settings.data is not None:
        if like.words:
            raise UserError(
                f"no rows can be read as those of {like.name}, which are words by number; --data is for that"
            )
        own = read_by(encoding_of(like), settings.data, settings.reading, say)
        data = replace(like, inputs=own.inputs, labels=own.labels, party=None, test_party=None, party_names=())
        return data, np.arange(len(own.labels))
    assert settings.share is not None
    parts = split_rows(config, like)
    if settings.share >= len(parts):
        raise UserError(f"this site is share {settings.share} of a split into {len(parts)} (0 to {len(parts) - 1})")
    return like, parts[settings.share]
