#include "coordinator/service/answer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "base/rpc/call.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {

grpc::ServerUnaryReactor* AnswerError(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpc(WithDefaultReason(status)));
  return reactor;
}

absl::Status CheckCaller(const grpc::CallbackServerContext& context,
                         rpc::Role role, const std::string& id) {
  ASSIGN_OR_RETURN(const rpc::Caller caller, rpc::GetCaller(context));
  return rpc::CheckActsFor(caller, role, id);
}

std::string SessionSecret(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(rpc::kSessionMetadata);
  if (found == metadata.end()) return "";
  const absl::string_view hex(found->second.data(), found->second.size());
  if (hex.size() != 64) return "";
  for (char c : hex) {
    if (!absl::ascii_isxdigit(c)) return "";
  }
  return absl::HexStringToBytes(hex);
}

}  // namespace atl::coordinator
