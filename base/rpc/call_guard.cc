#include "base/rpc/call_guard.h"

#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/rpc/authorization.h"
#include "base/rpc/guarded_service.h"
#include "base/rpc/retry.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/generic/async_generic_service.h"

namespace atl::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

constexpr absl::Duration kLookInterval = absl::Seconds(1);

// By its name alone: whether the certificate counts was checked before.
bool IsReader(const grpc::ServerContextBase& call) {
  const std::shared_ptr<const grpc::AuthContext> peer = call.auth_context();
  if (peer == nullptr) return false;
  const std::vector<grpc::string_ref> names =
      peer->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.size() != 1) return false;
  const absl::StatusOr<Caller> caller =
      ParseCommonName({names[0].data(), names[0].size()});
  return caller.ok() && caller->role == Role::kReader;
}

}  // namespace

// gRPC asks for a context once it has read a call's headers.
class CallGuard::Contexts : public grpc::ContextAllocator {
 public:
  explicit Contexts(CallGuard& guard) : guard_(guard) {}

  grpc::CallbackServerContext* NewCallbackServerContext() override {
    return Wait<grpc::CallbackServerContext>();
  }
  // For a method that no service has.
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext()
      override {
    return Wait<grpc::GenericCallbackServerContext>();
  }
  // gRPC releases contexts of both kinds here.
  void Release(grpc::CallbackServerContext* context) override {
    if (!guard_.End(*context)) return;
    const std::unique_ptr<grpc::CallbackServerContext> owned(context);
  }

 private:
  template <typename Context>
  Context* Wait() {
    auto context = std::make_unique<Context>();
    guard_.Wait(*context);
    return context.release();
  }

  CallGuard& guard_;
};

// gRPC destroys it with the call.
class CallGuard::Call : public grpc::experimental::Interceptor {
 public:
  Call(CallGuard& guard, ServerRpcInfo& info)
      : guard_(guard), call_(*info.server_context()), method_(info.method()) {}
  ~Call() override {
    if (!key_.empty()) guard_.quota_.End(key_, outcome_, SystemClock().Now());
  }

  void Intercept(
      grpc::experimental::InterceptorBatchMethods* methods) override {
    // Before this the context of a synchronous method has no call.
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      Begin();
    }
    // A synchronous method's context cannot be asked here.
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_CLOSE) &&
        dynamic_cast<const grpc::CallbackServerContext*>(&call_) != nullptr &&
        call_.IsCancelled()) {
      outcome_ = CallQuota::Outcome::kGivenUp;
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      if (IsUnparsed(methods->GetSendStatus())) {
        methods->ModifySendStatus(
            ToGrpc(WithDefaultReason(absl::InvalidArgumentError(absl::StrCat(
                "the request of ", method_, " cannot be parsed")))));
      }
      guard_.NoteStatus(call_, method_, methods->GetSendStatus());
    }
    methods->Proceed();
  }

 private:
  void Begin() {
    State state{.waits = false, .peer = call_.auth_context()};
    if (state.peer != nullptr) state.key = CallerCheck::KeyOf(*state.peer);
    const std::string& key = state.key;
    const std::string peer = call_.peer();
    // In plaintext a peer cannot show who it is: each connection counts by
    // itself.
    guard_.listener_->Prove(peer, key.empty() ? peer : key);
    state.is_excess = !key.empty() && !IsAdmitted(key);
    // gRPC itself answers such calls. One of a certificate that was not examined
    // yet hears UNIMPLEMENTED.
    const bool is_checked_here =
        guard_.check_ != nullptr && !guard_.guarded_.contains(method_) &&
        (state.peer == nullptr || guard_.check_->Knows(*state.peer, key));
    guard_.Start(call_, std::move(state));
    if (is_checked_here &&
        !guard_.Check(call_, method_, [] { return nullptr; })->ok()) {
      call_.TryCancel();
    }
  }

  // True for gRPC's answer to a request that it cannot parse. Handlers give a
  // message. A method that no service has gets the same answer, in a context of
  // another type.
  bool IsUnparsed(const grpc::Status& status) const {
    return status.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
           status.error_message().empty() &&
           typeid(call_) == typeid(grpc::CallbackServerContext);
  }

  bool IsAdmitted(const std::string& key) {
    const CallQuota::Answer answer =
        guard_.quota_.Start(key, SystemClock().Now());
    if (answer == CallQuota::Answer::kAdmitted) key_ = key;
    if (answer == CallQuota::Answer::kAbusive) {
      guard_.Shut(key, GetCallerName(call_));
    }
    return answer == CallQuota::Answer::kAdmitted;
  }

  CallGuard& guard_;
  grpc::ServerContextBase& call_;
  const absl::string_view method_;
  std::string key_;  // The quota's, if the call counts there.
  CallQuota::Outcome outcome_ = CallQuota::Outcome::kDone;
};

