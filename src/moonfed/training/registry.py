"""Every algorithm by name, collected from the files of algorithms/, aggregators/ and server_optimizers/.

A new algorithm is one file with a PRESET: Python names, flags, help and the tables of the docs follow from it. Phases
after training, from phases/, are added to an algorithm by a plus: fedavg+ccvr.
"""

import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import Field
from importlib import import_module
from typing import Any, NamedTuple

from moonfed.core.algorithm import Algorithm, Preset
from moonfed.core.errors import UserError, unknown
from moonfed.core.loss_terms import TermRule, with_term
from moonfed.core.rules import Aggregator, LocalRule, Rule, ServerOptimizer, settings_of
from moonfed.training.rule_options import check_option, setting_flag

RuleOptions = dict[str, Any]
PHASE_ROLE = 3  # the place of phases among the roles of rules
BASELINE = "fedavg"  # whose rules at the server are the defaults


class ServerRules(NamedTuple):
    """What a name after a plus, or of --server, replaces in an algorithm; None is kept."""

    aggregator: type[Aggregator] | None
    server_optimizer: type[ServerOptimizer] | None

    @property
    def roles(self) -> set[str]:
        """What of an algorithm these rules replace."""
        return {role for role, rule in self._asdict().items() if rule is not None}

    @property
    def fit_all(self) -> bool:
        """Whether these rules ask nothing of a local rule."""
        aggregator, optimizer = self.aggregator or Aggregator, self.server_optimizer or ServerOptimizer
        asks_nothing = aggregator.moves_model and not (aggregator.needs or aggregator.gives)
        return asks_nothing and optimizer.needs == aggregator.for_optimizer


def collect(rooms: Sequence[str]) -> dict[str, Preset]:
    """Import every file of some rooms and collect their presets, sorted by name."""
    presets: dict[str, Preset] = {}
    for room in rooms:
        for module in pkgutil.iter_modules(import_module(room).__path__):
            preset: Preset = import_module(f"{room}.{module.name}").PRESET
            if preset.name in presets:
                raise ValueError(f"two files register the name {preset.name}; {room}.{module.name} is one")
            presets[preset.name] = preset
    return dict(sorted(presets.items()))


def check_settings(presets: Iterable[Preset]) -> None:
    """Refuse a setting that rules of different roles share: in a combination they could not be told apart."""
    owners: dict[str, tuple[int, str]] = {}
    for preset in presets:
        for role, rule in zip((0, 1, 2, *[PHASE_ROLE] * len(preset.phases)), preset.rules, strict=True):
            for name in settings_of(rule):
                if name in ("name", "server"):
                    raise ValueError(f"{rule.__name__} declares {name}, which names an algorithm; rename it")
                other, owner = owners.setdefault(name, (role, rule.__name__))
                if other != role:
                    raise ValueError(f"{rule.__name__} and {owner} both declare {name}; rename one of them")


ALGORITHMS = collect(("moonfed.algorithms", "moonfed.aggregators", "moonfed.server_optimizers"))
PHASES = collect(("moonfed.phases",))
check_settings([*ALGORITHMS.values(), *PHASES.values()])


def server_rules(presets: Iterable[Preset]) -> dict[str, ServerRules]:
    """List the server's sides by name: of an algorithm that has one of its own, or by the short name of its part."""
    found = {BASELINE: ServerRules(Aggregator, ServerOptimizer)}
    for preset in presets:
        aggregator = None if preset.aggregator is Aggregator else preset.aggregator
        optimizer = None if preset.server_optimizer is ServerOptimizer else preset.server_optimizer
        if aggregator or optimizer:
            found |= dict.fromkeys(filter(None, (preset.name, preset.part)), ServerRules(aggregator, optimizer))
    return dict(sorted(found.items()))


SERVERS = server_rules(ALGORITHMS.values())
GENERAL_SERVERS = [name for name, rules in SERVERS.items() if rules.fit_all]  # those that fit any local rule
TERMS = {name: preset.local for name, preset in ALGORITHMS.items() if issubclass(preset.local, TermRule)}
# Settings that by themselves choose rules at the server: --topology ring is gossip in a ring.
CHOOSERS = {preset.aggregator.chosen_by: name for name, preset in ALGORITHMS.items() if preset.aggregator.chosen_by}
# Their settings, which a comparison takes for all methods.
SHARED = tuple(key for chosen in CHOOSERS.values() for key in settings_of(ALGORITHMS[chosen].aggregator))
ROLES = {"aggregator": "aggregator", "server_optimizer": "server optimiser"}


