// Answers queries that readers may send often: the calls that wait for the same
// share a view of it, which is built once on the event loop's thread and encoded
// once in the read pool. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/rpc/authorization.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/encoded_items.h"
#include "coordinator/service/event_loop.h"
#include "coordinator/service/shared_slice.h"
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

// Answers with what `cut` takes for the request out of a view. If `kIsOfRun`, it
// is of the request's run, which `build` gets too; otherwise `build` gets the
// time. EventLoop::Read has the threads of `build`, of the function that it
// returns, and of `cut`.
template <typename Request, bool kIsOfRun = RawCall<Request>::kNamesRun,
          typename Build, typename Cut>
grpc::ServerUnaryReactor* AnswerShared(EventLoop& loop,
                                       grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* bytes,
                                       grpc::ByteBuffer* response, Build build,
                                       Cut cut) {
  using Call = RawCall<Request>;
  const auto call = std::make_shared<const Call>(context, *bytes, response);
  if (!call->caller.ok()) return AnswerError(context, call->caller.status());
  loop.Read<EncodedItems>(
      absl::StrCat(Request::descriptor()->name(), " ",
                   kIsOfRun ? call->run_id : ""),
      [call](Coordinator& coordinator) {
        return kIsOfRun ? call->FindRun(coordinator).status()
                        : absl::OkStatus();
      },
      [call, build = std::move(build)](
          Coordinator& coordinator,
          absl::Time now) -> std::function<EncodedItems()> {
        if constexpr (kIsOfRun) {
          return build(coordinator, **call->FindRun(coordinator));
        } else {
          return build(coordinator, now);
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

// The answer that has the items of the page that `plan` makes of the request, or
// the first of them that fit into an answer.
template <typename Response, typename Request, typename Plan>
absl::StatusOr<grpc::ByteBuffer> CutPage(const EncodedItems& items,
                                         Request request, const Plan& plan) {
  ASSIGN_OR_RETURN(ItemsPage page, plan(request));
  if (page.begin < page.end) {
    const size_t fitting = items.CountFitting(page.begin);
    if (fitting < page.end - page.begin) {
      request.set_page_size(static_cast<int32_t>(fitting));
      ASSIGN_OR_RETURN(page, plan(request));
    }
  }
  std::vector<grpc::Slice> parts;
  items.Add(page.begin, page.end, parts);
  Response rest;
  rest.set_next_page_token(page.next_page_token);
  parts.push_back(grpc::Slice(rest.SerializeAsString()));
  return grpc::ByteBuffer(parts.data(), parts.size());
}

// A response with a run, whose spec is sent from the run's own copy, by all calls
// at once.
template <typename Response>
struct SpecAnswer {
  std::shared_ptr<const std::string> spec_part;  // EncodeSpecPart; null: none.
  Response rest;

  // The bytes that no other answer shares.
  size_t ByteSizeLong() const { return rest.ByteSizeLong(); }
  grpc::ByteBuffer Encode() const {
    std::vector<grpc::Slice> parts;
    if (spec_part != nullptr) {
      // The part's first byte is the tag of the field in a GetRunResponse.
      static_assert(Response::kRunFieldNumber < 16, "the tag has one byte");
      constexpr char kTag = Response::kRunFieldNumber << 3 | 2;
      parts.push_back(grpc::Slice(std::string(1, kTag)));
      parts.push_back(ShareSlice(spec_part, 1));
    }
    parts.push_back(grpc::Slice(rest.SerializeAsString()));
    return grpc::ByteBuffer(parts.data(), parts.size());
  }
};

}  // namespace atl::coordinator
