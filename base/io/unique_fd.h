// File descriptors as values, and descriptors that wake a poll.

#pragma once

#include <utility>

#include "absl/status/statusor.h"

namespace atl {

// Closes its descriptor when destroyed. Thread-compatible.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // The descriptor, which the caller then closes.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// An eventfd that wakes a poll. UNAVAILABLE: no descriptor left. SetWaker and
// ClearWaker are thread-safe.
absl::StatusOr<UniqueFd> MakeWaker();
void SetWaker(int fd);
void ClearWaker(int fd);

}  // namespace atl
