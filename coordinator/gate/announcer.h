// Tells the coordinator again and again that a gate serves, and where: the
// coordinator forgets a gate that it does not hear of for 30 s.
//
// Thread-safe.

#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment_service.pb.h"
#include "base/sync/mutex.h"
#include "coordinator/gate/gate_files.h"

namespace atl::coordinator {

class Announcer {
 public:
  struct Spec {
    // EnrolmentService.AnnounceGate.
    std::function<absl::Status(const v1::AnnounceGateRequest&)> announce;
    GateFiles* files = nullptr;  // Must outlive it.
    std::string address;  // host:port at which strangers reach the gate.
    absl::Duration interval = absl::Seconds(10);
    absl::Duration retry_interval = absl::Seconds(1);  // While it is not heard.
  };

  // Announces from now on. A coordinator that is away is logged once.
  explicit Announcer(const Spec& spec);
  // Waits for a call that is on its way.
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

 private:
  void Run();

  const Spec spec_;
  Mutex mutex_;
  CondVar wake_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::coordinator
