"""Messages of protocols without generated Python.

Server reflection v1alpha, health checking and google.rpc's error details are
public and stable, so their few messages are described by hand. The tests need
only Debian's python3-grpcio and python3-protobuf.
"""

from google.protobuf import any_pb2
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import duration_pb2
from google.protobuf import message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "string": _Field.TYPE_STRING,
}


def _add_message(file, name, fields):
    """Adds a message; a field is (number, name, type), repeated with a "*"."""
    message = file.message_type.add(name=name)
    for number, field_name, kind in fields:
        field = message.field.add(name=field_name, number=number)
        field.label = _Field.LABEL_OPTIONAL
        if kind.startswith("*"):
            field.label = _Field.LABEL_REPEATED
            kind = kind[1:]
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type = _Field.TYPE_MESSAGE
            field.type_name = "." + kind


def _build():
    pool = descriptor_pool.DescriptorPool()
    for module in (any_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)

    reflection = descriptor_pb2.FileDescriptorProto(
        name="hand/reflection.proto",
        package="grpc.reflection.v1alpha",
        syntax="proto3",
    )
    package = "grpc.reflection.v1alpha."
    _add_message(reflection, "ServerReflectionRequest", [
        (1, "host", "string"),
        (3, "file_by_filename", "string"),
        (4, "file_containing_symbol", "string"),
        (7, "list_services", "string"),
    ])
    _add_message(reflection, "FileDescriptorResponse", [
        (1, "file_descriptor_proto", "*bytes"),
    ])
    _add_message(reflection, "ServiceResponse", [(1, "name", "string")])
    _add_message(reflection, "ListServiceResponse", [
        (1, "service", "*" + package + "ServiceResponse"),
    ])
    _add_message(reflection, "ErrorResponse", [
        (1, "error_code", "int32"),
        (2, "error_message", "string"),
    ])
    _add_message(reflection, "ServerReflectionResponse", [
        (1, "valid_host", "string"),
        (4, "file_descriptor_response", package + "FileDescriptorResponse"),
        (6, "list_services_response", package + "ListServiceResponse"),
        (7, "error_response", package + "ErrorResponse"),
    ])
    # The field that is present, even if empty, selects the request.
    request = reflection.message_type[0]
    request.oneof_decl.add(name="message_request")
    for field in request.field[1:]:
        field.oneof_index = 0

    health = descriptor_pb2.FileDescriptorProto(
        name="hand/health.proto", package="grpc.health.v1", syntax="proto3")
    _add_message(health, "HealthCheckRequest", [(1, "service", "string")])
    _add_message(health, "HealthCheckResponse", [(1, "status", "int32")])

    errors = descriptor_pb2.FileDescriptorProto(
        name="hand/error_details.proto",
        package="google.rpc",
        syntax="proto3",
        dependency=[
            "google/protobuf/any.proto", "google/protobuf/duration.proto"
        ],
    )
    _add_message(errors, "Status", [
        (1, "code", "int32"),
        (2, "message", "string"),
        (3, "details", "*google.protobuf.Any"),
    ])
    _add_message(errors, "ErrorInfo", [
        (1, "reason", "string"),
        (2, "domain", "string"),
    ])
    _add_message(errors, "RetryInfo", [
        (1, "retry_delay", "google.protobuf.Duration"),
    ])
    _add_message(errors, "FieldViolation", [
        (1, "field", "string"),
        (2, "description", "string"),
    ])
    _add_message(errors, "BadRequest", [
        (1, "field_violations", "*google.rpc.FieldViolation"),
    ])

    for file in (reflection, health, errors):
        pool.AddSerializedFile(file.SerializeToString())
    return pool, message_factory.MessageFactory(pool)


_POOL, _FACTORY = _build()


def message_class(full_name):
    return _FACTORY.GetPrototype(_POOL.FindMessageTypeByName(full_name))


ReflectionRequest = message_class(
    "grpc.reflection.v1alpha.ServerReflectionRequest")
ReflectionResponse = message_class(
    "grpc.reflection.v1alpha.ServerReflectionResponse")
HealthCheckRequest = message_class("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = message_class("grpc.health.v1.HealthCheckResponse")
RpcStatus = message_class("google.rpc.Status")
ErrorInfo = message_class("google.rpc.ErrorInfo")
RetryInfo = message_class("google.rpc.RetryInfo")
BadRequest = message_class("google.rpc.BadRequest")

# HealthCheckResponse.status.
HEALTH_SERVING = 1


class ErrorDetails:
    """The google.rpc details of a failed call.

    reason: ErrorInfo.reason, or "" without one.
    fields: the field names of BadRequest.
    retry_delay_s: RetryInfo, or None.
    """

    def __init__(self, rpc_error):
        self.code = rpc_error.code()
        self.message = rpc_error.details()
        self.reason = ""
        self.domain = ""
        self.fields = []
        self.retry_delay_s = None
        for key, value in rpc_error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                self._read(RpcStatus.FromString(value))

    def _read(self, status):
        for detail in status.details:
            kind = detail.type_url.rsplit("/", 1)[-1]
            if kind == "google.rpc.ErrorInfo":
                info = ErrorInfo.FromString(detail.value)
                self.reason, self.domain = info.reason, info.domain
            elif kind == "google.rpc.BadRequest":
                bad = BadRequest.FromString(detail.value)
                self.fields += [v.field for v in bad.field_violations]
            elif kind == "google.rpc.RetryInfo":
                delay = RetryInfo.FromString(detail.value).retry_delay
                self.retry_delay_s = delay.seconds + delay.nanos * 1e-9

    def __str__(self):
        return "%s: %s (reason %r, fields %s)" % (
            self.code, self.message, self.reason, self.fields)
