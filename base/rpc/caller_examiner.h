// Examines the certificates that a port has not seen, which takes up to 1 ms
// each, on a thread of a low priority. The calls that wait for that run
// afterwards on a second thread, at the usual priority, so that they hold no lock
// for long.
//
// Thread-safe.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/rpc/caller_check.h"
#include "base/sync/mutex.h"
#include "grpcpp/security/auth_context.h"

namespace atl::rpc {

class CallerExaminer {
 public:
  // `check` must outlive it.
  explicit CallerExaminer(CallerCheck& check);
  // Runs what still waits.
  ~CallerExaminer();
  CallerExaminer(const CallerExaminer&) = delete;
  CallerExaminer& operator=(const CallerExaminer&) = delete;

  // Runs `then` once `check` knows the certificate with this key. False: too
  // many certificates wait; `then` is not run.
  bool Examine(const std::string& key,
               std::shared_ptr<const grpc::AuthContext> peer,
               std::function<void()> then);

 private:
  // So a new caller waits for a second at most, even for a tenth of a core.
  static constexpr size_t kKeysMax = 128;

  struct Waiting {
    std::shared_ptr<const grpc::AuthContext> peer;
    std::vector<std::function<void()>> then;
  };

  void ExamineAll();
  void RunAll();

  CallerCheck& check_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> keys_ ABSL_GUARDED_BY(mutex_);  // Those of waiting_.
  absl::flat_hash_map<std::string, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> ready_ ABSL_GUARDED_BY(mutex_);
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_examined_all_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread examiner_;
  std::thread runner_;
};

}  // namespace atl::rpc
