"""An island without training: it speaks the protocol, and can violate it.

Written from proto/ alone, through reflection. `Member` is the control side
(IslandService), `push` and `pull` the data side (ParameterService). Each method
takes one step, so that a test controls the order.
"""

import array
import queue
import random

import grpc

from harness import arithmetic
from harness import codecs
from harness import wait

CHUNK_BLOCKS = 64


class Member:
    def __init__(self, cluster, run_id, island_id, **capabilities):
        self.cluster = cluster
        self.run_id = run_id
        self.island_id = island_id
        self.service = cluster.client(cluster.dialled_by("island")).service(
            "IslandService")
        capabilities.setdefault("devices", [{
            "kind": "cpu", "name": "python", "memory_bytes": 1 << 30
        }])
        capabilities.setdefault("thread_count", 1)
        capabilities.setdefault("program_version", "test")
        if "data_fingerprint" not in capabilities:
            capabilities["data_fingerprint"] = cluster.runs.GetRun(
                run_id=run_id).run.spec.data.fingerprint
        self.capabilities = capabilities
        self.join()

    def join(self):
        response = self.service.Join(run_id=self.run_id,
                                     island_id=self.island_id,
                                     capabilities=self.capabilities)
        self.response = response
        self.spec = response.run.spec
        self.epoch = response.island_epoch
        self.slot = response.slot
        self.next_seq = max(1, response.next_seq)
        self.secret = response.session_secret
        self.layout = arithmetic.LayoutView(self.spec.layout)
        self.plan = response.plan
        return self

    @property
    def metadata(self):
        return (("atoll-session", self.secret.hex()),)

    @property
    def who(self):
        return {"run_id": self.run_id, "island_id": self.island_id,
                "island_epoch": self.epoch}

    def ready(self, commit_seq=None):
        if commit_seq is None:
            commit_seq = self.newest_plan().commit_seq
        return self.service.ReportReady(commit_seq=commit_seq,
                                        metadata=self.metadata, **self.who)

    def heartbeat(self):
        return self.service.Heartbeat(metadata=self.metadata, **self.who)

    def leave(self, reason="the test is done"):
        return self.service.Leave(reason=reason, metadata=self.metadata,
                                  **self.who)

    def newest_plan(self):
        call = self.service.WatchPlan(metadata=self.metadata,
                                      **self.who)
        self.plan = next(iter(call)).plan
        call.cancel()
        return self.plan

    def wait_plan(self, what, accept, timeout=wait.PATIENCE_S):
        """Watches until `accept(plan)`; returns that plan."""

        def watch():
            call = self.service.WatchPlan(metadata=self.metadata,
                                          timeout=timeout, **self.who)
            try:
                for response in call:
                    self.plan = response.plan
                    if accept(self.plan):
                        call.cancel()
                        return self.plan
            except grpc.RpcError as error:
                # A restart of the coordinator breaks the connection.
                if error.code() == grpc.StatusCode.UNAVAILABLE:
                    return None
                raise wait.TimedOut(
                    "%s: %s while waiting for: %s; last plan:\n%s" %
                    (self.island_id, error.details(), what, self.plan))
            raise wait.TimedOut("%s: the plan ended before: %s" %
                                (self.island_id, what))

        return wait.until(what, watch, timeout)

    def wait_open(self, version, fragment=0):
        """Waits for the round that makes version + 1; returns its OPEN."""

        def accept(plan):
            return find_open(plan, fragment, version) is not None

        self.wait_plan("round %d of fragment %d opens" % (version, fragment),
                       accept)
        return find_open(self.plan, fragment, version)

    def wait_version(self, version, fragment=0):
        return self.wait_plan(
            "version %d of fragment %d commits" % (version, fragment),
            lambda plan: plan.cut and plan.cut[fragment].version >= version)

    def wait_outcome(self, seq, fragment=0):
        def find(plan):
            for o in plan.outcomes:
                if o.key.seq == seq and o.key.fragment == fragment:
                    return o
            return None

        self.wait_plan("contribution %d gets an outcome" % seq,
                       lambda plan: find(plan) is not None)
        return find(self.plan)

    def contribution(self, values, version, fragment=0, codec=codecs.F32,
                     **changes):
        """A Contribution of f32 `values` (a list, or its bytes) at an anchor."""
        if isinstance(values, bytes):
            values = arithmetic.from_bytes(values)
        seq = self.next_seq
        self.next_seq += 1
        return Contribution(self, values, version, fragment, seq, codec,
                            changes)

    def random_values(self, seed, fragment=0, scale=0.01):
        """f32 values with mean 0 and standard deviation `scale`."""
        count = self.layout.fragments[fragment].element_count
        # One draw for all: a call for each element would take a sixth of the
        # processor time of tests with many small rounds.
        drawn = array.array("i", random.Random(seed).randbytes(4 * count))
        unit = scale * 3 ** 0.5 / 2 ** 31
        return array.array("f", [value * unit for value in drawn]).tolist()


