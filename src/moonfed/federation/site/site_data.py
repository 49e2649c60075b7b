"""A site's rows: its own, encoded as the run requires, or its share of a simulated split."""

import logging
from dataclasses import replace

import numpy as np

from moonfed.core.errors import UserError
from moonfed.data import DATASETS, Dataset
from moonfed.data.partition import Rows
from moonfed.data.readers.encoding import Encoding, encoding_of
from moonfed.data.readers.schema import read_with_encoding
from moonfed.federation.pki.site_folder import SiteSettings
from moonfed.training.config import Config
from moonfed.training.resolve import resolve
from moonfed.training.trial import split_rows

logger = logging.getLogger(__name__)


def load_site_rows(settings: SiteSettings, config: Config, encoding: Encoding | None) -> tuple[Dataset, Rows]:
    """Load a site's rows: with the coordinator's encoding if there is one, otherwise as the run's data set has them."""
    if encoding is not None:
        if settings.data is None:
            raise UserError(
                "this run needs a site's own rows, but this site was made with --share; "
                "make a site with moonfed site init --data PATH"
            )
        data = read_with_encoding(encoding, settings.data, settings.reader_options)
        return data, np.arange(len(data.labels))
    reference = DATASETS[config.data.dataset]()
    if settings.data is not None:
        if reference.words:
            raise UserError(
                f"a site's own rows cannot be read as {reference.name}, whose texts are stored as word numbers; "
                "start the federation with --data"
            )
        own = read_with_encoding(encoding_of(reference), settings.data, settings.reader_options)
        data = replace(reference, inputs=own.inputs, labels=own.labels, party=None, test_party=None, party_names=())
        return data, np.arange(len(own.labels))
    assert settings.share is not None
    parts = split_rows(resolve(config, reference), reference)
    if settings.share >= len(parts):
        raise UserError(f"this site has --share {settings.share}, but the split has parties 0 to {len(parts) - 1}")
    return reference, parts[settings.share]