class CallGuard::Factory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(CallGuard& guard) : guard_(guard) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* info) override {
    return new Call(guard_, *info);
  }

 private:
  CallGuard& guard_;
};

CallGuard::CallGuard(std::shared_ptr<net::BoundedListener> listener,
                     std::shared_ptr<CallerCheck> check, bool holds_readers)
    : listener_(std::move(listener)),
      check_(std::move(check)),
      holds_readers_(holds_readers) {
  looks_ = std::thread([this] { Look(); });
  if (check_ != nullptr) examiner_ = std::make_unique<CallerExaminer>(*check_);
}

CallGuard::~CallGuard() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  ending_.SignalAll();
  looks_.join();
}

absl::StatusOr<std::unique_ptr<grpc::Service>> CallGuard::Guard(
    grpc::Service& service) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<GuardedService> guarded,
      GuardedService::Make(
          service,
          [this](const grpc::ServerContextBase& call, absl::string_view method,
                 absl::FunctionRef<std::function<void()>()> make_later) {
            return Check(call, method, make_later);
          },
          [this](const grpc::ServerContextBase& call, bool reads) {
            SetReads(call, reads);
          }));
  for (const std::string& method : MethodNames(service)) {
    guarded_.insert(method);
  }
  return guarded;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CallGuard::MakeInterceptors() {
  return std::make_unique<Factory>(*this);
}

std::unique_ptr<grpc::ContextAllocator> CallGuard::MakeContexts() {
  return std::make_unique<Contexts>(*this);
}

void CallGuard::Wait(const grpc::ServerContextBase& call) {
  const absl::Time now = SystemClock().Now();
  bool begins_pause = false, looks = false;
  int waiting_count = 0;
  {
    MutexLock lock(&mutex_);
    calls_[&call] = State();
    const int excess = ++waiting_count_ - kWaitingMax;
    if (excess <= 0) return;
    begins_pause = !is_paused_ && now >= pause_time_;
    if (begins_pause) {
      is_paused_ = true;
      pause_time_ = now;
    }
    looks = excess % kLookEvery == 1 && now >= look_time_ + kLookApart;
    if (looks) look_time_ = now;
    waiting_count = waiting_count_;
  }
  if (begins_pause) TellListener();
  if (looks) ShutFlood(now, waiting_count);
}

void CallGuard::ShutFlood(absl::Time now, int waiting_count) {
  std::string key = quota_.FindAbusive(now);
  if (key.empty() && waiting_count > kWaitingUrgent) {
    key = quota_.FindBusiest(now);
  }
  if (!key.empty()) Shut(key, absl::BytesToHexString(key.substr(0, 8)));
  // A new connection of the same peer is a stranger's until one of its calls
  // has a thread.
  listener_->ShutStrangers(waiting_count > kWaitingMany ? 0 : kStrangerBytes);
}

void CallGuard::Start(const grpc::ServerContextBase& call, State state) {
  bool ends_pause = false;
  {
    MutexLock lock(&mutex_);
    const auto found = calls_.find(&call);
    // A synchronous method's call never waits here; TLS listeners have no such.
    if (found == calls_.end()) return;
    ends_pause = found->second.waits && NoteStarted();
    found->second = std::move(state);
  }
  if (ends_pause) TellListener();
}

void CallGuard::SetReads(const grpc::ServerContextBase& call, bool reads) {
  MutexLock lock(&mutex_);
  const auto found = calls_.find(&call);
  if (found == calls_.end() || found->second.reads == reads) return;
  State& state = found->second;
  state.reads = reads;
  reading_count_ += reads ? 1 : -1;
  int& of_key = reading_[state.key];
  of_key += reads ? 1 : -1;
  if (of_key == 0) reading_.erase(state.key);
}

bool CallGuard::End(const grpc::ServerContextBase& call) {
  bool ends_pause = false;
  {
    MutexLock lock(&mutex_);
    const auto found = calls_.find(&call);
    if (found == calls_.end()) return false;
    ends_pause = found->second.waits && NoteStarted();
    calls_.erase(found);
  }
  if (ends_pause) TellListener();
  return true;
}

bool CallGuard::NoteStarted() {
  --waiting_count_;
  if (!is_paused_ || waiting_count_ > kWaitingFew) return false;
  is_paused_ = false;
  pause_time_ = absl::InfinitePast();
  return true;
}

