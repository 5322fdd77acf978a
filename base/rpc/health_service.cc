#include "base/rpc/health_service.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace atl::rpc {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

constexpr size_t kNameBytesMax = 256;  // More than any service's.

}  // namespace

// A stream. It writes one answer at a time; its members are guarded by the
// service's mutex. While `writes_`, its call cannot end, so it stays.
class HealthService::Watcher
    : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService& service, const std::string& name)
      : service_(service), name_(name) {}

  // Returns true if Go must be called next.
  bool Prepare() {
    service_.mutex_.AssertHeld();
    const Status status = service_.StatusOf(name_);
    if (writes_ || is_ended_ || status == written_) return false;
    writes_ = true;
    written_ = status;
    response_.set_status(status);
    return true;
  }
  void Go() { StartWrite(&response_); }

  void OnWriteDone(bool ok) override {
    bool goes = false, ends = false;
    {
      MutexLock lock(&service_.mutex_);
      writes_ = false;
      if (!ok) is_ended_ = true;
      ends = is_ended_;
      goes = Prepare();
    }
    if (ends) Finish(grpc::Status::CANCELLED);
    if (goes) Go();
  }

  void OnCancel() override {
    {
      MutexLock lock(&service_.mutex_);
      if (is_ended_) return;
      is_ended_ = true;
      if (writes_) return;
    }
    Finish(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    {
      MutexLock lock(&service_.mutex_);
      service_.watchers_.erase(this);
    }
    delete this;
  }

 private:
  HealthService& service_;
  const std::string name_;
  bool writes_ = false;
  bool is_ended_ = false;
  Status written_ = HealthCheckResponse::UNKNOWN;
  HealthCheckResponse response_;
};

HealthService::HealthService() { serving_[""] = false; }

void HealthService::SetServing(bool serving) {
  {
    MutexLock lock(&mutex_);
    for (auto& [name, is_serving] : serving_) is_serving = serving;
  }
  Tell();
}

void HealthService::SetServing(const std::string& name, bool serving) {
  {
    MutexLock lock(&mutex_);
    serving_[name] = serving;
  }
  Tell();
}

grpc::ServerUnaryReactor* HealthService::Check(
    grpc::CallbackServerContext* context, const HealthCheckRequest* request,
    HealthCheckResponse* response) {
  {
    MutexLock lock(&mutex_);
    response->set_status(StatusOf(request->service()));
  }
  const bool is_known =
      response->status() != HealthCheckResponse::SERVICE_UNKNOWN;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(
      is_known ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::NOT_FOUND,
                              absl::StrCat("no service ",
                                           request->service().substr(
                                               0, kNameBytesMax))));
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  // A longer name is that of no service, too.
  auto* const watcher =
      new Watcher(*this, request->service().substr(0, kNameBytesMax + 1));
  {
    MutexLock lock(&mutex_);
    watchers_.insert(watcher);
    watcher->Prepare();
  }
  watcher->Go();
  return watcher;
}

HealthService::Status HealthService::StatusOf(const std::string& name) const {
  const auto found = serving_.find(name);
  if (found == serving_.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return found->second ? HealthCheckResponse::SERVING
                       : HealthCheckResponse::NOT_SERVING;
}

void HealthService::Tell() {
  std::vector<Watcher*> due;
  {
    MutexLock lock(&mutex_);
    for (Watcher* watcher : watchers_) {
      if (watcher->Prepare()) due.push_back(watcher);
    }
  }
  for (Watcher* watcher : due) watcher->Go();
}

}  // namespace atl::rpc
