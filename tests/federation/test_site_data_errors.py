"""What a federation over sites' own rows cannot have is refused before anything is written."""

from pathlib import Path

import pytest
from commands import moonfed, refused
from user_rows import people, write_csv

from moonfed.federation.flower.processes import free_port
from moonfed.federation.pki.coordinator_folder import make_coordinator_folder
from moonfed.federation.pki.site_folder import SiteFolder, SiteSettings, make_site_folder


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--topology", "torus"), "a torus needs rows and columns, 3 parties make one row"),
        (("--topology", "gone.csv"), "which cannot be read"),
        (("--algorithm", "fedma", "--norm", "group"), "fedma needs a network that is a chain of layers"),
    ],
)
def test_what_does_not_fit_a_federation_on_one_machine_is_refused_before_anything_is_written(
    place: Path, words: tuple[str, ...], line: str
):
    assert line in refused(moonfed("federate", "--sites", "3", *words, "--out", "run"))
    assert not list(place.iterdir())


def test_rows_are_checked_when_a_site_is_made(place: Path):
    home = make_coordinator_folder(place / "coordinator", "127.0.0.1", 9443, 1)
    where = ("--invitation", home.invitation, "--name", "north")
    people(place / "rows.csv")
    answer = moonfed("site", "init", place / "north", *where, "--data", "rows.csv", "--label", "kind")
    assert answer.code == 0, answer
    assert answer.out.startswith("rows.csv: 60 rows, 2 classes\n")
    assert SiteFolder(place / "north").settings == SiteSettings("north", data=str(place / "rows.csv"), label="kind")
    write_csv(place / "bad.csv", ["age", "kind"], [[1, "x"], [2, ""], [3, "y"]])
    for words, line in (
        (("--data", "rows.csv"), "needs --label COLUMN, the column of the class"),
        (("--data", "bad.csv", "--label", "kind"), "bad.csv has a bad row of 3: bad.csv line 3 (kind is empty)"),
        (("--data", "gone.csv"), "no file or folder"),
        (("--data", "rows.csv", "--label", "kind", "--share", "0"), "either --data PATH, or --share N"),
        (("--share", "0", "--label", "kind"), "are about a site's own rows; name them with --data"),
    ):
        assert line in refused(moonfed("site", "init", place / "south", *where, *words))
        assert not (place / "south").exists()
    skipping = ("--data", "bad.csv", "--label", "kind", "--skip-bad-rows")
    assert moonfed("site", "init", place / "south", *where, *skipping).out.startswith("bad.csv: 2 rows, 2 classes\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--validation", "0.2"), "--validation needs training rows, which a coordinator does not have"),
        (("--model", "mine.py:Net"), "sites do not run code that is sent to them, so the encoder mine.py:Net"),
        (("--partition", "iid"), "--partition iid splits one data set"),
    ],
)
def test_options_that_a_federation_cannot_have_are_rejected(place: Path, words: tuple[str, str], line: str):
    home = make_coordinator_folder(place / "coordinator", "127.0.0.1", free_port(), 1)
    site = make_site_folder(
        place / "north", home.invitation, SiteSettings("north", data=str(people(place / "rows.csv")))
    )
    home.admit("north", site.public_key_path)
    settings = ("--data", "rows.csv", "--label", "kind", "--out", "run", *words)
    assert line in refused(moonfed("federation", "start", home.path, *settings))
    assert "moonfed site init --data" in refused(moonfed("federate", "--sites", "2", *settings))
    assert not (place / "run").exists()
