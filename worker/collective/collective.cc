#include "worker/collective/collective.h"

namespace atl::collective {

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this != &other) {
    Wait().IgnoreError();
    work_ = std::move(other.work_);
    status_ = std::move(other.status_);
  }
  return *this;
}

Pending::~Pending() { Wait().IgnoreError(); }

absl::Status Pending::Wait() {
  if (work_ != nullptr) {
    status_ = work_->Wait();
    work_ = nullptr;
  }
  return status_;
}

}  // namespace atl::collective
