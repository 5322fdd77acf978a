#include "server/core/gather_room.h"

#include <algorithm>

namespace atl::server {

GatherRoom::Own GatherRoom::OwnOf(const void* holder) const {
  const auto own = by_holder_.find(holder);
  return own == by_holder_.end() ? Own() : own->second;
}

bool GatherRoom::Fits(const void* holder, int64_t bytes) const {
  return OwnOf(holder).bytes + bytes <= bytes_max_ - bytes_;
}

bool GatherRoom::Take(const void* holder, int64_t bytes) {
  if (!Fits(holder, bytes)) return false;
  Count(holder, bytes);
  return true;
}

void GatherRoom::TakeBeyond(const void* holder, int64_t bytes) {
  Count(holder, bytes);
  beyond_bytes_ += bytes;
}

void GatherRoom::Count(const void* holder, int64_t bytes) {
  bytes_ += bytes;
  by_holder_[holder].bytes += bytes;
}

void GatherRoom::Receive(const void* holder, int64_t bytes) {
  if (bytes > 0) by_holder_[holder].reserved_bytes -= bytes;
}

void GatherRoom::Give(const void* holder, int64_t bytes, Kind kind) {
  if (bytes == 0) return;
  bytes_ -= bytes;
  if (kind == Kind::kBeyond) beyond_bytes_ -= bytes;
  const auto own = by_holder_.find(holder);
  if (kind == Kind::kReserved) own->second.reserved_bytes -= bytes;
  if ((own->second.bytes -= bytes) == 0) by_holder_.erase(own);
}

void GatherRoom::Wait(int64_t number, const Turn& turn) {
  turns_[number] = turn;
  order_.insert({turn.index, number});
}

void GatherRoom::Leave(int64_t number) {
  const auto it = turns_.find(number);
  if (it == turns_.end()) return;
  order_.erase({it->second.index, number});
  turns_.erase(it);
}

bool GatherRoom::IsScarce() const {
  for (const auto& [number, turn] : turns_) {
    if (!Fits(turn.holder, turn.bytes)) return true;
  }
  return false;
}

std::vector<int64_t> GatherRoom::LetIn() {
  std::vector<int64_t> let_in;
  for (const auto& [index, number] : order_) {
    if (bytes_ >= bytes_max_) break;
    const Turn& turn = turns_[number];
    const int64_t reserved_bytes_max = std::max(
        kReservedBytesMin, (bytes_max_ - bytes_) / kReservedPart);
    if (OwnOf(turn.holder).reserved_bytes + turn.bytes > reserved_bytes_max ||
        !Take(turn.holder, turn.bytes)) {
      continue;
    }
    by_holder_[turn.holder].reserved_bytes += turn.bytes;
    let_in.push_back(number);
  }
  for (const int64_t number : let_in) Leave(number);
  return let_in;
}

std::vector<int64_t> GatherRoom::LetInNext(const void* set, int index) {
  std::vector<int64_t> let_in;
  for (const auto& [of, number] : order_) {
    if (of > index) break;
    if (turns_[number].set == set) let_in.push_back(number);
  }
  for (const int64_t number : let_in) Leave(number);
  return let_in;
}

std::vector<int64_t> GatherRoom::LetInHolder(const void* holder) {
  std::vector<int64_t> let_in;
  for (const auto& [number, turn] : turns_) {
    if (turn.holder == holder) let_in.push_back(number);
  }
  for (const int64_t number : let_in) Leave(number);
  return let_in;
}

}  // namespace atl::server
