// The Collective on CPUs: a rank of a group of threads in this process and,
// through RemoteLinks, of ranks in other processes.
//
// Every call is one or two phases. In a move phase each rank publishes the
// source of each transfer and each receiver fetches: from memory within the
// process, otherwise from a byte stream. In a reduction phase each rank owns a
// part. It gets that part from all ranks, reduces it in cache-sized pieces, and
// stores it for all ranks of the process.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/collective/call.h"
#include "worker/collective/call_queue.h"
#include "worker/collective/collective.h"
#include "worker/collective/group.h"
#include "worker/collective/remote.h"

namespace atl::collective {

class Member : public Collective {
 public:
  // Rank `rank` of `group`. Connects to other processes within call_timeout.
  static absl::StatusOr<std::unique_ptr<Collective>> Create(
      std::shared_ptr<Group> group, int rank);

  ~Member() override;

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }
  absl::Status Run(const Call& call) override;
  Pending Start(Call call) override;
  absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) override;
  void Abort(absl::string_view reason) override;
  absl::Status status() const override { return group_->world().status(); }

 private:
  enum class Moves { kWhole, kPartsOfRoot, kPartsOfAll };
  struct Piece {
    char* data = nullptr;
    int64_t byte_count = 0;
  };
  struct Owned {
    int64_t begin = 0;  // In the call's `in`, elements.
    int64_t count = 0;
    char* out = nullptr;  // Null for ranks of other processes.
  };

  Member(std::shared_ptr<Group> group, int rank,
         std::unique_ptr<RemoteLinks> links);

  absl::Status Execute(const Call& call);
  absl::Status ExecuteCollective(const Call& call, absl::Time deadline);
  absl::Status ExecuteTransfers(const Call& call, absl::Time deadline);

  // The piece that rank `from` sends to `to`, in `from`'s call.
  Piece Outgoing(const Call& call, Moves moves, int from, int to) const;
  // Returns where `to` receives from `from`, in `to`'s call.
  Piece Incoming(const Call& call, Moves moves, int to, int from) const;
  absl::Status Move(const Call& call, Moves moves, bool local,
                    absl::Time deadline);

  Owned OwnedBy(const Call& call, int rank) const;
  absl::Status ReduceOwned(const Call& call, absl::Time deadline);
  // Every rank reduces everything; for calls so small that latency dominates.
  absl::Status ReduceAll(const Call& call, absl::Time deadline);
  // Elements [begin, end) of the owned part, from memory and scratch_.
  void ReducePiece(const Call& call, const Owned& owned, int64_t begin,
                   int64_t end, bool share);

  // Runs and clears sends_ and receives_; sends the headers if still due.
  absl::Status RunRemote(const Call& call, absl::Time deadline);
  void AddSend(int peer, const void* data, int64_t byte_count);
  void AddReceive(int peer, void* data, int64_t byte_count);
  absl::Status CheckHeader(const Call& call, int peer, const CallHeader& header,
                           int64_t byte_count) const;
  CallHeader MakeHeader(const Call& call, int64_t byte_count) const;
  char* Scratch(int index);

  const std::shared_ptr<Group> group_;  // Shared with its other ranks.
  const int rank_;
  const std::unique_ptr<RemoteLinks> links_;
  int64_t call_number_ = 0;  // Collective calls begun.
  int64_t split_count_ = 0;

  // State of the current call; reused.
  bool headers_due_ = false;
  std::vector<RemoteLinks::Send> sends_;
  std::vector<RemoteLinks::Receive> receives_;
  std::vector<CallHeader> headers_;
  std::vector<const void*> inputs_;
  std::vector<char> scratch_;  // A slice for each remote rank, and one.
  std::vector<int> scratch_index_;  // By rank; -1: a rank of this process.

  CallQueue queue_;  // Last: its thread uses all other members.
};

}  // namespace atl::collective