def check_name(name: str) -> None:
    """Refuse a name that is no algorithm's."""
    if name in PHASES:
        raise UserError(f"{name} is a phase after training and no algorithm; add it to one, for example fedavg+{name}")
    if name.partition(":")[0] in ALGORITHMS and ":" in name:
        raise UserError(
            f"settings of an algorithm are flags here, got {name!r}; use --algorithm {name.partition(':')[0]} and "
            f"{_as_flags(name)}"
        )
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)


def _as_flags(method: str) -> str:
    """Write the settings of a method as flags: fedntd:beta=0.1 as --fedntd.beta 0.1."""
    name, _, options = method.partition(":")
    pairs = [option.partition("=") for option in options.split(",")]
    return " ".join(f"{setting_flag(name, key.strip().replace('-', '_'))} {value}" for key, _, value in pairs)


def preset_of(name: str, server: str | None = None) -> Preset:
    """Look up an algorithm with what is named after a plus.

    moon adds its term to the loss, fednova and adam replace rules at the server, ccvr is a phase after training.
    """
    check_name(name)
    preset, replaced = ALGORITHMS[name]._replace(name=full_name(name, server)), dict[str, str]()
    own = SERVERS[name].roles if name in SERVERS and preset.local is LocalRule and name != BASELINE else ()
    for part in server.split("+") if server is not None else ():
        if part in TERMS:
            preset = _add_term(preset, part)
            continue
        if part in PHASES:
            if part in replaced:
                raise UserError(f"{preset.name} names the phase {part} twice; name it once")
            preset, replaced[part] = preset._replace(phases=(*preset.phases, *PHASES[part].phases)), part
            continue
        if part not in SERVERS:
            if part in ALGORITHMS:
                raise UserError(_two_local_rules(name, part))
            raise unknown("server rule or phase", part, [*GENERAL_SERVERS, *TERMS, *PHASES])
        for role, rule in SERVERS[part]._asdict().items():
            if rule is None:
                continue
            if role in own and part != BASELINE:
                replaced.setdefault(role, name)
            if role in replaced:
                raise UserError(f"{preset.name} names two {ROLES[role]}s, {replaced[role]} and {part}; use one of them")
            preset, replaced[role] = preset._replace(**{role: rule}), part
    if preset.pooled and preset.sends_own_models:
        raise UserError(f"{name} has all rows in one place, {server} needs several parties; omit +{server}")
    return preset


def _two_local_rules(name: str, part: str) -> str:
    """Say what to do with two local rules in one name."""
    for one, other in ((part, name), (name, part)):
        if other in TERMS and not (ALGORITHMS[one].personal or ALGORITHMS[one].pooled):
            return f"{part} is a local rule, as {name} is; write {one}+{other} to add {other}'s term to it"
    names = ", ".join(TERMS)
    return f"{part} is a local rule and {name} has one; use one of them alone (a plus adds the terms of {names} only)"


def _add_term(preset: Preset, word: str) -> Preset:
    """Add the term of a method to the local rule of another."""
    if preset.personal:
        raise UserError(f"{preset.name} trains a model for each party, {word} needs a global one; omit +{word}")
    if preset.pooled:
        raise UserError(f"{preset.name} has all rows in one place, {word} needs parties; omit +{word}")
    if preset.name.split("+").count(word) > 1:
        raise UserError(f"{preset.name} names {word} twice; use it once")
    alone = preset.local is LocalRule  # cross-entropy plus the term is the method itself
    return preset._replace(local=TERMS[word] if alone else with_term(preset.local, TERMS[word], word))


def chosen_server(name: str, server: str | None, options: RuleOptions) -> str | None:
    """Return what stands after the plus, with rules that a setting chooses: --topology ring is gossip."""
    for key, chosen in CHOOSERS.items():
        preset = preset_of(name, server)
        if key not in options or preset.aggregator is ALGORITHMS[chosen].aggregator:
            continue
        flag = f"{setting_flag(chosen, key)} {str(options[key])[:60]}"
        if (preset.aggregator, preset.server_optimizer) != (Aggregator, ServerOptimizer):
            raise UserError(
                f"{preset.name} has rules of its own at the server, {flag} has no server; omit it, or use "
                "an algorithm without them, such as moon or fedavg"
            )
        if preset.pooled:
            raise UserError(f"{name} has all rows in one place, {flag} needs several parties; omit one of the two")
        return chosen if server is None else ordered_parts(f"{server}+{chosen}")
    return server