def find_open(plan, fragment, version):
    for opened in plan.open_rounds:
        if opened.fragment == fragment and opened.version == version:
            return opened
    return None


class Contribution:
    """An outer gradient to push. Tests may alter `info` and `header`."""

    def __init__(self, member, values, version, fragment, seq, codec, changes):
        self.member = member
        self.block_offsets = member.layout.fragments[fragment].block_offsets
        payload, self.places = codecs.encode(codec, values, self.block_offsets)
        self.payload = payload
        self.fragment = fragment
        self.seq = seq
        plan = member.plan
        steps = changes.pop("step_count", None)
        slot_plan = None
        opened = find_open(plan, fragment, version)
        if opened is not None:
            for entry in opened.slots:
                if entry.slot == member.slot:
                    slot_plan = entry
        if steps is None:
            steps = slot_plan.step_count if slot_plan else 1
        spec = member.spec
        windows = steps * spec.inner.batch_size
        tokens = windows * max(1, spec.model.sequence_length)
        begin = slot_plan.data_position if slot_plan else 0
        high, low = arithmetic.xxh3_128(payload)
        self.info = {
            "key": {"run_epoch": plan.run_epoch, "fragment": fragment,
                    "slot": member.slot, "seq": seq},
            "anchor_version": version,
            "digest": {"high": high, "low": low},
            "codec": codec.number,
            "step_count": steps,
            "token_count": tokens,
            "data_shard": slot_plan.data_shard if slot_plan else 0,
            "data_begin": begin,
            "data_end": begin + windows,
        }
        self.info["key"].update(changes.pop("key", {}))
        self.info.update(changes)

    def change_payload(self, change):
        """Applies `change` to the bytes and updates their digest."""
        data = bytearray(self.payload)
        change(data)
        self.payload = bytes(data)
        high, low = arithmetic.xxh3_128(self.payload)
        self.info["digest"] = {"high": high, "low": low}

    def header(self, shard, **changes):
        plan = self.member.plan
        header = {
            "run_id": self.member.run_id,
            "island_id": self.member.island_id,
            "island_epoch": self.member.epoch,
            "info": self.info,
            "layout_fingerprint": plan.layout_fingerprint,
            "placement_epoch": plan.placement_epoch,
            "shard": shard,
        }
        header.update(changes)
        return header

    def blocks(self, shard):
        """The blocks [begin, end) that `shard` holds."""
        return self.member.layout.shard_blocks(
            self.fragment, shard, len(self.member.plan.shards))

    def chunk(self, begin, end, **changes):
        """The chunk of blocks [begin, end). `crc_flip` breaks its checksum."""
        flip = changes.pop("crc_flip", 0)
        key = dict(self.info["key"])
        key.update(changes.pop("key", {}))
        chunk = {
            "key": key,
            "codec": self.info["codec"],
            "first_block": begin,
            "block_count": end - begin,
            "payload": self.payload[self.places[begin]:self.places[end]],
        }
        chunk.update(changes)
        chunk["crc32c"] = flip ^ arithmetic.chunk_crc(
            key["run_epoch"], key["fragment"], key["slot"], key["seq"],
            chunk["codec"], chunk["first_block"], chunk["block_count"],
            chunk["payload"])
        return chunk

    def push_to(self, shard, header=None, chunks=None, metadata=None,
                address=None, timeout=60):
        """Pushes to one shard; returns the responses.

        `chunks`: what to send instead of what the server lacks.
        """
        plan = self.member.plan
        client = self.member.cluster.client(
            address or plan.shards[shard].address)
        method = client.service("ParameterService").PushOuterGradient
        outbox = queue.Queue()

        def requests():
            while True:
                item = outbox.get()
                if item is None:
                    return
                yield method.request_class(**item)

        outbox.put({"header": header or self.header(shard)})
        call = method(requests(), timeout=timeout,
                      metadata=self.member.metadata
                      if metadata is None else metadata)
        responses = []
        try:
            for response in call:
                responses.append(response)
                if len(responses) > 1:
                    continue
                todo = chunks
                if todo is None:
                    todo = [] if response.stored else [
                        self.chunk(begin, min(begin + CHUNK_BLOCKS, r.end))
                        for r in response.missing
                        for begin in range(r.begin, r.end, CHUNK_BLOCKS)]
                for chunk in todo:
                    outbox.put({"chunk": chunk})
                outbox.put(None)
        finally:
            outbox.put(None)
        return responses

    def push(self):
        """Pushes to every shard that holds a part; returns self."""
        for shard in range(len(self.member.plan.shards)):
            begin, end = self.blocks(shard)
            if begin < end:
                responses = wait.until("the server has the version",
                                       lambda shard=shard: self._push_once(shard))
                assert responses[-1].stored, responses
        return self

    def _push_once(self, shard):
        """push_to(); None if the server's plan is older than the island's: it
        has not merged the version yet, does not know the member, or that the run
        has begun. Islands then call again."""
        try:
            return self.push_to(shard)
        except grpc.RpcError as error:
            details = error.details() or ""
            if not any(text in details for text in (
                    "is not here yet", "wait for the plan, or Join again",
                    "STARTING and takes no contributions")):
                raise
            return None


