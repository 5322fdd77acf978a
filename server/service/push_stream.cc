#include "server/service/push_stream.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/codec/sha256.h"
#include "base/layout/ids.h"
#include "base/rpc/authorization.h"
#include "base/rpc/call.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

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

}  // namespace

PushStream* PushStream::Start(grpc::CallbackServerContext* call,
                              const ServiceContext& context) {
  PushStream* stream = new PushStream(call, context);
  stream->Begin();
  return stream;
}

absl::StatusOr<UploadStream::Opened> PushStream::Open(
    const grpc::ByteBuffer& message) {
  ASSIGN_OR_RETURN(const v1::PushHeader header,
                   ReadHeader<v1::PushOuterGradientRequest>(message));
  RETURN_IF_ERROR(WithReasonIfNone(ValidateId("island_id", header.island_id()),
                                   "INVALID_FIELDS"));
  ASSIGN_OR_RETURN(const rpc::Caller caller, rpc::GetCaller(call()));
  RETURN_IF_ERROR(
      rpc::CheckActsFor(caller, rpc::Role::kIsland, header.island_id()));
  Opened opened;
  ASSIGN_OR_RETURN(opened.shard, FindShard(header.run_id()));
  ASSIGN_OR_RETURN(opened.contribution,
                   opened.shard->OpenPush(header, SessionSha256(call())));
  return opened;
}

std::unique_ptr<google::protobuf::MessageLite> PushStream::MakeAnswer(
    const std::vector<IndexRange>& missing, bool stored) const {
  return UploadAnswer<v1::PushOuterGradientResponse>(missing, stored);
}

}  // namespace atl::server
