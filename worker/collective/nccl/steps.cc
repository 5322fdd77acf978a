#include "worker/collective/nccl/steps.h"

#include <utility>

namespace atl::collective {
namespace {

class Maker {
 public:
  Maker(const Call& call, int rank, int size)
      : call_(call),
        rank_(rank),
        size_(size),
        bytes_(static_cast<int64_t>(ElementBytes(call.type))) {}

  std::vector<Step> Make() {
    switch (call_.kind) {
      case CallKind::kBarrier:
        break;
      case CallKind::kBroadcast:
        Whole(StepKind::kBroadcast);
        break;
      case CallKind::kReduce:
        Whole(StepKind::kReduce);
        break;
      case CallKind::kAllReduce:
        Whole(StepKind::kAllReduce);
        break;
      case CallKind::kReduceScatter:
        Whole(StepKind::kReduceScatter);
        break;
      case CallKind::kAllGather:
        Whole(StepKind::kAllGather);
        break;
      case CallKind::kScatter:
        if (rank_ == call_.root) {
          for (int p = 0; p < size_; ++p) Send(p, p * call_.count, call_.count);
        }
        Receive(call_.root, 0, call_.count);
        break;
      case CallKind::kGather:
        Send(call_.root, 0, call_.count);
        if (rank_ == call_.root) {
          for (int p = 0; p < size_; ++p) {
            Receive(p, p * call_.count, call_.count);
          }
        }
        break;
      case CallKind::kAllToAll:
        AllToAll();
        break;
      case CallKind::kTransfers:
        for (const Transfer& transfer : call_.transfers) Add(transfer);
        break;
    }
    return std::move(steps_);
  }

 private:
  void Whole(StepKind kind) {
    if (call_.count == 0) return;
    steps_.push_back(
        {.kind = kind, .in = call_.in, .out = call_.out, .count = call_.count});
  }

  // `count` elements at `begin` of the input.
  void Send(int peer, int64_t begin, int64_t count) {
    if (peer == rank_) own_begin_ = begin;
    if (count == 0 || peer == rank_) return;
    steps_.push_back({.kind = StepKind::kSend,
                      .peer = peer,
                      .in = static_cast<const char*>(call_.in) + begin * bytes_,
                      .count = count});
  }
  // The same for the output; a copy if `peer` is the rank itself.
  void Receive(int peer, int64_t begin, int64_t count) {
    if (count == 0) return;
    char* const out = static_cast<char*>(call_.out) + begin * bytes_;
    if (peer != rank_) {
      steps_.push_back({.kind = StepKind::kReceive,
                        .peer = peer,
                        .out = out,
                        .count = count});
      return;
    }
    const char* in = static_cast<const char*>(call_.in) + own_begin_ * bytes_;
    if (in == out) return;
    steps_.push_back(
        {.kind = StepKind::kCopy, .in = in, .out = out, .count = count});
  }

  void AllToAll() {
    const bool even = call_.count >= 0;
    int64_t sent = 0, received = 0;
    for (int p = 0; p < size_; ++p) {
      const int64_t count = even ? call_.count : call_.send_counts[p];
      Send(p, sent, count);
      sent += count;
    }
    for (int p = 0; p < size_; ++p) {
      const int64_t count = even ? call_.count : call_.receive_counts[p];
      Receive(p, received, count);
      received += count;
    }
  }

  void Add(const Transfer& transfer) {
    if (transfer.byte_count == 0) return;
    if (transfer.is_send) {
      steps_.push_back({.kind = StepKind::kSend,
                        .peer = transfer.peer,
                        .in = transfer.data,
                        .count = transfer.byte_count});
    } else {
      steps_.push_back({.kind = StepKind::kReceive,
                        .peer = transfer.peer,
                        .out = transfer.data,
                        .count = transfer.byte_count});
    }
  }

  const Call& call_;
  const int rank_, size_;
  const int64_t bytes_;
  int64_t own_begin_ = 0;  // Input of the rank's copy to itself.
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Step> PlanSteps(const Call& call, int rank, int size) {
  return Maker(call, rank, size).Make();
}

}  // namespace atl::collective
