#include "worker/engine/parallel/layout/testing/pipeline_simulator.h"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

// A link from a stage to its neighbour: its messages and their send times.
struct Way {
  struct Item {
    int micro_batch;
    int64_t sent_at;
  };
  std::deque<Item> items;
  // By message: the n-th send waits for receive number n - capacity.
  std::vector<int64_t> received_at;
  int sent_count = 0;
};

// The messages under way from a rank to its neighbour: the receiver's chunks.
using Link = std::deque<int>;

class Simulation {
 public:
  Simulation(const PipelineShape& shape,
             const std::vector<std::vector<PipelineAction>>& schedules,
             const PipelineCosts& costs)
      : shape_(shape),
        schedules_(schedules),
        costs_(costs),
        next_(shape.rank_count),
        now_(shape.rank_count),
        live_(shape.rank_count),
        live_max_(shape.rank_count),
        forward_ways_(shape.stage_count()),
        backward_ways_(shape.stage_count()),
        forward_links_(shape.rank_count),
        backward_links_(shape.rank_count),
        passes_(shape.stage_count(),
                std::vector<Progress>(shape.micro_batch_count)),
        backward_count_(shape.stage_count()) {}

  absl::StatusOr<PipelineReport> Play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < shape_.rank_count; ++rank) {
        while (next_[rank] < schedules_[rank].size()) {
          ASSIGN_OR_RETURN(const bool acted, Act(rank));
          if (!acted) break;
          ++next_[rank];
          moved = true;
        }
      }
    }
    RETURN_IF_ERROR(CheckEnd());
    return Report();
  }

 private:
  struct Progress {
    bool has_input = false;
    bool forward_done = false;
    bool has_gradient = false;
    bool backward_done = false;
  };

  absl::Status Wrong(int rank, absl::string_view what) const {
    return absl::InternalError(
        absl::StrCat("rank ", rank, ", action ", next_[rank], " (",
                     ToString(schedules_[rank][next_[rank]]), "): ", what));
  }

  // False: it has to wait.
  absl::StatusOr<bool> Act(int rank) {
    const PipelineAction& action = schedules_[rank][next_[rank]];
    if (action.chunk < 0 || action.chunk >= shape_.chunk_count ||
        action.micro_batch < 0 ||
        action.micro_batch >= shape_.micro_batch_count) {
      return Wrong(rank, "there is no such pass");
    }
    const int stage = action.chunk * shape_.rank_count + rank;
    const bool last = stage + 1 == shape_.stage_count();
    Progress& pass = passes_[stage][action.micro_batch];
    switch (action.kind) {
      case PipelineActionKind::kReceiveActivation:
        if (stage == 0) return Wrong(rank, "the first stage has no input");
        return Receive(rank, action, forward_ways_[stage],
                       forward_links_[rank], pass.has_input);
      case PipelineActionKind::kReceiveGradient:
        if (last) return Wrong(rank, "the last stage makes its gradient");
        return Receive(rank, action, backward_ways_[stage],
                       backward_links_[rank], pass.has_gradient);
      case PipelineActionKind::kSendActivation:
        if (last) return Wrong(rank, "nobody is after the last stage");
        if (!pass.forward_done) return Wrong(rank, "not computed yet");
        return Send(rank, action, forward_ways_[stage + 1],
                    forward_links_[(rank + 1) % shape_.rank_count]);
      case PipelineActionKind::kSendGradient:
        if (stage == 0) return Wrong(rank, "nobody is before the first stage");
        if (!pass.backward_done) return Wrong(rank, "not computed yet");
        return Send(rank, action, backward_ways_[stage - 1],
                    backward_links_[(rank + shape_.rank_count - 1) %
                                    shape_.rank_count]);
      case PipelineActionKind::kForward:
        if (pass.forward_done) return Wrong(rank, "for the second time");
        if (stage > 0 && !pass.has_input) return Wrong(rank, "without input");
        pass.forward_done = true;
        now_[rank] += costs_.forward;
        live_max_[rank] = std::max(live_max_[rank], ++live_[rank]);
        return true;
      case PipelineActionKind::kBackward:
        if (pass.backward_done) return Wrong(rank, "for the second time");
        if (!pass.forward_done) return Wrong(rank, "before its forward");
        if (!last && !pass.has_gradient) {
          return Wrong(rank, "without gradient");
        }
        if (action.micro_batch != backward_count_[stage]++) {
          return Wrong(rank, "gradients are not added in order");
        }
        pass.backward_done = true;
        now_[rank] += costs_.backward;
        --live_[rank];
        return true;
    }
    return Wrong(rank, "unknown");
  }

  absl::StatusOr<bool> Receive(int rank, const PipelineAction& action, Way& way,
                               Link& link, bool& has) {
    if (has) return Wrong(rank, "for the second time");
    if (way.items.empty()) return false;
    if (link.front() != action.chunk) {
      return Wrong(rank,
                   absl::StrCat("chunk ", link.front(), " comes first"));
    }
    link.pop_front();
    if (way.items.front().micro_batch != action.micro_batch) {
      return Wrong(rank,
                   absl::StrCat("micro-batch ", way.items.front().micro_batch,
                                " comes first"));
    }
    now_[rank] = std::max(now_[rank], way.items.front().sent_at);
    way.items.pop_front();
    way.received_at.push_back(now_[rank]);
    has = true;
    return true;
  }

  absl::StatusOr<bool> Send(int rank, const PipelineAction& action, Way& way,
                            Link& link) {
    if (costs_.starts_in_order && !link.empty()) return false;
    const int freed_by = way.sent_count - costs_.way_capacity;
    if (freed_by >= static_cast<int>(way.received_at.size())) return false;
    if (freed_by >= 0) {
      now_[rank] = std::max(now_[rank], way.received_at[freed_by]);
    }
    way.items.push_back({action.micro_batch, now_[rank]});
    link.push_back(ReceiverChunk(rank, action));
    ++way.sent_count;
    return true;
  }

  // The chunk of the receiving rank; the last rank's neighbour is the first.
  int ReceiverChunk(int rank, const PipelineAction& action) const {
    const bool forward = action.kind == PipelineActionKind::kSendActivation;
    if (forward) return action.chunk + (rank + 1 == shape_.rank_count ? 1 : 0);
    return action.chunk - (rank == 0 ? 1 : 0);
  }

  absl::Status CheckEnd() const {
    for (int rank = 0; rank < shape_.rank_count; ++rank) {
      if (next_[rank] < schedules_[rank].size()) {
        return Wrong(rank, "a deadlock: it waits for ever");
      }
    }
    for (int stage = 0; stage < shape_.stage_count(); ++stage) {
      if (!forward_ways_[stage].items.empty() ||
          !backward_ways_[stage].items.empty()) {
        return absl::InternalError(
            absl::StrCat("stage ", stage, " leaves a message on its way"));
      }
      if (backward_count_[stage] != shape_.micro_batch_count) {
        return absl::InternalError(
            absl::StrCat("stage ", stage, " lacks micro-batches"));
      }
    }
    return absl::OkStatus();
  }

  PipelineReport Report() const {
    PipelineReport report;
    report.makespan = *std::max_element(now_.begin(), now_.end());
    const double busy = static_cast<double>(shape_.micro_batch_count) *
                        shape_.chunk_count *
                        static_cast<double>(costs_.forward + costs_.backward);
    report.bubble_share = 1 - busy / static_cast<double>(report.makespan);
    report.live_activations_max = live_max_;
    return report;
  }

  const PipelineShape& shape_;
  const std::vector<std::vector<PipelineAction>>& schedules_;
  const PipelineCosts costs_;
  std::vector<size_t> next_;  // By rank: its next action.
  std::vector<int64_t> now_;  // When it is free for it.
  std::vector<int> live_;
  std::vector<int> live_max_;
  std::vector<Way> forward_ways_;     // Into each stage from the previous one.
  std::vector<Way> backward_ways_;    // Into each stage from the next one.
  std::vector<Link> forward_links_;   // Into each rank from the previous one.
  std::vector<Link> backward_links_;  // Into each rank from the next one.
  std::vector<std::vector<Progress>> passes_;  // By stage and micro-batch.
  std::vector<int> backward_count_;
};

}  // namespace

std::string ToString(const PipelineAction& action) {
  static constexpr char kLetters[] = "RFSrBs";
  return absl::StrCat(std::string(1, kLetters[static_cast<int>(action.kind)]),
                      action.micro_batch, ".", action.chunk);
}

absl::StatusOr<PipelineReport> SimulatePipeline(
    const PipelineShape& shape,
    const std::vector<std::vector<PipelineAction>>& schedules,
    const PipelineCosts& costs) {
  RETURN_IF_ERROR(ValidatePipeline(shape));
  if (static_cast<int>(schedules.size()) != shape.rank_count) {
    return absl::InternalError("each rank needs one schedule");
  }
  return Simulation(shape, schedules, costs).Play();
}

}  // namespace atl::engine
