#include "server/core/budget_book.h"

#include <algorithm>

namespace atl::server {

BudgetBook::Own BudgetBook::FindOwn(const void* holder) const {
  const auto own = by_holder_.find(holder);
  return own == by_holder_.end() ? Own() : own->second;
}

bool BudgetBook::Fits(const void* holder, int64_t bytes) const {
  return FindOwn(holder).bytes + bytes <= bytes_max_ - bytes_;
}

bool BudgetBook::Take(const void* holder, int64_t bytes) {
  if (!Fits(holder, bytes)) return false;
  Count(holder, bytes);
  return true;
}

void BudgetBook::TakeOverBudget(const void* holder, int64_t bytes) {
  Count(holder, bytes);
  over_budget_bytes_ += bytes;
}

void BudgetBook::Count(const void* holder, int64_t bytes) {
  bytes_ += bytes;
  by_holder_[holder].bytes += bytes;
}

void BudgetBook::Receive(const void* holder, int64_t bytes) {
  if (bytes > 0) by_holder_[holder].reserved_bytes -= bytes;
}

void BudgetBook::Give(const void* holder, int64_t bytes, Kind kind) {
  if (bytes == 0) return;
  bytes_ -= bytes;
  if (kind == Kind::kOverBudget) over_budget_bytes_ -= bytes;
  const auto own = by_holder_.find(holder);
  if (kind == Kind::kReserved) own->second.reserved_bytes -= bytes;
  if ((own->second.bytes -= bytes) == 0) by_holder_.erase(own);
}

void BudgetBook::Wait(int64_t number, const Ticket& ticket) {
  tickets_[number] = ticket;
  order_.insert({ticket.index, number});
}

void BudgetBook::Leave(int64_t number) {
  const auto it = tickets_.find(number);
  if (it == tickets_.end()) return;
  order_.erase({it->second.index, number});
  tickets_.erase(it);
}

bool BudgetBook::IsScarce() const {
  for (const auto& [number, ticket] : tickets_) {
    if (!Fits(ticket.holder, ticket.bytes)) return true;
  }
  return false;
}

std::vector<int64_t> BudgetBook::LetIn() {
  std::vector<int64_t> let_in;
  for (const auto& [index, number] : order_) {
    if (bytes_ >= bytes_max_) break;
    const Ticket& ticket = tickets_[number];
    const int64_t reserved_bytes_max =
        std::max(kReservedBytesMin, (bytes_max_ - bytes_) / kReservedPart);
    if (FindOwn(ticket.holder).reserved_bytes + ticket.bytes >
            reserved_bytes_max ||
        !Take(ticket.holder, ticket.bytes)) {
      continue;
    }
    by_holder_[ticket.holder].reserved_bytes += ticket.bytes;
    let_in.push_back(number);
  }
  for (const int64_t number : let_in) Leave(number);
  return let_in;
}

std::vector<int64_t> BudgetBook::LetInNext(const void* set, int index) {
  std::vector<int64_t> let_in;
  for (const auto& [of, number] : order_) {
    if (of > index) break;
    if (tickets_[number].set == set) let_in.push_back(number);
  }
  for (const int64_t number : let_in) Leave(number);
  return let_in;
}

std::vector<int64_t> BudgetBook::LetInHolder(const void* holder) {
  std::vector<int64_t> let_in;
  for (const auto& [number, ticket] : tickets_) {
    if (ticket.holder == holder) let_in.push_back(number);
  }
  for (const int64_t number : let_in) Leave(number);
  return let_in;
}

}  // namespace atl::server
