"""A site's trainer: answers the coordinator's requests with its own rows, and keeps its memory to itself."""

import json
import logging
import secrets
import time
from typing import NamedTuple

from moonfed.core.files import in_order
from moonfed.core.tree import tree_map
from moonfed.core.types import PartyInfo, State, as_snapshot
from moonfed.data.batches import draw_plan, probe_plan
from moonfed.data.partition import Rows
from moonfed.engines import EngineOptions, Job, JobResult, nets_of, pick_device, pick_engine
from moonfed.engines.devices import set_threads
from moonfed.engines.local_optimizer import OPTIMIZERS
from moonfed.engines.step import first_memory
from moonfed.federation.pki.site_folder import SiteFolder
from moonfed.federation.protocol.codec import decode_state, encode_upload
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.federation.protocol.rejection import Rejection, sanitize
from moonfed.federation.protocol.request import (
    EFFECTIVE_STEPS,
    ENROL,
    PROCESS,
    REFUSED,
    REJECT,
    ROWS,
    STEPS,
    TRAIN,
    Envelope,
    Request,
    read_request,
    reply_envelope,
)
from moonfed.federation.protocol.signing import sign
from moonfed.federation.site.redaction import full_message, redacted_message
from moonfed.federation.site.site_data import load_site_rows
from moonfed.federation.site.site_memory import SiteMemory
from moonfed.training.config import make_config
from moonfed.training.lr_schedule import round_lr
from moonfed.training.network import NetSpec, build, net_spec, random_model
from moonfed.training.registry import make_algorithm
from moonfed.training.resolve import ResolvedConfig, resolve
from moonfed.training.trial import RunContext, class_counts

logger = logging.getLogger(__name__)


class LoadedRun(NamedTuple):
    """What a site keeps in memory between two requests of one run."""

    config: ResolvedConfig
    context: RunContext
    spec: NetSpec
    rows: Rows
    counts: tuple[int, ...]


