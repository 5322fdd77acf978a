#include "coordinator/gate/announcer.h"

#include "base/obs/log.h"

namespace atl::coordinator {

Announcer::Announcer(const Spec& spec)
    : spec_(spec), thread_([this] { Run(); }) {}

Announcer::~Announcer() {
  {
    MutexLock lock(&mutex_);
    stops_ = true;
    wake_.SignalAll();
  }
  thread_.join();
}

void Announcer::Run() {
  bool is_heard = true;
  for (;;) {
    v1::AnnounceGateRequest request;
    request.set_address(spec_.address);
    request.set_pin(spec_.files->Get()->pin);
    const absl::Status status = spec_.announce(request);
    MutexLock lock(&mutex_);
    if (!stops_ && status.ok() != is_heard) {
      is_heard = status.ok();
      if (is_heard) {
        LOG(INFO) << "the coordinator knows this gate";
      } else {
        LOG(WARNING) << "cannot announce this gate, and tries again: "
                     << status.message();
      }
    }
    wake_.AwaitWithTimeout(
        &mutex_, status.ok() ? spec_.interval : spec_.retry_interval,
        [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stops_; });
    if (stops_) return;
  }
}

}  // namespace atl::coordinator
