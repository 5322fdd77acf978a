#include "worker/island/mailbox.h"

#include <utility>

namespace atl::worker {
namespace {

size_t Index(Lane lane) { return static_cast<size_t>(lane); }

// Call without the lock: runs the callbacks of stop tokens.
void StopAll(std::vector<std::stop_source> sources) {
  for (std::stop_source& source : sources) source.request_stop();
}

}  // namespace

void Mailbox::Came() {
  ++came_count_;
  changed_.SignalAll();
}

std::vector<std::stop_source> Mailbox::SetPlan(v1::IslandPlan plan) {
  newest_ = std::move(plan);
  Came();
  std::vector<std::stop_source> obsolete;
  for (const Transfer& transfer : transfers_) {
    if (transfer.is_obsolete && transfer.is_obsolete(*newest_)) {
      obsolete.push_back(transfer.stop);
    }
  }
  return obsolete;
}

void Mailbox::PutJoined(v1::JoinResponse response) {
  std::vector<std::stop_source> obsolete;
  {
    MutexLock lock(&mutex_);
    obsolete = SetPlan(response.plan());
    joined_ = std::move(response);
    // The loop gets it with the response.
    plan_is_new_ = false;
  }
  StopAll(std::move(obsolete));
}

void Mailbox::PutPlan(v1::IslandPlan plan) {
  std::vector<std::stop_source> obsolete;
  {
    MutexLock lock(&mutex_);
    obsolete = SetPlan(std::move(plan));
    plan_is_new_ = true;
  }
  StopAll(std::move(obsolete));
}

void Mailbox::PutConnection(bool up, std::string why) {
  MutexLock lock(&mutex_);
  connection_ = {up, std::move(why)};
  Came();
}

void Mailbox::PutRefused(absl::Status status) {
  {
    MutexLock lock(&mutex_);
    if (!refused_.has_value()) refused_ = std::move(status);
    Came();
  }
  StopTransfer();
}

void Mailbox::PutDataCame() {
  MutexLock lock(&mutex_);
  data_came_ = true;
  Came();
}

void Mailbox::Wake() {
  MutexLock lock(&mutex_);
  Came();
}

int64_t Mailbox::DrainInto(IslandLoop& loop) {
  std::optional<v1::JoinResponse> joined;
  std::optional<v1::IslandPlan> plan;
  std::optional<Connection> connection;
  std::optional<absl::Status> refused;
  bool data_came = false;
  int64_t came_count = 0;
  {
    MutexLock lock(&mutex_);
    joined.swap(joined_);
    if (std::exchange(plan_is_new_, false)) plan = newest_;
    connection.swap(connection_);
    refused = refused_;
    data_came = std::exchange(data_came_, false);
    came_count = drained_count_ = came_count_;
  }
  if (joined.has_value()) loop.OnJoined(*joined);
  if (connection.has_value()) {
    loop.OnConnection(connection->up, std::move(connection->why));
  }
  if (plan.has_value()) loop.OnPlan(*plan);
  if (refused.has_value()) loop.OnRefused(*refused);
  if (data_came) loop.OnDataCame();
  return came_count;
}

void Mailbox::Wait(absl::Duration timeout, std::optional<int64_t> seen) {
  MutexLock lock(&mutex_);
  if (came_count_ == seen.value_or(drained_count_)) {
    changed_.WaitWithTimeout(&mutex_, timeout);
  }
}

std::stop_token Mailbox::BeginTransfer(ObsoleteCheck is_obsolete, Lane lane) {
  MutexLock lock(&mutex_);
  Transfer& transfer = transfers_[Index(lane)];
  transfer.is_obsolete = std::move(is_obsolete);
  transfer.stop = std::stop_source();
  // A plan that has just arrived counts too.
  if (closed_ || refused_.has_value() ||
      (newest_.has_value() && transfer.is_obsolete(*newest_))) {
    transfer.stop.request_stop();
  }
  return transfer.stop.get_token();
}

void Mailbox::EndTransfer(Lane lane) {
  MutexLock lock(&mutex_);
  transfers_[Index(lane)].is_obsolete = nullptr;
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
    Came();
  }
  StopTransfer();
}

}  // namespace atl::worker
