"""Every recipe by its id."""

from moonfed.papers.moon_figures import MOON_FIGURES
from moonfed.papers.moon_tables import MOON_TABLES
from moonfed.papers.other_papers import OTHER_PAPERS
from moonfed.papers.recipe import Recipe

RECIPES: dict[str, Recipe] = {recipe.id: recipe for recipe in (*MOON_TABLES, *MOON_FIGURES, *OTHER_PAPERS)}
