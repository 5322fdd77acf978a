#include "server/core/gather_room.h"

namespace atl::server {

bool GatherRoom::Take(const void* holder, int64_t bytes) {
  const auto own = by_holder_.find(holder);
  const int64_t own_bytes = own == by_holder_.end() ? 0 : own->second;
  if (own_bytes + bytes > bytes_max_ - bytes_) return false;
  Count(holder, bytes);
  return true;
}

void GatherRoom::TakeBeyond(const void* holder, int64_t bytes) {
  Count(holder, bytes);
  beyond_bytes_ += bytes;
}

void GatherRoom::Count(const void* holder, int64_t bytes) {
  bytes_ += bytes;
  by_holder_[holder] += bytes;
}

void GatherRoom::Give(const void* holder, int64_t bytes, bool is_beyond) {
  if (bytes == 0) return;
  bytes_ -= bytes;
  if (is_beyond) beyond_bytes_ -= bytes;
  const auto own = by_holder_.find(holder);
  if ((own->second -= bytes) == 0) by_holder_.erase(own);
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

std::vector<int64_t> GatherRoom::LetIn() {
  std::vector<int64_t> let_in;
  for (const auto& [index, number] : order_) {
    if (bytes_ >= bytes_max_) break;
    const Turn& turn = turns_[number];
    if (Take(turn.holder, turn.bytes)) let_in.push_back(number);
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
