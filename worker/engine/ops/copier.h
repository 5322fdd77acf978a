// Copies between the host and a device on one thread while another thread
// computes.

#ifndef WORKER_ENGINE_OPS_COPIER_H_
#define WORKER_ENGINE_OPS_COPIER_H_

#include <cstddef>
#include <cstring>

#include "absl/status/status.h"

namespace atl::engine {

// The base class copies within host memory. One thread at a time may copy.
class Copier {
 public:
  virtual ~Copier() = default;

  // Later copies wait for all operations that are queued so far. The thread of
  // the operations calls this, also while another thread copies.
  virtual void Follow() {}

  // As in BasicOps, but both wait until the copy is done. Operations that are
  // called later see it.
  virtual void FromHost(size_t bytes, const void* host, void* to) {
    if (bytes > 0) std::memcpy(to, host, bytes);
  }
  virtual void ToHost(size_t bytes, const void* from, void* host) {
    if (bytes > 0) std::memcpy(host, from, bytes);
  }

  // OK, or the first error of the device.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

}  // namespace atl::engine

#endif  // WORKER_ENGINE_OPS_COPIER_H_
