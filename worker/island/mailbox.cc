#include "worker/island/mailbox.h"

#include <utility>

namespace atl::worker {
namespace {

size_t Index(Lane lane) { return static_cast<size_t>(lane); }

// Outside the lock: callbacks run here.
void StopAll(std::vector<std::stop_source> sources) {
  for (std::stop_source& source : sources) source.request_stop();
}

}  // namespace

std::vector<std::stop_source> Mailbox::Came(const v1::IslandPlan* plan) {
  std::vector<std::stop_source> moot;
  if (plan != nullptr) {
    newest_ = *plan;
    for (const Transfer& transfer : transfers_) {
      if (transfer.moot && transfer.moot(*plan)) moot.push_back(transfer.stop);
    }
  }
  ++came_count_;
  changed_.SignalAll();
  return moot;
}

void Mailbox::PutJoined(v1::JoinResponse response) {
  std::vector<std::stop_source> moot;
  {
    MutexLock lock(&mutex_);
    moot = Came(&response.plan());
    joined_ = std::move(response);
    // Of the life before: the response has a plan of its own.
    plan_.reset();
  }
  StopAll(std::move(moot));
}

void Mailbox::PutPlan(v1::IslandPlan plan) {
  std::vector<std::stop_source> moot;
  {
    MutexLock lock(&mutex_);
    moot = Came(&plan);
    plan_ = std::move(plan);
  }
  StopAll(std::move(moot));
}

void Mailbox::PutConnection(bool up) {
  MutexLock lock(&mutex_);
  connection_ = up;
  Came(nullptr);
}

void Mailbox::PutRefused(absl::Status status) {
  {
    MutexLock lock(&mutex_);
    if (!refused_.has_value()) refused_ = std::move(status);
    Came(nullptr);
  }
  StopTransfer();
}

void Mailbox::Wake() {
  MutexLock lock(&mutex_);
  Came(nullptr);
}

int64_t Mailbox::DrainInto(IslandLoop& loop) {
  std::optional<v1::JoinResponse> joined;
  std::optional<v1::IslandPlan> plan;
  std::optional<bool> connection;
  std::optional<absl::Status> refused;
  int64_t came_count = 0;
  {
    MutexLock lock(&mutex_);
    joined.swap(joined_);
    plan.swap(plan_);
    connection.swap(connection_);
    refused = refused_;
    came_count = drained_count_ = came_count_;
  }
  if (joined.has_value()) loop.OnJoined(*joined);
  if (connection.has_value()) loop.OnConnection(*connection);
  if (plan.has_value()) loop.OnPlan(*plan);
  if (refused.has_value()) loop.OnRefused(*refused);
  return came_count;
}

void Mailbox::Wait(absl::Duration timeout, std::optional<int64_t> seen) {
  MutexLock lock(&mutex_);
  if (came_count_ == seen.value_or(drained_count_)) {
    changed_.WaitWithTimeout(&mutex_, timeout);
  }
}

std::stop_token Mailbox::BeginTransfer(ObsoleteCheck moot, Lane lane) {
  MutexLock lock(&mutex_);
  Transfer& transfer = transfers_[Index(lane)];
  transfer.moot = std::move(moot);
  transfer.stop = std::stop_source();
  // What came just before counts too.
  if (closed_ || refused_.has_value() ||
      (newest_.has_value() && transfer.moot(*newest_))) {
    transfer.stop.request_stop();
  }
  return transfer.stop.get_token();
}

void Mailbox::EndTransfer(Lane lane) {
  MutexLock lock(&mutex_);
  transfers_[Index(lane)].moot = nullptr;
  transfers_[Index(lane)].stop = std::stop_source(std::nostopstate);
}

void Mailbox::StopTransfer() {
  std::vector<std::stop_source> all;
  {
    MutexLock lock(&mutex_);
    for (const Transfer& transfer : transfers_) all.push_back(transfer.stop);
  }
  StopAll(std::move(all));
}

void Mailbox::CloseTransfers() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    Came(nullptr);
  }
  StopTransfer();
}

}  // namespace atl::worker
