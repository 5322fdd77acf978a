"""A relay between programs that duplicates, delays, reorders and cuts.

It takes the place of a server and forwards every call to the real one, byte for
byte. About half of the messages suffer what networks, retries and proxies do to
some:

  unary calls   are sent twice, delayed, and sent again after newer calls
                (`replayed`);
  watches       repeat an older message after a newer one;
  pulls         are requested twice, and cut in the middle;
  pushes        go over two streams at once, with chunks reordered and repeated;
                some end in the middle; whole pushes are repeated later.

A Join is never repeated late: by definition it starts a new life of the island
and ends the old one. Twice at once is allowed.
"""

import collections
import queue
import random
import threading
from concurrent import futures

import grpc

from harness import wait

_WATCHES = ("WatchPlan", "WatchServerPlan")
_NEVER_LATE = ("Join",)
_OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.max_send_message_length", 16 << 20),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]
_DELAY_S_MAX = 0.03
_STREAM_END = object()
_CUT = object()


def _time_left(context):
    """Seconds until the caller's deadline; None instead of centuries."""
    seconds = context.time_remaining()
    return seconds if seconds and seconds < 1e6 else None


class Relay:
    """`push_classes`: a function that returns the request and response classes
    of PushOuterGradient; called at the first push.

    `counts`: the number of injected faults by name.
    """

    def __init__(self, seed, push_classes=None):
        self.counts = collections.Counter()
        self._push_classes = push_classes
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._late = []         # Requests that may be repeated.
        self._late_pushes = []  # [(metadata, messages)]
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(64), options=_OPTIONS,
            handlers=[_Handler(self)])
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    @property
    def address(self):
        return "127.0.0.1:%d" % self.port

    def forward_to(self, address):
        """Sets the target; calls wait until then."""
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._ready.set()

    def close(self):
        self._ended.set()
        self._server.stop(0)
        if self._ready.is_set():
            self._channel.close()

    # --- Chance -----------------------------------------------------------------

    def _chance(self, name, probability=0.5):
        with self._lock:
            happens = self._random.random() < probability
            self.counts[name] += happens
        return happens

    def _delay(self):
        if self._chance("delayed"):
            with self._lock:
                seconds = self._random.uniform(0, _DELAY_S_MAX)
            self._ended.wait(seconds)

    def _pick(self, items, probability):
        with self._lock:
            if not items or self._random.random() >= probability:
                return None
            return items.pop(self._random.randrange(len(items)))

    # --- Calls ------------------------------------------------------------------

    def _begin(self, context):
        if not self._ready.wait(wait.PATIENCE_S):
            context.abort(grpc.StatusCode.UNAVAILABLE, "nobody is there yet")
        return tuple(m for m in context.invocation_metadata()
                     if m.key.startswith("atoll-"))

    @staticmethod
    def _fail(context, error):
        """Ends the call with the real server's status."""
        details = [m for m in error.trailing_metadata() or ()
                   if m.key == "grpc-status-details-bin"]
        context.set_trailing_metadata(details)
        context.abort(error.code(), error.details())

    def unary(self, path, request, context):
        metadata = self._begin(context)
        timeout = _time_left(context)
        method = path.rsplit("/", 1)[1]
        call = self._channel.unary_unary(path)

        def send(a_path, a_request, a_metadata):
            try:
                self._channel.unary_unary(a_path)(
                    a_request, metadata=a_metadata, timeout=5)
            except grpc.RpcError:
                pass  # The result of a copy does not matter.

        late = self._pick(self._late, 0.5)
        if late is not None:
            self.counts["replayed " + late[0].rsplit("/", 1)[1]] += 1
            send(*late)
        self._delay()
        if self._chance("twice"):
            send(path, request, metadata)
        try:
            response = call(request, metadata=metadata, timeout=timeout)
        except grpc.RpcError as error:
            return self._fail(context, error)
        if method not in _NEVER_LATE:
            with self._lock:
                self._late.append((path, request, metadata))
        self._delay()
        return response

    def server_stream(self, path, request, context):
        metadata = self._begin(context)
        method = path.rsplit("/", 1)[1]
        if method not in _WATCHES and self._chance("pull twice"):
            self._channel.unary_stream(path)(request,
                                             metadata=metadata).cancel()
        call = self._channel.unary_stream(path)(
            request, metadata=metadata, timeout=_time_left(context))
        context.add_callback(call.cancel)
        older = []
        try:
            for index, response in enumerate(call):
                self._delay()
                yield response
                if method in _WATCHES:
                    late = self._pick(older, 0.5)
                    if late is not None:
                        self.counts["old " + method] += 1
                        yield late
                    older.append(response)
                elif index and self._chance("pull cut", 0.1):
                    call.cancel()
                    context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        except grpc.RpcError as error:
            self._fail(context, error)

    # --- Pushes -----------------------------------------------------------------

    def push(self, path, requests, context):
        metadata = self._begin(context)
        again = self._pick(self._late_pushes, 0.5)
        if again is not None:
            self._push_again(path, *again)
        header = next(requests)
        answers = queue.Queue()
        streams = [_Upstream(self._channel, path, metadata, header, answers)
                   for _ in range(2)]
        for stream in streams:
            context.add_callback(stream.cancel)
        sender = threading.Thread(
            target=self._send_chunks,
            args=(metadata, header, requests, streams, answers), daemon=True)
        sender.start()
        yield from self._answers(answers, streams, context)
        for stream in streams:
            stream.cancel()

    def _send_chunks(self, metadata, header, requests, streams, answers):
        """Sends chunks in shuffled groups of three, to one stream or both."""
        sent = [header]
        group = []

        def flush():
            with self._lock:
                before = list(group)
                self._random.shuffle(group)
                self.counts["chunks out of order"] += before != group
            for chunk in group:
                if self._chance("chunk over both streams"):
                    targets = streams
                else:
                    targets = [streams[self._chance("second stream")]]
                for stream in targets:
                    stream.send(chunk)
                    if self._chance("chunk twice"):
                        stream.send(chunk)
            group.clear()

        try:
            for chunk in requests:
                sent.append(chunk)
                group.append(chunk)
                if len(group) == 3:
                    flush()
                    # Ends both streams and the pusher's.
                    if self._chance("push cut", 0.25):
                        answers.put(_CUT)
                        return
        except Exception:  # The pusher has ended.
            pass
        flush()
        with self._lock:
            if len(sent) > 1:
                self._late_pushes.append((metadata, sent))
        for stream in streams:
            stream.half_close()

    def _answers(self, answers, streams, context):
        """The pusher's answers: one "missing", one "stored", or an error."""
        response_class = self._push_classes()[1]
        told_missing = False
        left = len(streams)
        while left:
            answer = answers.get()
            if answer is _CUT:
                context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            if isinstance(answer, grpc.RpcError):
                left -= 1
                # A stream may lack chunks that the other carries.
                if left == 0 or answer.code() != grpc.StatusCode.UNAVAILABLE:
                    self._fail(context, answer)
                continue
            if answer is _STREAM_END:
                left -= 1
                continue
            if response_class.FromString(answer).stored:
                yield answer
                return
            if not told_missing:
                told_missing = True
                yield answer

    def _push_again(self, path, metadata, messages):
        """Repeats an earlier push; ignores its result."""
        self.counts["push again"] += 1
        try:
            for _ in self._channel.stream_stream(path)(
                    iter(messages), metadata=metadata, timeout=5):
                pass
        except grpc.RpcError as error:
            self.counts["push again: " + error.code().name] += 1


class _Upstream:
    def __init__(self, channel, path, metadata, header, answers):
        self._outbox = queue.Queue()
        self._outbox.put(header)
        self._call = channel.stream_stream(path)(
            iter(self._outbox.get, _STREAM_END), metadata=metadata)
        self._answers = answers
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for response in self._call:
                self._answers.put(response)
            self._answers.put(_STREAM_END)
        except grpc.RpcError as error:
            self._answers.put(error)

    def send(self, message):
        self._outbox.put(message)

    def half_close(self):
        self._outbox.put(_STREAM_END)

    def cancel(self):
        self._outbox.put(_STREAM_END)
        self._call.cancel()


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, relay):
        self._relay = relay

    def service(self, details):
        path = details.method
        name = path.rsplit("/", 1)[1]
        relay = self._relay
        if name == "PushOuterGradient":
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: relay.push(path, requests, context))
        if name in _WATCHES or name == "PullParameters":
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: relay.server_stream(path, request,
                                                             context))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: relay.unary(path, request, context))
