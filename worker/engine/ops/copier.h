// A way between the host and a device beside that of the operations, so that
// one thread can copy while another computes.

#ifndef WORKER_ENGINE_OPS_COPIER_H_
#define WORKER_ENGINE_OPS_COPIER_H_

#include <cstddef>
#include <cstring>

#include "absl/status/status.h"

namespace atl::engine {

// By itself for memory of the host. One thread at a time copies.
class Copier {
 public:
  virtual ~Copier() = default;

  // What is copied from now on comes behind what the operations have queued so
  // far. Called by their thread, also while another copies.
  virtual void Follow() {}

  // As those of BasicOps; both wait until the copy is done, which operations
  // that are called later then see.
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
