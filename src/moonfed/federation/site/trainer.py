"""A site: it answers the coordinator's asks with its own rows, and keeps its memory to itself."""

import json
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from moonfed.core.tree import tree_map
from moonfed.core.types import PartyInfo, State
from moonfed.data.batches import draw_plan, probe_plan
from moonfed.data.partition import Rows, class_counts
from moonfed.engines import Job, JobResult, Options, nets_of, pick_device, pick_engine
from moonfed.federation.pki.site_folder import SitePlace
from moonfed.federation.protocol.codec import flat_upload, rebuilt_state
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.federation.protocol.rejection import Refused, printable
from moonfed.federation.protocol.request import ENROL, PROCESS, TELL, TRAIN, Ask, Note, read_ask, reply_note
from moonfed.federation.protocol.signing import sign
from moonfed.federation.site.redaction import for_others, whole_story
from moonfed.federation.site.site_data import open_rows
from moonfed.federation.site.site_memory import Memory
from moonfed.training.config import Config, make_config
from moonfed.training.registry import make_algorithm
from moonfed.training.trial import NetSpec, RunContext, build, fresh_model, net_spec, resolve


class Warm(NamedTuple):
    """What a site keeps loaded between two asks of one run."""

    config: Config
    bench: RunContext
    spec: NetSpec
    rows: Rows
    counts: tuple[int, ...]


class Site:
    """Answers asks; everything it must not forget is on its disk before it answers."""

    def __init__(self, place: SitePlace, say: Callable[[str], None] = lambda line: None) -> None:
        self.place, self.settings, self.say = place, place.settings, say
        self.key, self.coordinator = place.key(), place.coordinator()
        self.warm: tuple[tuple[str, str], Warm] | None = None
        self.process = secrets.randbits(62)  # so that a copy of this folder at work elsewhere is noticed
        if self.settings.threads:
            torch.set_num_threads(self.settings.threads)

    def answer(self, note: Note) -> Note:
        """Answer an ask, or say in a line why not: at home all of it, to others nothing of what is on this disk."""
        try:
            return self._answer(read_ask(self.coordinator, note), note)
        except Exception as error:  # whatever it is, a site that stays is better than one that ends
            self.say(f"could not answer an ask: {whole_story(error)}")
            return Note({"refused": for_others(error, [self.place.path]), PROCESS: self.process}, {})

    def _answer(self, ask: Ask, note: Note) -> Note:
        if ask.claim.site != self.settings.name:
            raise Refused("foreign", f"this is {self.settings.name}, the ask is for {ask.claim.site}")
        if ask.kind == TELL:
            self.say(f"the coordinator does not take this site: {printable(ask.said)}")
            return Note({"heard": 1}, {})
        memory = Memory(self.place.memory, ask.claim.run, self.say)
        if ask.kind == ENROL:
            memory.keep_encoding(str(note.words.get("encoding", "")))
            warm = self._warm(ask, memory)
            numbers = {"rows": len(warm.rows)} | {f"class{i}": n for i, n in enumerate(warm.counts)}
            numbers[PROCESS] = self.process
            self.say(f"enrolled with {len(warm.rows)} rows")
            return reply_note(ask.claim, numbers, {}, sign(self.key, ask.claim, numbers, {}))
        if ask.kind != TRAIN:
            raise Refused("malformed", f"this version of moonfed knows no ask of kind {ask.kind!r}")
        stored = memory.stored(ask.claim.nonce)
        if stored is not None:
            self.say(f"round {ask.claim.round}: asked again, answered from the disk")
            return stored
        if ask.claim.round < memory.newest():  # an old ask, played again, would cost the memory of the newer round
            raise Refused("stale", f"round {ask.claim.round} is over, this site has trained round {memory.newest()}")
        return self._train(ask, note, memory)

    def _train(self, ask: Ask, note: Note, memory: Memory) -> Note:
        began, warm = time.perf_counter(), self._warm(ask, memory)
        device = warm.bench.data.inputs.device
        state: State = tree_map(lambda t: t.to(device), rebuilt_state(note.tensors))
        done = warm.bench.engine.run_cohort([self._job(ask, warm, state, memory)])[0]
        upload = {name: tensor.cpu() for name, tensor in flat_upload(done.upload).items()}
        numbers = _numbers(done, len(warm.rows)) | {PROCESS: self.process}
        reply = reply_note(ask.claim, numbers, upload, sign(self.key, ask.claim, numbers, upload))
        memory.keep(ask.base, ask.claim.round, done.slots, ask.claim.nonce, reply)
        spent = time.perf_counter() - began
        self.say(f"round {ask.claim.round}: {done.upload.steps} steps in {spent:.1f} s")
        return reply

    def _job(self, ask: Ask, warm: Warm, state: State, memory: Memory) -> Job:
        """Make the job of a round: the very plan that a simulation would draw for this party."""
        config, train, recipe = warm.config, warm.config.train, warm.bench.data.recipe
        assert train.batch is not None
        device, seed = warm.bench.data.inputs.device, config.run.seed
        settings = config.algorithm
        local = make_algorithm(settings.name, settings.server, settings.options).local
        if ask.base:
            slots = tree_map(lambda t: t.to(device), memory.slots(ask.base))
        else:
            facts = PartyInfo(ask.party, len(warm.rows), warm.counts)
            slots = local.init_memory(state, facts, lambda name: fresh_model(warm.spec, seed, name, device))
        work = (train.epochs, train.batch, recipe, ask.work)
        plan = draw_plan(seed, ask.claim.round - 1, ask.party, warm.rows, *work)
        probe = probe_plan(warm.rows, train.batch, recipe) if config.run.gamma else None
        return Job(ask.party, local, state, slots, plan, train.lr, train.momentum, train.weight_decay, probe)

    def _warm(self, ask: Ask, memory: Memory) -> Warm:
        """Load rows and network, unless those of the same settings are loaded already."""
        known = (ask.config, ask.encoding)
        if self.warm is None or self.warm[0] != known:
            config = make_config(json.loads(ask.config))
            check_federable(config)
            if config.data.path is not None:
                raise Refused("malformed", "a coordinator names no files of a site")
            device = pick_device(self.settings.device)
            data, rows = open_rows(self.settings, config, memory.encoding(ask.encoding), self.say)
            data = data.to(device)
            config = resolve(config, data)
            spec = net_spec(config, data)
            nets = nets_of(build(spec).to(device))
            engine = pick_engine("sequential", nets, data, Options(config.run.precision))
            counts = tuple(class_counts(data.labels.cpu().numpy(), [rows], data.classes)[0])
            self.warm = (known, Warm(config, RunContext(data, nets, engine), spec, rows, counts))
        return self.warm[1]


def _numbers(done: JobResult, rows: int) -> dict[str, int | float]:
    """The numbers of a reply: the work done, and the mean of each part of the loss."""
    losses = {f"loss/{name}": float(steps.double().mean()) for name, steps in done.losses.items()}
    gamma = {} if done.gamma is None else {"gamma": done.gamma}
    return {"steps": done.upload.steps, "mass": float(done.upload.effective_steps), "rows": rows} | losses | gamma