void CallGuard::TellListener() {
  MutexLock tell_lock(&tell_mutex_);
  bool is_paused = false;
  {
    MutexLock lock(&mutex_);
    is_paused = is_paused_;
  }
  listener_->SetPaused(is_paused);
}

void CallGuard::NoteStatus(const grpc::ServerContextBase& call,
                           absl::string_view method,
                           const grpc::Status& status) {
  if (!holds_readers_ ||
      status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED ||
      !IsReader(call)) {
    return;
  }
  const absl::Status refusal = FromGrpc(status);
  if (!GetRetryDelay(refusal).has_value()) return;
  const std::string peer = call.peer();
  const absl::Duration hold =
      refused_.Note(peer, method, refusal, SystemClock().Now());
  if (hold > absl::ZeroDuration()) listener_->Hold(peer, hold);
}

void CallGuard::Shut(const std::string& key, const std::string& name) {
  bool is_due = false;
  {
    MutexLock lock(&mutex_);
    is_due = log_pace_.IsDue(key, SystemClock().Now());
  }
  if (is_due) {
    LOG(WARNING) << name << " opens calls faster than they end: the "
                 << "connections of its certificate are shut";
  }
  listener_->Shut(key);
}

void CallGuard::Look() {
  std::shared_ptr<const TlsMaterial> seen;
  for (;;) {
    if (check_ != nullptr) {
      std::shared_ptr<const TlsMaterial> material = check_->Refresh();
      if (material != seen) ShutThoseThatNoLongerCount();
      seen = std::move(material);
    }
    EndLongPause();
    MutexLock lock(&mutex_);
    if (ending_.AwaitWithTimeout(&mutex_, kLookInterval, [this] {
          mutex_.AssertHeld();
          return is_ending_;
        })) {
      return;
    }
  }
}

void CallGuard::EndLongPause() {
  const absl::Time now = SystemClock().Now();
  {
    MutexLock lock(&mutex_);
    if (!is_paused_ || now < pause_time_ + kPauseMax) return;
    is_paused_ = false;
    pause_time_ = now + kPauseApart;
  }
  TellListener();
}

// A call that is not open here yet is checked by the new files.
void CallGuard::ShutThoseThatNoLongerCount() {
  absl::flat_hash_map<std::string, std::shared_ptr<const grpc::AuthContext>>
      peers;
  {
    MutexLock lock(&mutex_);
    for (const auto& [call, state] : calls_) {
      if (!state.key.empty()) peers.emplace(state.key, state.peer);
    }
  }
  for (const auto& [key, peer] : peers) {
    const absl::Status status = check_->CheckCertificate(*peer, key);
    if (status.ok()) continue;
    LOG(INFO) << "connections with open calls are shut: " << status.message();
    listener_->Shut(key);
  }
}

std::optional<absl::Status> CallGuard::Check(
    const grpc::ServerContextBase& call, absl::string_view method,
    absl::FunctionRef<std::function<void()>()> make_later) const {
  State state;
  bool is_port_full = false;
  {
    MutexLock lock(&mutex_);
    const auto found = calls_.find(&call);
    if (found != calls_.end()) state = found->second;
    const auto reading = reading_.find(state.key);
    is_port_full = reading_count_ >= kReadingMax && reading != reading_.end() &&
                   reading->second >= kReadingShare;
  }
  if (state.is_excess) {
    return RefuseForNow(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_OPEN_CALLS",
        absl::StrCat(GetCallerName(call), " has ", CallQuota::kOpenMax,
                     " calls open at this port, or given up just now; end "
                     "some, or wait"),
        absl::Seconds(1));
  }
  if (is_port_full) {
    return RefuseForNow(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_OPEN_CALLS",
        absl::StrCat("too many calls at this port have sent no request, ",
                     kReadingShare, " of them of ", GetCallerName(call),
                     "; send theirs, or wait"),
        absl::Seconds(1));
  }
  if (state.peer == nullptr || check_ == nullptr) {
    return absl::UnauthenticatedError("a call without a certificate");
  }
  if (!check_->Knows(*state.peer, state.key)) {
    std::function<void()> later = make_later();
    if (later && examiner_->Examine(state.key, state.peer, std::move(later))) {
      return std::nullopt;
    }
  }
  const bool is_unknown =
      dynamic_cast<const grpc::GenericCallbackServerContext*>(&call) != nullptr;
  return is_unknown ? check_->CheckCertificate(*state.peer, state.key)
                    : check_->Check(*state.peer, state.key, method);
}

}  // namespace atl::rpc
