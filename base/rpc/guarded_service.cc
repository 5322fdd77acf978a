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

class GuardedHandler : public MethodHandler {
 public:
  GuardedHandler(const RpcServiceMethod& method,
                 const GuardedService::Check& check,
                 const GuardedService::Prepare& prepare)
      : method_(method), check_(check), prepare_(prepare) {}

  // Keeps the message as it came, for RunHandler.
  void* Deserialize(grpc_call*, grpc_byte_buffer* message, grpc::Status*,
                    void**) override {
    return message;
  }

  void RunHandler(const HandlerParameter& call) override {
    if (!prepare_(*call.server_context, [this, call] { Run(call); })) Run(call);
  }

 private:
  void Run(const HandlerParameter& call) {
    auto* const message = static_cast<grpc_byte_buffer*>(call.request);
    const absl::Status status =
        check_(*call.server_context, method_.name());
    if (!status.ok()) {
      if (message != nullptr) grpc_byte_buffer_destroy(message);
      Refuse(call, status);
      return;
    }
    void* request = nullptr;
    void* data = nullptr;
    grpc::Status parsed = call.status;
    if (HasOneMessage()) {
      request = method_.handler()->Deserialize(call.call->call(), message,
                                               &parsed, &data);
    }
    method_.handler()->RunHandler(
        HandlerParameter(call.call, call.server_context, request, parsed, data,
                         call.call_requester));
  }

  // gRPC reads the message of such a method before it runs the handler.
  bool HasOneMessage() const {
    return method_.method_type() == RpcMethod::NORMAL_RPC ||
           method_.method_type() == RpcMethod::SERVER_STREAMING;
  }

  static void Refuse(const HandlerParameter& call, const absl::Status& status) {
    // The peer receives a status alone, which ends a call of any kind.
    grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>
        handler([&status](grpc::CallbackServerContext*) {
          return new Refusal(status);
        });
    handler.RunHandler(HandlerParameter(call.call, call.server_context,
                                        nullptr, grpc::Status::OK, nullptr,
                                        call.call_requester));
  }

  const RpcServiceMethod& method_;
  const GuardedService::Check& check_;
  const GuardedService::Prepare& prepare_;
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
    grpc::Service& service, Check check, Prepare prepare) {
  using ApiType = RpcServiceMethod::ApiType;
  std::unique_ptr<GuardedService> guarded(
      new GuardedService(std::move(check), std::move(prepare)));
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
        method->name(), method->method_type(), nullptr));
    guarded->MarkMethodCallback(
        index++,
        new GuardedHandler(*method, guarded->check_, guarded->prepare_));
  }
  return guarded;
}

}  // namespace atl::rpc