# Codes to retry: a server that is starting, or whose plan is old.
_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)


class _Part:
    def __init__(self, begin):
        self.position = begin
        self.data = b""
        self.digest = None


def pull(*args, **kwargs):
    """One whole fragment as f32 bytes, from all shards; checks every chunk.

    Retries until the servers have the version, and resumes after a cut stream,
    for a bounded time.
    """
    parts = {}

    def attempt():
        try:
            return (_pull_on(parts, *args, **kwargs),)
        except grpc.RpcError as error:
            if error.code() not in _AGAIN:
                raise
            return None

    return wait.until("the version can be pulled", attempt)[0]


def _pull_on(parts, cluster, run, shards, version, fragment=0,
             placement_epoch=0):
    layout = arithmetic.LayoutView(run.spec.layout)
    for shard in range(len(shards)):
        begin, end = layout.shard_blocks(fragment, shard, len(shards))
        part = parts.setdefault(shard, _Part(begin))
        if part.position == end:
            continue
        service = cluster.client(shards[shard].address).service(
            "ParameterService")
        responses = iter(service.PullParameters(
            run_id=run.run_id, run_epoch=run.run_epoch, fragment=fragment,
            version=version, layout_fingerprint=run.layout_fingerprint,
            placement_epoch=placement_epoch, shard=shard,
            range={"begin": part.position, "end": end}))
        header = next(responses).header
        assert (header.range.begin, header.range.end) == (part.position, end), (
            header)
        digest = (header.digest.high, header.digest.low)
        assert part.digest in (None, digest), (part.digest, digest)
        part.digest = digest
        for response in responses:
            chunk = response.chunk
            assert chunk.first_block == part.position, (chunk.first_block,
                                                        part.position)
            crc = arithmetic.chunk_crc(
                0, 0, 0, 0, chunk.codec, chunk.first_block, chunk.block_count,
                chunk.payload)
            assert crc == chunk.crc32c, "a pulled chunk's CRC-32C is wrong"
            part.data += chunk.payload
            part.position += chunk.block_count
        assert part.position == end, (part.position, end)
    data = b"".join(part.data for _, part in sorted(parts.items()))
    digests = [part.digest for part in parts.values() if part.digest]
    assert arithmetic.sum_digests(digests) == layout.fragment_digest(
        fragment, data), "the shards' digests are not those of their bytes"
    return data