def ordered_parts(server: str) -> str:
    """Put what stands behind a plus in one order, as a method is the same in any: terms, aggregator, optimiser, phases.

    Words that are none of these come last, for preset_of to refuse.
    """

    def rank(part: str) -> int:
        if part in TERMS:
            return 0
        if part in SERVERS:
            return 2 if SERVERS[part].aggregator is None else 1
        return 3 if part in PHASES else 4

    return "+".join(sorted(server.split("+"), key=rank))


def check_options(name: str, server: str | None, options: RuleOptions) -> RuleOptions:
    """Check the settings of an algorithm's rules and fill in the defaults."""
    preset = preset_of(name, server)
    declared = {k: f for rule in preset.rules for k, f in settings_of(rule).items()}
    for key in options:
        if key not in declared:
            raise _unknown_setting(preset.name, key, declared)
    return {k: check_option(_owner(name, server, k), f, options.get(k, f.default)) for k, f in declared.items()}


def _owner(name: str, server: str | None, key: str) -> str:
    """Name the part of a combination that declares a setting; the whole one where only the combination has it."""
    whole = full_name(name, server)
    return next((word for word in whole.split("+") if any(key in settings_of(r) for r in _part(word).rules)), whole)


def _part(word: str) -> Preset:
    """Return the rules that a word of a combination brings."""
    presets = [*ALGORITHMS.values(), *PHASES.values()]
    return next(preset for preset in presets if word in (preset.name, preset.part))


def make_algorithm(name: str, server: str | None, options: RuleOptions) -> Algorithm:
    """Make an algorithm from checked options."""
    preset = preset_of(name, server)

    def settings(rule: type[Rule]) -> RuleOptions:
        return {k: options[k] for k in settings_of(rule)}

    local, aggregator, optimizer = preset.local, preset.aggregator, preset.server_optimizer
    phases = tuple(phase(**settings(phase)) for phase in preset.phases)
    rules = local(**settings(local)), aggregator(**settings(aggregator)), optimizer(**settings(optimizer))
    return Algorithm(preset.name, *rules, phases)


def full_name(name: str, server: str | None) -> str:
    """Name a combination: moon, or moon+fednova+adam+ccvr."""
    return name if server is None else f"{name}+{server}"


def changed_flags(name: str, server: str | None, options: RuleOptions) -> list[str]:
    """List the flags of an algorithm's numbers that differ from their defaults."""
    declared = {k: f for rule in preset_of(name, server).rules for k, f in settings_of(rule).items()}
    changed = [k for k, f in declared.items() if f.type is float and options.get(k, f.default) != f.default]
    return [setting_flag(_owner(name, server, key), key) for key in changed]


def all_settings() -> dict[str, list[tuple[str, Field[Any]]]]:
    """List every setting of every rule: name to (algorithm, field) pairs; a phase's are those of fedavg with it.

    Combinations are listed for the settings that have another name there: moon_mu of fedprox+moon.
    """
    found: dict[str, list[tuple[str, Field[Any]]]] = {}
    for algorithm, preset in {**ALGORITHMS, **{f"{BASELINE}+{k}": phase for k, phase in PHASES.items()}}.items():
        for rule in preset.rules:
            for name, field in settings_of(rule).items():
                found.setdefault(name, []).append((algorithm, field))
    for word in TERMS:
        for algorithm, preset in ALGORITHMS.items():
            if not (preset.personal or preset.pooled or algorithm == word):
                both = preset_of(algorithm, word).local
                renamed = settings_of(both).keys() - settings_of(preset.local).keys() - settings_of(TERMS[word]).keys()
                for name in sorted(renamed):
                    found.setdefault(name, []).append((full_name(algorithm, word), settings_of(both)[name]))
    return found


def _unknown_setting(name: str, key: str, declared: dict[str, Any]) -> UserError:
    for chooser, chosen in CHOOSERS.items():
        if key in settings_of(ALGORITHMS[chosen].aggregator):
            flags = setting_flag(chosen, key), setting_flag(chosen, chooser)
            return UserError(f"{flags[0]} is of use with {flags[1]} alone; add that, or omit it")
    owners = [algorithm for algorithm, _ in all_settings().get(key, [])]
    known = f"its settings: {', '.join(sorted(declared))}" if declared else "it has no settings of its own"
    if owners:
        verb = "has" if len(owners) == 1 else "have"
        return UserError(f"{name} has no setting {key} ({', '.join(owners)} {verb} it); {known}")
    return (
        unknown("setting", key, declared, f"of {name}")
        if declared
        else UserError(f'no setting "{key}" of {name}; {known}')
    )
