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
from moonfed.training.party_rows import split_rows
from moonfed.training.resolve import resolve

logger = logging.getLogger(__name__)


def load_site_rows(
    settings: SiteSettings, config: Config, encoding: Encoding | None, with_test: bool = False
) -> tuple[Dataset, Rows]:
    """Load a site's rows: with the coordinator's encoding if there is one, otherwise as the run's data set has them.

    The site's own test rows are read only where they are needed.
    """
    test = settings.test if with_test else None
    if encoding is not None:
        if settings.data is None:
            raise UserError(
                "this run needs a site's own rows, but this site was made with --share; "
                "make a site with moonfed site init --data PATH"
            )
        data = read_with_encoding(encoding, settings.data, settings.reader_options)
        return _with_test_rows(data, settings, test, encoding), np.arange(len(data.labels))
    reference = DATASETS[config.data.dataset]()
    if settings.data is not None:
        if reference.words:
            raise UserError(
                f"a site's own rows cannot be read as {reference.name}, whose texts are stored as word numbers; "
                "start the federation with --data"
            )
        own = read_with_encoding(encoding_of(reference), settings.data, settings.reader_options)
        data = replace(reference, inputs=own.inputs, labels=own.labels, party=None, test_party=None, party_names=())
        return _with_test_rows(data, settings, test, encoding_of(reference)), np.arange(len(own.labels))
    assert settings.share is not None
    parts = split_rows(resolve(config, reference), reference)
    if settings.share >= len(parts):
        raise UserError(f"this site has --share {settings.share}, but the split has parties 0 to {len(parts) - 1}")
    return reference, parts[settings.share]


def _with_test_rows(data: Dataset, settings: SiteSettings, test: str | None, encoding: Encoding) -> Dataset:
    """Add the site's own test rows, if it has any, encoded like its training rows."""
    if test is None:
        return data
    own = read_with_encoding(encoding, test, settings.reader_options)
    return replace(data, test_inputs=own.inputs, test_labels=own.labels)
