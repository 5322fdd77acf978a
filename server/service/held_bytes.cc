#include "server/service/held_bytes.h"

namespace atl::server {

std::optional<HeldBytes::Hold> HeldBytes::Take(const void* holder,
                                               int64_t bytes) {
  std::optional<Hold> hold = TakeIfRoom(holder, bytes);
  if (hold.has_value() || !GiveUpAbandoned()) return hold;
  return TakeIfRoom(holder, bytes);
}

std::optional<HeldBytes::Hold> HeldBytes::TakeIfRoom(const void* holder,
                                                     int64_t bytes) {
  {
    MutexLock lock(&mutex_);
    if (!room_.Take(holder, bytes)) return std::nullopt;
  }
  return Hold(shared_from_this(), holder, bytes, /*is_beyond=*/false);
}

HeldBytes::Hold HeldBytes::TakeBeyond(const void* holder, int64_t bytes) {
  {
    MutexLock lock(&mutex_);
    room_.TakeBeyond(holder, bytes);
  }
  return Hold(shared_from_this(), holder, bytes, /*is_beyond=*/true);
}

void HeldBytes::Give(const void* holder, int64_t bytes, bool is_beyond) {
  std::function<void()> forgotten;  // Ends after the lock.
  std::vector<std::shared_ptr<WaiterGate>> gates;
  {
    MutexLock lock(&mutex_);
    room_.Give(holder, bytes, is_beyond);
    const auto abandoned = abandoned_.find(holder);
    if (abandoned != abandoned_.end() && !room_.Holds(holder)) {
      forgotten.swap(abandoned->second);
      abandoned_.erase(abandoned);
    }
    gates = LetIn();
  }
  CallOnRoom(std::move(gates));
}

std::unique_ptr<HeldBytes::Turn> HeldBytes::Wait(
    const GatherRoom::Turn& turn, std::shared_ptr<WaiterGate> gate) {
  std::vector<std::shared_ptr<WaiterGate>> gates;
  int64_t number = 0;
  bool makes_room = false;
  {
    MutexLock lock(&mutex_);
    number = ++last_number_;
    Waiter& own = waiters_[number];
    own.turn = turn;
    room_.Wait(number, turn);
    gates = LetIn();
    // Whoever is let in at once need not be called.
    own.gate = std::move(gate);
    makes_room = !own.is_in && !makes_room_;
    makes_room_ |= makes_room;
  }
  CallOnRoom(std::move(gates));
  if (makes_room) post_([held = shared_from_this()] { held->MakeRoom(); });
  return std::make_unique<Turn>(shared_from_this(), number);
}

std::vector<std::shared_ptr<WaiterGate>> HeldBytes::LetIn(
    const std::vector<int64_t>& numbers) {
  std::vector<std::shared_ptr<WaiterGate>> gates;
  const auto let_in = [&](int64_t number) {
    mutex_.AssertHeld();
    Waiter& waiter = waiters_[number];
    waiter.is_in = true;
    if (waiter.gate != nullptr) gates.push_back(waiter.gate);
    return &waiter;
  };
  for (const int64_t number : numbers) let_in(number);
  for (const int64_t number : room_.LetIn()) {
    Waiter* const waiter = let_in(number);
    waiter->room.emplace(Hold(shared_from_this(), waiter->turn.holder,
                              waiter->turn.bytes, /*is_beyond=*/false));
  }
  return gates;
}

void HeldBytes::CallOnRoom(std::vector<std::shared_ptr<WaiterGate>> gates) {
  if (gates.empty()) return;
  post_([gates = std::move(gates)] {
    for (const auto& gate : gates) gate->Call(&PushWaiter::OnRoom);
  });
}

bool HeldBytes::AnyoneWaits() const {
  MutexLock lock(&mutex_);
  return room_.waiting_count() > 0;
}

void HeldBytes::LetInNext(const void* set, int index) {
  std::vector<std::shared_ptr<WaiterGate>> gates;
  {
    MutexLock lock(&mutex_);
    gates = LetIn(room_.LetInNext(set, index));
  }
  CallOnRoom(std::move(gates));
}

void HeldBytes::LetInHolder(const void* holder) {
  std::vector<std::shared_ptr<WaiterGate>> gates;
  {
    MutexLock lock(&mutex_);
    gates = LetIn(room_.LetInHolder(holder));
  }
  CallOnRoom(std::move(gates));
}

void HeldBytes::AddSet(const void* set, std::function<bool()> fold) {
  MutexLock lock(&mutex_);
  sets_[set].swap(fold);
}

void HeldBytes::MakeRoom() {
  std::map<const void*, std::function<bool()>> sets;
  {
    MutexLock lock(&mutex_);
    makes_room_ = false;
    sets.swap(sets_);
  }
  std::erase_if(sets, [](const auto& set) { return !set.second(); });
  {
    MutexLock lock(&mutex_);
    // A set that was added meanwhile may be where one was.
    sets_.merge(sets);
  }
  GiveUpAbandoned();
}

void HeldBytes::Leave(int64_t number) {
  std::optional<Hold> room;  // Ends after the lock.
  MutexLock lock(&mutex_);
  room_.Leave(number);
  const auto it = waiters_.find(number);
  room = std::move(it->second.room);
  waiters_.erase(it);
}

bool HeldBytes::IsIn(int64_t number) const {
  MutexLock lock(&mutex_);
  return waiters_.at(number).is_in;
}

std::optional<HeldBytes::Hold> HeldBytes::TakeRoom(int64_t number) {
  MutexLock lock(&mutex_);
  return std::exchange(waiters_.at(number).room, std::nullopt);
}

void HeldBytes::Abandon(const void* holder, std::function<void()> give_up) {
  {
    MutexLock lock(&mutex_);
    if (!room_.Holds(holder)) return;
    if (room_.waiting_count() == 0) {
      abandoned_[holder].swap(give_up);
      return;
    }
  }
  give_up();
}

bool HeldBytes::GiveUpAbandoned() {
  std::map<const void*, std::function<void()>> abandoned;
  {
    MutexLock lock(&mutex_);
    abandoned.swap(abandoned_);
  }
  for (const auto& [other, give_up] : abandoned) give_up();
  return !abandoned.empty();
}

}  // namespace atl::server
