// Answers queries that readers may send often: the calls that wait for the same
// share a view of it, which is built once on the event loop's thread and encoded
// once in the read pool. Thread-safe.

#pragma once

#include <functional>
#include <iterator>
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
#include "coordinator/core/run_queries.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/encoded_items.h"
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

// A unary call whose bytes were read, and the run that it names, if any.
template <typename Request>
struct RawCall {
  static constexpr bool kNamesRun =
      requires(const Request& one) { one.run_id(); };

  RawCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes,
          grpc::ByteBuffer* response)
      : caller(rpc::GetCaller(*context)), response(response) {
    if (caller.ok() && !rpc::DecodeMessage(bytes, &request)) {
      caller = absl::InvalidArgumentError(absl::StrCat(
          "the request is no ", Request::descriptor()->name()));
    }
    if constexpr (kNamesRun) run_id = request.run_id();
    origin = GetOrigin(context, bytes.Length(), run_id);
    if (caller.ok()) reactor = new HoldingReactor;
  }

  // Requires: caller.ok().
  absl::StatusOr<RunMachine*> FindRun(Coordinator& coordinator) const {
    return FindRunFor(coordinator, *caller, run_id);
  }
  void Finish(absl::StatusOr<grpc::ByteBuffer> answer) const {
    if (answer.ok()) *response = *std::move(answer);
    reactor->Finish(rpc::ToGrpc(WithDefaultReason(answer.status())));
  }

  Request request;
  absl::StatusOr<rpc::Caller> caller;  // Or why the call is refused.
  std::string run_id;
  CallOrigin origin;
  grpc::ByteBuffer* const response;
  HoldingReactor* reactor = nullptr;
};

// Answers with what `cut` takes for the request out of a view of its run, which
// `build` gets too; of all runs if it names none. EventLoop::Read has the threads
// of `build`, of the function that it returns, and of `cut`.
template <typename Request, typename Build, typename Cut>
grpc::ServerUnaryReactor* AnswerShared(EventLoop& loop,
                                       grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response, Build build,
                                       Cut cut) {
  using Call = RawCall<Request>;
  const auto call = std::make_shared<const Call>(context, *bytes, response);
  if (!call->caller.ok()) return AnswerError(context, call->caller.status());
  loop.Read<EncodedItems>(
      absl::StrCat(Request::descriptor()->name(), " ", call->run_id),
      [call](Coordinator& coordinator) {
        return Call::kNamesRun ? call->FindRun(coordinator).status()
                               : absl::OkStatus();
      },
      [call, build = std::move(build)](Coordinator& coordinator)
          -> std::function<EncodedItems()> {
        if constexpr (Call::kNamesRun) {
          return build(coordinator, **call->FindRun(coordinator));
        } else {
          return build(coordinator);
        }
      },
      [call, cut = std::move(cut)](
          absl::StatusOr<std::shared_ptr<const EncodedItems>> view) {
        if (!view.ok()) return call->Finish(view.status());
        call->Finish(cut(**view, call->request));
      },
      call->origin);
  return call->reactor;
}

// The answer that has the items of `page`.
template <typename Response>
absl::StatusOr<grpc::ByteBuffer> CutPage(const EncodedItems& items,
                                         absl::StatusOr<ItemsPage> page) {
  if (!page.ok()) return page.status();
  Response rest;
  rest.set_next_page_token(page->next_page_token);
  const grpc::Slice parts[] = {items.Slice(page->begin, page->end),
                               grpc::Slice(rest.SerializeAsString())};
  return grpc::ByteBuffer(parts, std::size(parts));
}

}  // namespace atl::coordinator
