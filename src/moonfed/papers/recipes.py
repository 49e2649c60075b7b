"""Every recipe by its id."""

from moonfed.papers.moon import MOON_TABLES
from moonfed.papers.recipe import Recipe

RECIPES: dict[str, Recipe] = {recipe.id: recipe for recipe in (*MOON_TABLES,)}
