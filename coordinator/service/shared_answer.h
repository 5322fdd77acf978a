// Answers queries that readers may send often: the calls that wait for one run
// share a view of it, which is built once on the event loop's thread and encoded
// once in the read pool. Thread-safe.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/authorization.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/event_loop.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace atl::coordinator {

// Keeps something until gRPC no longer has the answer, and deletes itself then.
class HoldingReactor final : public grpc::ServerUnaryReactor {
 public:
  // Before Finish.
  void Hold(std::shared_ptr<const void> held) { held_ = std::move(held); }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<const void> held_;
};

// A unary call that names a run, and whose bytes were read.
template <typename Request>
struct RawCall {
  RawCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes,
          grpc::ByteBuffer* response)
      : caller(rpc::GetCaller(*context)), response(response) {
    if (caller.ok() && !rpc::DecodeMessage(bytes, &request)) {
      caller = absl::InvalidArgumentError(absl::StrCat(
          "the request is no ", Request::descriptor()->name()));
    }
    origin = GetOrigin(context, bytes.Length(), request.run_id());
    if (caller.ok()) reactor = new HoldingReactor;
  }

  // Requires: caller.ok().
  absl::StatusOr<RunMachine*> FindRun(Coordinator& coordinator) const {
    return FindRunFor(coordinator, *caller, request.run_id());
  }
  void Finish(absl::StatusOr<grpc::ByteBuffer> answer) const {
    if (answer.ok()) *response = *std::move(answer);
    reactor->Finish(rpc::ToGrpc(WithDefaultReason(answer.status())));
  }

  Request request;
  absl::StatusOr<rpc::Caller> caller;  // Or why the call is refused.
  CallOrigin origin;
  grpc::ByteBuffer* const response;
  HoldingReactor* reactor = nullptr;
};

// Answers with what `cut` takes for the request out of a view of its run.
// EventLoop::Read has the threads of `build`, of the function that it returns,
// and of `cut`.
template <typename Request, typename View>
grpc::ServerUnaryReactor* AnswerShared(
    EventLoop& loop, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer* bytes, grpc::ByteBuffer* response,
    std::function<std::function<View()>(Coordinator&, RunMachine&)> build,
    std::function<absl::StatusOr<grpc::ByteBuffer>(const View&,
                                                   const Request&)>
        cut) {
  const auto call =
      std::make_shared<const RawCall<Request>>(context, *bytes, response);
  if (!call->caller.ok()) return AnswerError(context, call->caller.status());
  loop.Read<View>(
      absl::StrCat(Request::descriptor()->name(), " ", call->request.run_id()),
      [call](Coordinator& coordinator) {
        return call->FindRun(coordinator).status();
      },
      [call, build = std::move(build)](Coordinator& coordinator) {
        return build(coordinator, **call->FindRun(coordinator));
      },
      [call, cut = std::move(cut)](
          absl::StatusOr<std::shared_ptr<const View>> view) {
        if (!view.ok()) return call->Finish(view.status());
        call->Finish(cut(**view, call->request));
      },
      call->origin);
  return call->reactor;
}

}  // namespace atl::coordinator
