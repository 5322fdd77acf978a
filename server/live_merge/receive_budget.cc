#include "server/live_merge/receive_budget.h"

#include "base/status/refusal.h"

namespace atl::server {

absl::Status NoRoomToWait() {
  return RefuseForNow(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                      "memory for live merges is exhausted: push again later",
                      absl::Seconds(1));
}

std::optional<ReceiveBudget::Hold> ReceiveBudget::Take(const void* holder,
                                                       int64_t bytes) {
  std::optional<Hold> hold = TakeIfRoom(holder, bytes);
  if (hold.has_value() || !GiveUpAbandoned()) return hold;
  return TakeIfRoom(holder, bytes);
}

std::optional<ReceiveBudget::Hold> ReceiveBudget::TakeIfRoom(const void* holder,
                                                             int64_t bytes) {
  Due due;
  {
    MutexLock lock(&mutex_);
    if (!room_.Take(holder, bytes)) return std::nullopt;
    LookForScarcity(due);
  }
  PostAll(std::move(due));
  return Hold(shared_from_this(), holder, bytes, BudgetBook::Kind::kCome);
}

ReceiveBudget::Hold ReceiveBudget::TakeOverBudget(const void* holder,
                                                  int64_t bytes) {
  Due due;
  {
    MutexLock lock(&mutex_);
    room_.TakeOverBudget(holder, bytes);
    LookForScarcity(due);
  }
  PostAll(std::move(due));
  return Hold(shared_from_this(), holder, bytes, BudgetBook::Kind::kBeyond);
}

void ReceiveBudget::Receive(const void* holder, int64_t bytes) {
  Due due;
  {
    MutexLock lock(&mutex_);
    room_.Receive(holder, bytes);
    due = LetIn();
  }
  PostAll(std::move(due));
}

void ReceiveBudget::Give(const void* holder, int64_t bytes,
                         BudgetBook::Kind kind) {
  std::function<void()> forgotten;  // Destroyed after the lock is released.
  Due due;
  {
    MutexLock lock(&mutex_);
    room_.Give(holder, bytes, kind);
    const auto abandoned = abandoned_.find(holder);
    if (abandoned != abandoned_.end() && !room_.Holds(holder)) {
      forgotten.swap(abandoned->second);
      abandoned_.erase(abandoned);
    }
    due = LetIn();
  }
  PostAll(std::move(due));
}

std::unique_ptr<ReceiveBudget::Ticket> ReceiveBudget::Wait(
    const BudgetBook::Ticket& ticket, std::shared_ptr<WaiterGate> gate) {
  Due due;
  int64_t number = 0;
  {
    MutexLock lock(&mutex_);
    number = ++last_number_;
    Waiter& own = waiters_[number];
    own.ticket = ticket;
    room_.Wait(number, ticket);
    due = LetIn();
    // A ticket that is let in immediately needs no call.
    own.gate = std::move(gate);
    if (!own.is_in && is_scarce_) AskForRoom(due);
  }
  PostAll(std::move(due));
  return std::make_unique<Ticket>(shared_from_this(), number);
}

ReceiveBudget::Due ReceiveBudget::LetIn(const std::vector<int64_t>& numbers) {
  Due due;
  const auto let_in = [&](int64_t number) {
    mutex_.AssertHeld();
    Waiter& waiter = waiters_[number];
    waiter.is_in = true;
    if (waiter.gate != nullptr) due.gates.push_back(waiter.gate);
    return &waiter;
  };
  for (const int64_t number : numbers) let_in(number);
  for (const int64_t number : room_.LetIn()) {
    Waiter* const waiter = let_in(number);
    waiter->room.emplace(Hold(shared_from_this(), waiter->ticket.holder,
                              waiter->ticket.bytes,
                              BudgetBook::Kind::kReserved));
  }
  LookForScarcity(due);
  return due;
}

void ReceiveBudget::LookForScarcity(Due& due) {
  const bool was_scarce = std::exchange(is_scarce_, room_.IsScarce());
  if (is_scarce_ && !was_scarce) AskForRoom(due);
}

void ReceiveBudget::AskForRoom(Due& due) {
  if (!std::exchange(makes_room_, true)) due.makes_room = true;
}

void ReceiveBudget::PostAll(Due due) {
  if (!due.gates.empty()) {
    post_([gates = std::move(due.gates)] {
      for (const auto& gate : gates) gate->Call(&PushWaiter::OnRoom);
    });
  }
  if (due.makes_room) {
    post_([held = shared_from_this()] { held->MakeRoom(); });
  }
}

bool ReceiveBudget::AnyoneWaits() const {
  MutexLock lock(&mutex_);
  return room_.waiting_count() > 0;
}

bool ReceiveBudget::IsScarce() const {
  MutexLock lock(&mutex_);
  return is_scarce_;
}

void ReceiveBudget::LetInNext(const void* set, int index) {
  Due due;
  {
    MutexLock lock(&mutex_);
    due = LetIn(room_.LetInNext(set, index));
  }
  PostAll(std::move(due));
}

void ReceiveBudget::LetInHolder(const void* holder) {
  Due due;
  {
    MutexLock lock(&mutex_);
    due = LetIn(room_.LetInHolder(holder));
  }
  PostAll(std::move(due));
}

void ReceiveBudget::AddSet(std::weak_ptr<FoldingSet> set) {
  MutexLock lock(&mutex_);
  std::erase_if(sets_, [](const auto& other) { return other.expired(); });
  sets_.push_back(std::move(set));
}

void ReceiveBudget::MakeRoom() {
  std::vector<std::weak_ptr<FoldingSet>> sets;
  {
    MutexLock lock(&mutex_);
    makes_room_ = false;
    sets = sets_;
  }
  for (const std::weak_ptr<FoldingSet>& weak : sets) {
    const std::shared_ptr<FoldingSet> set = weak.lock();
    if (set != nullptr) set->FoldWaiting();
  }
  GiveUpAbandoned();
}

void ReceiveBudget::Leave(int64_t number) {
  std::optional<Hold> room;  // Destroyed after the lock is released.
  MutexLock lock(&mutex_);
  room_.Leave(number);
  is_scarce_ = room_.IsScarce();
  const auto it = waiters_.find(number);
  room = std::move(it->second.room);
  waiters_.erase(it);
}

bool ReceiveBudget::IsIn(int64_t number) const {
  MutexLock lock(&mutex_);
  return waiters_.at(number).is_in;
}

std::optional<ReceiveBudget::Hold> ReceiveBudget::TakeRoom(int64_t number) {
  MutexLock lock(&mutex_);
  return std::exchange(waiters_.at(number).room, std::nullopt);
}

void ReceiveBudget::Abandon(const void* holder, std::function<void()> give_up) {
  {
    MutexLock lock(&mutex_);
    if (!room_.Holds(holder)) return;
    if (!is_scarce_) {
      abandoned_[holder].swap(give_up);
      return;
    }
  }
  give_up();
}

bool ReceiveBudget::GiveUpAbandoned() {
  std::map<const void*, std::function<void()>> abandoned;
  {
    MutexLock lock(&mutex_);
    abandoned.swap(abandoned_);
  }
  for (const auto& [other, give_up] : abandoned) give_up();
  return !abandoned.empty();
}

}  // namespace atl::server
