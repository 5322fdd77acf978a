#include "base/rpc/call_guard.h"

#include <openssl/sha.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/time/clock.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/server_context.h"

namespace atl::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

std::string KeyOf(absl::string_view certificate_pem) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(certificate_pem.data()),
         certificate_pem.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// Empty without TLS.
std::string KeyOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return "";
  const auto pems = auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pems.size() != 1) return "";
  return KeyOf(absl::string_view(pems[0].data(), pems[0].size()));
}

}  // namespace

// gRPC destroys it with the call.
class CallGuard::Call : public grpc::experimental::Interceptor {
 public:
  Call(CallGuard& guard, const grpc::ServerContextBase& context)
      : guard_(guard), context_(context) {}
  ~Call() override {
    if (!key_.empty()) guard_.quota_.End(key_, SystemClock().Now());
  }

  void Intercept(
      grpc::experimental::InterceptorBatchMethods* methods) override {
    // Before this the context of a synchronous method has no call.
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      Begin();
    }
    methods->Proceed();
  }

 private:
  void Begin() {
    if (!key_.empty()) return;
    key_ = KeyOf(context_);
    const std::string peer = context_.peer();
    // In plaintext a peer cannot show who it is: each connection counts by
    // itself.
    guard_.listener_->Prove(peer, key_.empty() ? peer : key_);
    if (!key_.empty()) guard_.quota_.Begin(key_, SystemClock().Now());
  }

  CallGuard& guard_;
  const grpc::ServerContextBase& context_;
  std::string key_;  // The quota's, once the call counts there.
};

class CallGuard::Factory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(CallGuard& guard) : guard_(guard) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* info) override {
    return new Call(guard_, *info->server_context());
  }

 private:
  CallGuard& guard_;
};

absl::Status CallGuard::Admit(absl::string_view certificate_pem,
                              absl::string_view name) {
  const std::string key = KeyOf(certificate_pem);
  const CallQuota::Answer answer = quota_.Start(key, SystemClock().Now());
  if (answer == CallQuota::Answer::kAdmitted) return absl::OkStatus();
  if (answer == CallQuota::Answer::kAbusive) {
    LOG(WARNING) << name << " opens calls faster than they end: its "
                 << "connections are shut";
    listener_->Shut(key);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(name, " has ", CallQuota::kOpenMax,
                   " calls open at this port; end some"));
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CallGuard::MakeInterceptors() {
  return std::make_unique<Factory>(*this);
}

}  // namespace atl::rpc
