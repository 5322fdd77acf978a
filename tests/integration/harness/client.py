"""A gRPC client that learns services through server reflection.

No generated code: descriptors come from the called server, so a client needs
only its address.
"""

import threading

import grpc
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory

from harness import protocols
from harness import wait

CALL_TIMEOUT_S = wait.PATIENCE_S

_REFLECTION = ("/grpc.reflection.v1alpha.ServerReflection/"
               "ServerReflectionInfo")


class Schema:
    """Descriptors of one server, from its reflection."""

    def __init__(self, channel):
        self._ask = channel.stream_stream(
            _REFLECTION,
            request_serializer=protocols.ReflectionRequest.SerializeToString,
            response_deserializer=protocols.ReflectionResponse.FromString,
        )
        self._pool = descriptor_pool.DescriptorPool()
        self._factory = message_factory.MessageFactory(self._pool)
        self._added = set()

    def _answer(self, **question):
        request = protocols.ReflectionRequest(**question)
        responses = self._ask(iter([request]), timeout=CALL_TIMEOUT_S)
        response = next(iter(responses))
        if response.HasField("error_response"):
            raise KeyError("reflection of %s: %s" % (
                question, response.error_response.error_message))
        return response

    def service_names(self):
        answer = self._answer(list_services="")
        return sorted(s.name for s in answer.list_services_response.service)

    def _add(self, answer):
        files = {}
        for data in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            files[file.name] = file
        for name in list(files):
            self._add_file(name, files)

    def _add_file(self, name, files):
        if name in self._added:
            return
        if name not in files:
            self._add(self._answer(file_by_filename=name))
            return
        file = files[name]
        for dependency in file.dependency:
            self._add_file(dependency, files)
        if name not in self._added:
            self._added.add(name)
            self._pool.AddSerializedFile(file.SerializeToString())

    def service(self, full_name):
        self._add(self._answer(file_containing_symbol=full_name))
        return self._pool.FindServiceByName(full_name)

    def message_class(self, descriptor):
        return self._factory.GetPrototype(descriptor)

    def message_named(self, full_name):
        """A class by full name; its file must already be known."""
        return self.message_class(self._pool.FindMessageTypeByName(full_name))

    def enum(self, full_name):
        """{name: number} of an enum; its file must already be known."""
        found = self._pool.FindEnumTypeByName(full_name)
        return {value.name: value.number for value in found.values}


class Method:
    """One RPC. Call it with a message, or with the fields of one."""

    def __init__(self, channel, schema, descriptor):
        self.request_class = schema.message_class(descriptor.input_type)
        self.response_class = schema.message_class(descriptor.output_type)
        service = descriptor.containing_service.full_name
        proto = descriptor_pb2.MethodDescriptorProto()
        descriptor.CopyToProto(proto)
        kind = "%s_%s" % (
            "stream" if proto.client_streaming else "unary",
            "stream" if proto.server_streaming else "unary",
        )
        self.kind = kind
        self._call = getattr(channel, kind)(
            "/%s/%s" % (service, descriptor.name),
            # bytes pass unchanged: a test may send an invalid message.
            request_serializer=lambda m: m if isinstance(
                m, bytes) else m.SerializeToString(),
            response_deserializer=self.response_class.FromString,
        )

    def __call__(self, request=None, *, timeout=CALL_TIMEOUT_S, metadata=None,
                 **fields):
        if request is None:
            request = self.request_class(**fields)
        if self.kind.startswith("stream"):
            request = iter(request) if isinstance(request,
                                                  (list, tuple)) else request
        return self._call(request, timeout=timeout, metadata=metadata,
                          wait_for_ready=False)


class Service:
    """Methods of one service as attributes: `service.GetRun(run_id="a")`."""

    def __init__(self, channel, schema, full_name):
        descriptor = schema.service(full_name)
        self.method_names = [m.name for m in descriptor.methods]
        for method in descriptor.methods:
            setattr(self, method.name, Method(channel, schema, method))


class Client:
    def __init__(self, address, credentials=None):
        """`credentials`: for TLS; None: plaintext."""
        self.address = address
        options = [
            ("grpc.max_receive_message_length", 16 << 20),
            ("grpc.initial_reconnect_backoff_ms", 50),
            # Time for a handshake on a loaded machine.
            ("grpc.min_reconnect_backoff_ms", 10000),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, credentials,
                                                options=options)
        self.schema = Schema(self._channel)
        self._services = {}
        self._lock = threading.Lock()

    def service(self, name):
        return self.full_service("atoll.v1." + name)

    def full_service(self, name):
        with self._lock:
            if name not in self._services:
                self._services[name] = Service(self._channel, self.schema,
                                               name)
            return self._services[name]

    def raw_call(self, path, message=b"", timeout=CALL_TIMEOUT_S):
        """Makes a unary call to `path` with the bytes of a message."""
        return self._channel.unary_unary(path)(message, timeout=timeout)

    def raw_stream(self, path, message=b"", timeout=CALL_TIMEOUT_S):
        """The same of a call with many responses; returns their iterator."""
        return self._channel.unary_stream(path)(message, timeout=timeout)

    def message(self, name):
        return self.schema.message_named("atoll.v1." + name)

    def enum(self, name):
        return self.schema.enum("atoll.v1." + name)

    def health(self, service="", timeout=CALL_TIMEOUT_S):
        check = self._channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=protocols.HealthCheckRequest.SerializeToString,
            response_deserializer=protocols.HealthCheckResponse.FromString,
        )
        return check(protocols.HealthCheckRequest(service=service),
                     timeout=timeout).status

    def wait_ready(self, timeout):
        grpc.channel_ready_future(self._channel).result(timeout=timeout)

    def close(self):
        self._channel.close()


def error_of(call, *args, **kwargs):
    """Calls, reads all responses, and returns the ErrorDetails of the failure.

    Fails if the call succeeds.
    """
    try:
        result = call(*args, **kwargs)
        if hasattr(result, "__iter__"):
            for _ in result:
                pass
    except grpc.RpcError as error:
        return protocols.ErrorDetails(error)
    raise AssertionError("the call succeeded: %s" % (result,))


def error_or_none(call, *args, **kwargs):
    """Calls, and returns the ErrorDetails of a failure; None: it succeeds."""
    try:
        call(*args, **kwargs)
    except grpc.RpcError as error:
        return protocols.ErrorDetails(error)
    return None