class SiteTrainer:
    """Answers requests; everything that must survive a crash is on disk before the reply is sent."""

    def __init__(self, folder: SiteFolder) -> None:
        self.folder, self.settings = folder, folder.settings
        self.key, self.coordinator_key = folder.private_key(), folder.coordinator_key()
        self.loaded: tuple[tuple[str, str], LoadedRun] | None = None  # by config and encoding
        self.process = secrets.randbits(62)  # by which the coordinator detects a copy of this folder in use elsewhere
        self.log = logging.LoggerAdapter(logger, {"site": self.settings.name})
        if self.settings.threads:  # 0: torch's own choice
            set_threads(self.settings.threads)

    def answer(self, envelope: Envelope) -> Envelope:
        """Answer a request, or say why not: completely in this site's log, redacted in the reply."""
        try:
            return self._answer(read_request(self.coordinator_key, envelope), envelope)
        except Exception as error:  # whatever it is, the site must stay for the next request
            self.log.warning("cannot answer a request: %s", full_message(error))
            return Envelope({REFUSED: redacted_message(error, [self.folder.path]), PROCESS: self.process}, {})

    def _answer(self, request: Request, envelope: Envelope) -> Envelope:
        claim = request.claim
        if claim.site != self.settings.name:
            raise Rejection("wrong recipient", f"this is {self.settings.name}, the request is for {claim.site}")
        if request.kind == REJECT:
            self.log.warning("the coordinator rejects this site: %s", sanitize(request.said))
            return Envelope({"heard": 1}, {})
        memory = SiteMemory(self.folder.memory_folder, claim.run)
        if request.kind == ENROL:
            return self._enrol(request, envelope, memory)
        if request.kind != TRAIN:
            raise Rejection("malformed", f"this version of moonfed has no request of kind {request.kind!r}")
        stored = memory.stored_reply(claim.nonce)
        if stored is not None:
            self.log.info("round %d: requested again, sent the stored reply", claim.round)
            return stored
        newest = memory.newest_round()
        if claim.round < newest:  # an old request, replayed, would cost the memory of the newer round
            raise Rejection("stale", f"round {claim.round} is over, this site has trained round {newest}")
        return self._train(request, envelope, memory)

    def _enrol(self, request: Request, envelope: Envelope, memory: SiteMemory) -> Envelope:
        memory.save_encoding(str(envelope.fields.get("encoding", "")))
        loaded = self._load(request, memory)
        numbers = {ROWS: len(loaded.rows)} | {f"class{i}": n for i, n in enumerate(loaded.counts)}
        numbers[PROCESS] = self.process
        self.log.info("enrolled with %d rows", len(loaded.rows))
        return reply_envelope(request.claim, numbers, {}, sign(self.key, request.claim, numbers, {}))

    def _train(self, request: Request, envelope: Envelope, memory: SiteMemory) -> Envelope:
        start, loaded, claim = time.perf_counter(), self._load(request, memory), request.claim
        device = loaded.context.data.inputs.device
        state: State = tree_map(lambda t: t.to(device), _in_model_order(decode_state(envelope.tensors), loaded))
        result = loaded.context.engine.run_cohort([self._job(request, loaded, state, memory)])[0]
        tensors = {name: tensor.cpu() for name, tensor in encode_upload(result.upload).items()}
        numbers = _numbers(result, len(loaded.rows)) | {PROCESS: self.process}
        reply = reply_envelope(claim, numbers, tensors, sign(self.key, claim, numbers, tensors))
        memory.save_round(request.base, claim.round, result.memory, claim.nonce, reply)
        seconds = time.perf_counter() - start
        self.log.info("round %d: %d steps in %.1f s", claim.round, result.upload.steps, seconds)
        return reply

    def _job(self, request: Request, loaded: LoadedRun, state: State, memory: SiteMemory) -> Job:
        """Make the job of a round, with the batch plan that a simulation draws for this party."""
        config, train, augmentation = loaded.config, loaded.config.train, loaded.context.data.augmentation
        device, seed = loaded.context.data.inputs.device, config.run.seed
        settings, optimizer = config.algorithm, OPTIMIZERS[train.optimizer]
        local = make_algorithm(settings.name, settings.server, settings.options).local
        if request.base:
            slots = in_order(memory.load_slots(request.base), _names(loaded))
            slots = tree_map(lambda t: t.to(device), slots)
        else:
            info = PartyInfo(request.party, len(loaded.rows), loaded.counts)
            slots = first_memory(
                local, optimizer, state, info, lambda name: random_model(loaded.spec, seed, name, device)
            )
        work = (train.epochs, train.batch, augmentation, request.work)
        plan = draw_plan(seed, request.claim.round - 1, request.party, loaded.rows, *work)
        rates = (round_lr(train, request.claim.round - 1), train.momentum, train.weight_decay)
        probe = probe_plan(loaded.rows, train.batch, augmentation) if config.run.gamma else None
        return Job(request.party, local, state, slots, plan, *rates, probe, train.max_grad_norm, optimizer)

    def _load(self, request: Request, memory: SiteMemory) -> LoadedRun:
        """Load rows and network, unless those of the same settings are loaded already."""
        identity = (request.config, request.encoding)
        if self.loaded is None or self.loaded[0] != identity:
            config = make_config(json.loads(request.config))
            check_federable(config)
            if config.data.path is not None:
                raise Rejection("malformed", "a coordinator must not name files of a site")
            device = pick_device(self.settings.device)
            data, rows = load_site_rows(self.settings, config, memory.load_encoding(request.encoding))
            data = data.to(device)
            config = resolve(config, data)
            spec = net_spec(config, data)
            nets = nets_of(build(spec).to(device), data)
            engine = pick_engine("sequential", nets, data, EngineOptions(config.run.precision))
            counts = tuple(class_counts(data.labels.cpu().numpy(), [rows], data.classes)[0])
            self.loaded = (identity, LoadedRun(config, RunContext(data, nets, engine), spec, rows, counts))
        return self.loaded[1]


def _names(loaded: LoadedRun) -> list[str]:
    net = loaded.context.nets.training
    return [name for name, _ in (*net.named_parameters(), *net.named_buffers())]


def _in_model_order(state: State, loaded: LoadedRun) -> State:
    """Undo the sorting of names on the way: sums over a model's tensors depend on their order."""
    names = _names(loaded)
    model = as_snapshot(in_order({"model": state.model}, names), "model")
    return State(model, in_order(state.sent, names), state.server_state)


def _numbers(result: JobResult, rows: int) -> dict[str, int | float]:
    """Collect the numbers of a reply: the work done, and the mean of each part of the loss."""
    upload = result.upload
    work = {STEPS: upload.steps, EFFECTIVE_STEPS: float(upload.effective_steps), ROWS: rows}
    losses = {f"loss/{name}": float(steps.double().mean()) for name, steps in result.losses.items()}
    return work | losses | ({} if result.gamma is None else {"gamma": result.gamma})
