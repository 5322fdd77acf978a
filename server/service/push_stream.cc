#include "server/service/push_stream.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/codec/sha256.h"
#include "base/layout/ids.h"
#include "base/rpc/authorization.h"
#include "base/rpc/call.h"
#include "base/rpc/chunk_codec.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/service/upload_stream.h"

namespace atl::server {
namespace {

// SHA-256 of the secret in the metadata; empty if it is missing or not hex.
std::string SessionSha256(const grpc::CallbackServerContext& call) {
  const auto& metadata = call.client_metadata();
  const auto it = metadata.find(rpc::kSessionMetadata);
  if (it == metadata.end() || it->second.size() != 64) return "";
  const absl::string_view hex(it->second.data(), it->second.size());
  for (const char c : hex) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return "";
  }
  const codec::Sha256Digest digest =
      codec::ComputeSha256(absl::HexStringToBytes(hex));
  return std::string(digest.begin(), digest.end());
}

// The header of a stream's first message. INVALID_ARGUMENT: it has none.
template <typename Request>
auto ReadHeader(const grpc::ByteBuffer& message)
    -> absl::StatusOr<std::decay_t<decltype(Request().header())>> {
  absl::StatusOr<rpc::BulkMessage<Request>> decoded =
      rpc::DecodeBulk<Request>(message);
  if (!decoded.ok()) {
    return WithReasonIfNone(decoded.status(), "UNREADABLE_MESSAGE");
  }
  if (!decoded->message.has_header()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "WRONG_ORDER",
                  "the first message must be the header");
  }
  return decoded->message.header();
}

// The answer that names missing blocks, or says `stored`.
template <typename Response>
std::unique_ptr<google::protobuf::MessageLite> UploadAnswer(
    const std::vector<IndexRange>& missing, bool stored) {
  // Bounds the message; the rest is named next time.
  constexpr size_t kRangesMax = 65536;
  auto answer = std::make_unique<Response>();
  for (size_t i = 0; i < missing.size() && i < kRangesMax; ++i) {
    auto* range = answer->add_missing();
    range->set_begin(missing[i].begin);
    range->set_end(missing[i].end);
  }
  answer->set_stored(stored);
  return answer;
}

class PushStream final : public UploadStream {
 public:
  using UploadStream::UploadStream;

 private:
  absl::StatusOr<Opened> Open(const grpc::ByteBuffer& message) override {
    ASSIGN_OR_RETURN(const v1::PushHeader header,
                     ReadHeader<v1::PushOuterGradientRequest>(message));
    RETURN_IF_ERROR(WithReasonIfNone(
        ValidateId("island_id", header.island_id()), "INVALID_FIELDS"));
    ASSIGN_OR_RETURN(const rpc::Caller caller, rpc::GetCaller(call()));
    RETURN_IF_ERROR(
        rpc::CheckActsFor(caller, Role::kIsland, header.island_id()));
    Opened opened;
    ASSIGN_OR_RETURN(opened.shard, FindShard(header.run_id()));
    RETURN_IF_ERROR(Admit(caller, header.run_id(), *opened.shard));
    ASSIGN_OR_RETURN(opened.contribution,
                     opened.shard->OpenPush(header, SessionSha256(call())));
    return opened;
  }
  std::unique_ptr<google::protobuf::MessageLite> MakeAnswer(
      const std::vector<IndexRange>& missing, bool stored) const override {
    return UploadAnswer<v1::PushOuterGradientResponse>(missing, stored);
  }
};

class ImportStream final : public UploadStream {
 public:
  using UploadStream::UploadStream;

 private:
  absl::StatusOr<Opened> Open(const grpc::ByteBuffer& message) override {
    ASSIGN_OR_RETURN(const v1::ImportHeader header,
                     ReadHeader<v1::ImportParametersRequest>(message));
    Opened opened;
    ASSIGN_OR_RETURN(opened.shard, FindShard(header.run_id()));
    ASSIGN_OR_RETURN(opened.contribution, opened.shard->OpenImport(header));
    return opened;
  }
  std::unique_ptr<google::protobuf::MessageLite> MakeAnswer(
      const std::vector<IndexRange>& missing, bool stored) const override {
    return UploadAnswer<v1::ImportParametersResponse>(missing, stored);
  }
};

template <typename Stream>
BlockReactor* Start(grpc::CallbackServerContext* call,
                    const ServiceContext& context) {
  auto* const stream = new Stream(call, context);
  stream->Begin();
  return stream;
}

}  // namespace

BlockReactor* StartPush(grpc::CallbackServerContext* call,
                        const ServiceContext& context) {
  return Start<PushStream>(call, context);
}

BlockReactor* StartImport(grpc::CallbackServerContext* call,
                          const ServiceContext& context) {
  return Start<ImportStream>(call, context);
}

}  // namespace atl::server
