"""A site's trainer: answers the coordinator's requests with its own rows, and keeps its memory to itself."""

import json
import logging
import math
import secrets
import time
from typing import NamedTuple

from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import UserError
from moonfed.core.files import in_order
from moonfed.core.private_tensors import private_part
from moonfed.core.tree import tree_map
from moonfed.core.types import PartyInfo, Slots, Snapshot, State, as_snapshot
from moonfed.data.batches import draw_plan, probe_plan
from moonfed.data.partition import Rows
from moonfed.data.population import IndexedRows
from moonfed.engines import EngineOptions, Job, JobResult, nets_of, pick_device, pick_engine
from moonfed.engines.companions import run_with_companions
from moonfed.engines.devices import set_threads
from moonfed.engines.local_optimizer import OPTIMIZERS
from moonfed.engines.party_round import first_memory
from moonfed.engines.query import sum_batches, sum_query
from moonfed.federation.pki.site_folder import SiteFolder
from moonfed.federation.protocol.codec import decode_state, encode_upload
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.federation.protocol.rejection import Rejection, sanitize
from moonfed.federation.protocol.request import (
    EFFECTIVE_STEPS,
    ENROL,
    OWN_TEST,
    PROCESS,
    QUERY,
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
from moonfed.training.evaluate import ScoreQuery
from moonfed.training.lr_schedule import round_lr
from moonfed.training.network import NetSpec, build, net_spec, private_tensors, random_model
from moonfed.training.registry import make_algorithm
from moonfed.training.resolve import ResolvedConfig, resolve
from moonfed.training.trial import RunContext

logger = logging.getLogger(__name__)


class LoadedRun(NamedTuple):
    """What a site keeps in memory between two requests of one run."""

    config: ResolvedConfig
    context: RunContext
    spec: NetSpec
    rows: Rows
    counts: tuple[int, ...]
    algorithm: Algorithm

    @property
    def private(self) -> frozenset[str]:
        """The names of the tensors that never leave this site."""
        return private_tensors(self.spec, self.algorithm.local)

    def random_model(self, name: str) -> Snapshot:
        """Make the run's random model of a name, as a simulation does."""
        return random_model(self.spec, self.config.run.seed, name, self.context.data.inputs.device)


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
        if request.kind not in (QUERY, TRAIN):
            raise Rejection("malformed", f"this version of moonfed has no request of kind {request.kind!r}")
        stored = memory.stored_reply(claim.nonce) if request.kind == TRAIN else None
        if stored is not None:
            self.log.info("round %d: requested again, sent the stored reply", claim.round)
            return stored
        newest = memory.newest_round()
        if claim.round < newest:  # an old request, replayed, would cost the memory or the model of the newer round
            raise Rejection("stale", f"round {claim.round} is over, this site has trained round {newest}")
        answer = self._query if request.kind == QUERY else self._train
        return answer(request, envelope, memory)

    def _enrol(self, request: Request, envelope: Envelope, memory: SiteMemory) -> Envelope:
        memory.save_encoding(str(envelope.fields.get("encoding", "")))
        loaded = self._load(request, memory)
        numbers = {ROWS: len(loaded.rows)} | {f"class{i}": n for i, n in enumerate(loaded.counts)}
        numbers[PROCESS] = self.process
        self.log.info("enrolled with %d rows", len(loaded.rows))
        return reply_envelope(request.claim, numbers, {}, sign(self.key, request.claim, numbers, {}))

    def _train(self, request: Request, envelope: Envelope, memory: SiteMemory) -> Envelope:
        start, loaded, claim = time.perf_counter(), self._load(request, memory), request.claim
        state = _received(envelope, loaded)
        (result,) = run_with_companions(loaded.context.engine, [self._job(request, loaded, state, memory)])
        tensors = {name: tensor.cpu() for name, tensor in encode_upload(result.upload).items()}
        numbers = _numbers(result, len(loaded.rows)) | {PROCESS: self.process}
        reply = reply_envelope(claim, numbers, tensors, sign(self.key, claim, numbers, tensors))
        memory.save_round(request.base, claim.round, result.memory, claim.nonce, reply)
        seconds = time.perf_counter() - start
        self.log.info("round %d: %d steps in %.1f s", claim.round, result.upload.steps, seconds)
        return reply

    def _query(self, request: Request, envelope: Envelope, memory: SiteMemory) -> Envelope:
        """Answer a query about the sent model; only those of the run's own algorithm are answered, known by name."""
        loaded, claim = self._load(request, memory), request.claim
        net, data, state = loaded.context.nets.inference, loaded.context.data, _received(envelope, loaded)
        queries = {phase.query.name: phase.query for phase in loaded.algorithm.phases}
        if request.query == ScoreQuery.name and loaded.algorithm.personal:
            model = loaded.algorithm.local.personal(state, self._slots(request, loaded, memory))
            assert model is not None, "a personal rule has a model of the party"
            memory.save_personal(model, claim.round)
            rows = len(data.test_labels)
            total = sum_batches(net, data, model, data.test_inputs, data.test_labels, ScoreQuery().map)
        elif request.query in queries:
            rows = len(loaded.rows)
            total = sum_query(net, data, state.model, loaded.rows, queries[request.query])
        else:
            raise Rejection("malformed", f"the algorithm of this run asks no query {request.query!r}")
        tensors = {name: tensor.cpu() for name, tensor in total.items()}
        numbers: dict[str, int | float] = {ROWS: len(loaded.rows), PROCESS: self.process}
        if request.query == ScoreQuery.name:
            numbers[OWN_TEST] = int(self.settings.test is not None)
        self.log.info("round %d: answered the query %s over %d rows", claim.round, request.query, rows)
        return reply_envelope(claim, numbers, tensors, sign(self.key, claim, numbers, tensors))

    def _job(self, request: Request, loaded: LoadedRun, state: State, memory: SiteMemory) -> Job:
        """Make the job of a round, with the batch plan that a simulation draws for this party."""
        config, train, augmentation = loaded.config, loaded.config.train, loaded.context.data.augmentation
        seed, local, optimizer = config.run.seed, loaded.algorithm.local, OPTIMIZERS[train.optimizer]
        info = PartyInfo(request.party, len(loaded.rows), loaded.counts)
        round, private = request.claim.round - 1, loaded.private
        slots = self._slots(request, loaded, memory)
        if not request.base:
            slots = first_memory(local, optimizer, state, info, loaded.random_model, private)
        work = (train.epochs, train.batch, augmentation, request.work)
        plan = draw_plan(seed, round, request.party, loaded.rows, *work)
        rates = (round_lr(train, round), train.momentum, train.weight_decay)
        probe = probe_plan(loaded.rows, train.batch, augmentation) if config.run.gamma else None
        return Job(info, local, state, slots, plan, round, *rates, probe, train.max_grad_norm, optimizer, private)

    def _slots(self, request: Request, loaded: LoadedRun, memory: SiteMemory) -> Slots:
        """Load what this site remembers since its last accepted round; nothing before the first."""
        if not request.base:
            return {}
        device = loaded.context.data.inputs.device
        return tree_map(lambda t: t.to(device), in_order(memory.load_slots(request.base), _names(loaded)))

    def _load(self, request: Request, memory: SiteMemory) -> LoadedRun:
        """Load rows and network, unless those of the same settings are loaded already."""
        identity = (request.config, request.encoding)
        if self.loaded is None or self.loaded[0] != identity:
            config = make_config(json.loads(request.config))
            check_federable(config)
            if config.data.path is not None:
                raise Rejection("malformed", "a coordinator must not name files of a site")
            settings, device = config.algorithm, pick_device(self.settings.device)
            algorithm = make_algorithm(settings.name, settings.server, settings.options)
            encoding = memory.load_encoding(request.encoding)
            data, rows = load_site_rows(self.settings, config, encoding, with_test=algorithm.personal)
            data = data.to(device)
            config = resolve(config, data)
            spec = net_spec(config, data)
            nets = nets_of(build(spec).to(device), data)
            engine = pick_engine("sequential", nets, data, EngineOptions(config.run.precision))
            counts = IndexedRows([rows], data.labels.cpu().numpy(), data.classes).info(0).class_counts
            if algorithm.personal and not len(data.test_labels):
                raise UserError(
                    f"{algorithm.name} judges this site's own model on test rows of this site, and it has none; "
                    'name them with moonfed site init --test PATH, or as "test" in this folder\'s site.json'
                )
            context = RunContext(data, nets, engine)
            self.loaded = (identity, LoadedRun(config, context, spec, rows, counts, algorithm))
        return self.loaded[1]


def _names(loaded: LoadedRun) -> list[str]:
    net = loaded.context.nets.training
    return [name for name, _ in (*net.named_parameters(), *net.named_buffers())]


def _received(envelope: Envelope, loaded: LoadedRun) -> State:
    """Read the state that came with a request, complete and in the order of the network.

    Names are sorted on the way, and sums over a model's tensors depend on their order. Private tensors are not sent:
    in their places are those that every party begins with.
    """
    device, names = loaded.context.data.inputs.device, _names(loaded)
    state: State = tree_map(lambda t: t.to(device), decode_state(envelope.tensors))
    weights, buffers = state.model
    if loaded.private:
        first = private_part(loaded.random_model("model"), loaded.private)
        weights, buffers = weights | first.weights, buffers | first.buffers
    model = as_snapshot(in_order({"model": Snapshot(weights, buffers)}, names), "model")
    return State(model, in_order(state.sent, names), state.server_state)


def _numbers(result: JobResult, rows: int) -> dict[str, int | float]:
    """Collect the numbers of a reply: the work done, and the mean of each part of the loss."""
    upload = result.upload
    work = {STEPS: upload.steps, EFFECTIVE_STEPS: float(upload.effective_steps), ROWS: rows}
    losses = {f"loss/{name}": float(steps.double().mean()) for name, steps in result.losses.items()}
    measured = result.gamma is not None and math.isfinite(result.gamma)  # no quotient of two zeros
    return work | losses | ({"gamma": float(result.gamma or 0.0)} if measured else {})
