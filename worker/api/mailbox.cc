#include "worker/api/mailbox.h"

#include <utility>

namespace atl::worker {

void Mailbox::PutJoined(v1::JoinResponse response) {
  std::stop_source moot(std::nostopstate);
  {
    MutexLock lock(&mutex_);
    if (moot_ && moot_(response.plan())) moot = transfer_;
    joined_ = std::move(response);
    // Of the life before: the response has a plan of its own.
    plan_.reset();
    woken_ = true;
    changed_.SignalAll();
  }
  moot.request_stop();
}

void Mailbox::PutPlan(v1::IslandPlan plan) {
  std::stop_source moot(std::nostopstate);
  {
    MutexLock lock(&mutex_);
    if (moot_ && moot_(plan)) moot = transfer_;
    plan_ = std::move(plan);
    woken_ = true;
    changed_.SignalAll();
  }
  // Outside the lock: callbacks run here.
  moot.request_stop();
}

void Mailbox::PutConnection(bool up) {
  MutexLock lock(&mutex_);
  connection_ = up;
  woken_ = true;
  changed_.SignalAll();
}

void Mailbox::PutRefused(absl::Status status) {
  {
    MutexLock lock(&mutex_);
    if (!refused_.has_value()) refused_ = std::move(status);
    woken_ = true;
    changed_.SignalAll();
  }
  StopTransfer();
}

void Mailbox::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  changed_.SignalAll();
}

void Mailbox::DrainInto(IslandLoop& loop) {
  std::optional<v1::JoinResponse> joined;
  std::optional<v1::IslandPlan> plan;
  std::optional<bool> connection;
  std::optional<absl::Status> refused;
  {
    MutexLock lock(&mutex_);
    joined.swap(joined_);
    plan.swap(plan_);
    connection.swap(connection_);
    refused = refused_;
    woken_ = false;
  }
  if (joined.has_value()) loop.OnJoined(*joined);
  if (connection.has_value()) loop.OnConnection(*connection);
  if (plan.has_value()) loop.OnPlan(*plan);
  if (refused.has_value()) loop.OnRefused(*refused);
}

void Mailbox::Wait(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  if (!woken_) changed_.WaitWithTimeout(&mutex_, timeout);
}

std::stop_token Mailbox::BeginTransfer(MootCheck moot) {
  MutexLock lock(&mutex_);
  moot_ = std::move(moot);
  transfer_ = std::stop_source();
  // What came just before counts too.
  if (refused_.has_value() || (plan_.has_value() && moot_(*plan_))) {
    transfer_.request_stop();
  }
  return transfer_.get_token();
}

void Mailbox::EndTransfer() {
  MutexLock lock(&mutex_);
  moot_ = nullptr;
  transfer_ = std::stop_source(std::nostopstate);
}

void Mailbox::StopTransfer() {
  std::stop_source transfer(std::nostopstate);
  {
    MutexLock lock(&mutex_);
    transfer = transfer_;
  }
  transfer.request_stop();
}

}  // namespace atl::worker
