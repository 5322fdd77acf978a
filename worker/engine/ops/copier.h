// Copies between host and device while another thread computes.

#pragma once

#include <cstddef>
#include <cstring>

#include "absl/status/status.h"

namespace atl::engine {

// By default within host memory. One thread at a time may copy.
class Copier {
 public:
  virtual ~Copier() = default;

  // Later copies wait for all operations queued so far. The operations' thread
  // calls this, also while another thread copies.
  virtual void Follow() {}

  // As in BasicOps, but both wait for the copy. Later operations see it.
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
