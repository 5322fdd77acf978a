#include "base/rpc/guarded_service.h"

#include "absl/strings/str_cat.h"
#include "base/rpc/status.h"
#include "grpc/byte_buffer.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace atl::rpc {
namespace {

using grpc::internal::MethodHandler;
using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;
using Methods = std::vector<std::unique_ptr<RpcServiceMethod>>;

// A service shows its methods to gRPC alone. An explicit instantiation may name
// a private member ([temp.spec.general]).
const Methods& MethodsOf(const grpc::Service& service);

template <Methods grpc::Service::* kMethods>
struct Opened {
  friend const Methods& MethodsOf(const grpc::Service& service) {
    return service.*kMethods;
  }
};
template struct Opened<&grpc::Service::methods_>;

// Ends a call of any kind: it sends no message, and reads none.
class Refusal
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

// Reads the one request of a call, then runs the method's handler. A call that
// ends before has no request; the handler ends it, too. Deletes itself.
class Request : public grpc_completion_queue_functor {
 public:
  static void Read(const RpcServiceMethod& method,
                   const GuardedService::Wait& wait,
                   const MethodHandler::HandlerParameter& call) {
    wait(*call.server_context, true);
    auto* const request = new Request(method, wait, call);
    grpc_op read = {};
    read.op = GRPC_OP_RECV_MESSAGE;
    read.data.recv_message.recv_message = &request->message_;
    if (grpc_call_start_batch(call.call->call(), &read, 1, request, nullptr) !=
        GRPC_CALL_OK) {
      Run(request, 0);
    }
  }

 private:
  Request(const RpcServiceMethod& method, const GuardedService::Wait& wait,
          const MethodHandler::HandlerParameter& call)
      : method_(method), wait_(wait), call_(call) {
    functor_run = &Request::Run;
    inlineable = true;  // As gRPC's own functor, which runs handlers, too.
  }

  static void Run(grpc_completion_queue_functor* functor, int) {
    const std::unique_ptr<Request> self(static_cast<Request*>(functor));
    const MethodHandler::HandlerParameter& call = self->call_;
    self->wait_(*call.server_context, false);
    grpc::Status parsed;
    const bool has_message = self->message_ != nullptr;
    void* data = nullptr;
    void* const request = self->method_.handler()->Deserialize(
        call.call->call(), self->message_, &parsed, &data);
    if (!has_message && parsed.ok()) {
      parsed = {grpc::StatusCode::UNIMPLEMENTED, "the call has no message"};
    }
    self->method_.handler()->RunHandler(
        MethodHandler::HandlerParameter(call.call, call.server_context, request,
                                        parsed, data, call.call_requester));
  }

  const RpcServiceMethod& method_;
  const GuardedService::Wait& wait_;
  const MethodHandler::HandlerParameter call_;
  grpc_byte_buffer* message_ = nullptr;  // The handler takes it over.
};

class GuardedHandler : public MethodHandler {
 public:
  GuardedHandler(const RpcServiceMethod& method,
                 const GuardedService::Check& check,
                 const GuardedService::Wait& wait)
      : method_(method), check_(check), wait_(wait) {}

  void RunHandler(const HandlerParameter& call) override {
    Run(call, [this, &call] {
      return [this, call] { Run(call, [] { return nullptr; }); };
    });
  }

 private:
  void Run(const HandlerParameter& call,
           absl::FunctionRef<std::function<void()>()> make_later) {
    const std::optional<absl::Status> status =
        check_(*call.server_context, method_.name(), make_later);
    if (!status.has_value()) return;
    if (!status->ok()) {
      Refuse(call, *status);
    } else if (HasOneRequest()) {
      Request::Read(method_, wait_, call);
    } else {
      method_.handler()->RunHandler(call);
    }
  }

  bool HasOneRequest() const {
    return method_.method_type() == RpcMethod::NORMAL_RPC ||
           method_.method_type() == RpcMethod::SERVER_STREAMING;
  }

  static void Refuse(const HandlerParameter& call, const absl::Status& status) {
    // The peer receives a status alone, which ends a call of any kind.
    grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>
        handler([&status](grpc::CallbackServerContext*) {
          return new Refusal(status);
        });
    handler.RunHandler(call);
  }

  const RpcServiceMethod& method_;
  const GuardedService::Check& check_;
  const GuardedService::Wait& wait_;
};

}  // namespace

std::vector<std::string> MethodNames(const grpc::Service& service) {
  std::vector<std::string> names;
  for (const std::unique_ptr<RpcServiceMethod>& method : MethodsOf(service)) {
    if (method != nullptr) names.emplace_back(method->name());
  }
  return names;
}

absl::StatusOr<std::unique_ptr<GuardedService>> GuardedService::Make(
    grpc::Service& service, Check check, Wait wait) {
  using ApiType = RpcServiceMethod::ApiType;
  std::unique_ptr<GuardedService> guarded(
      new GuardedService(std::move(check), std::move(wait)));
  int index = 0;
  for (const std::unique_ptr<RpcServiceMethod>& method : MethodsOf(service)) {
    if (method == nullptr || method->handler() == nullptr ||
        (method->api_type() != ApiType::CALL_BACK &&
         method->api_type() != ApiType::RAW_CALL_BACK)) {
      return absl::InternalError(absl::StrCat(
          method == nullptr ? "a generic method" : method->name(),
          " has no callback handler, so its calls cannot be checked"));
    }
    guarded->AddMethod(new RpcServiceMethod(
        method->name(), RpcMethod::BIDI_STREAMING, nullptr));
    guarded->MarkMethodCallback(
        index++, new GuardedHandler(*method, guarded->check_, guarded->wait_));
  }
  return guarded;
}

}  // namespace atl::rpc
