#include "tests/cuda_check/abort_check.h"

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/status/status_macros.h"
#include "worker/collective/call.h"
#include "worker/collective/collective.h"
#include "worker/collective/tcp/tcp_world.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/parallel/layout/mesh.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/layout/rank_groups.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine::check {
namespace {

using collective::Call;
using collective::Collective;
using collective::DataType;
using collective::Reduction;

constexpr absl::Duration kErrorLimit = absl::Seconds(10);
constexpr int64_t kCount = 1 << 20;  // Elements of a shard.
constexpr char kFatalGroup[] = "more";

// Ends the process at once.
absl::Status Die() {
  (void)raise(SIGKILL);
  return absl::InternalError("still alive");
}

// The control of a rank that dies in the Split of kFatalGroup: the others have
// agreed to the split, and now wait for this rank in NCCL's.
class DiesInSplit final : public Collective {
 public:
  explicit DiesInSplit(std::unique_ptr<Collective> inner)
      : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  absl::Status Run(const Call& call) override { return inner_->Run(call); }
  collective::Pending Start(Call call) override {
    return inner_->Start(std::move(call));
  }
  absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) override {
    auto group = inner_->Split(color, name);
    if (name == kFatalGroup) RETURN_IF_ERROR(Die());
    return group;
  }
  void Abort(absl::string_view reason) override { inner_->Abort(reason); }
  absl::Status status() const override { return inner_->status(); }

 private:
  const std::unique_ptr<Collective> inner_;
};

class Rank {
 public:
  Rank(const AbortCase& abort_case, bool is_victim)
      : place_(abort_case.place), is_victim_(is_victim) {}

  absl::Status Join(const NcclRank& at, Devices& devices) {
    ASSIGN_OR_RETURN(ops_, devices.MakeOps(at.rank, ComputeType::kF32, 1));
    ASSIGN_OR_RETURN(tcp_, MeetRanks(at));
    control_ = std::move(tcp_->TakeRanks()[0]);
    if (is_victim_ && place_ == AbortCase::kSplit) {
      control_ = std::make_unique<DiesInSplit>(std::move(control_));
    }
    ASSIGN_OR_RETURN(arena_, Arena::CreateFor(
                                 [this](Arena& arena) {
                                   shard_ = arena.Take<float>(kCount);
                                   whole_ = arena.Take<float>(2 * kCount);
                                 },
                                 ops_->memory()));
    ASSIGN_OR_RETURN(of_device_, devices.JoinWorld(*control_, *ops_));
    return absl::OkStatus();
  }

  absl::Status MakeGroups() {
    MeshOptions options;
    ASSIGN_OR_RETURN(options.mesh, Mesh::Parse("dp_shard=2,tp=2"));
    ASSIGN_OR_RETURN(groups_, MakeRankGroups(options, false, world()));
    return absl::OkStatus();
  }

  // Calls that all ranks finish.
  absl::Status CallTogether() {
    RETURN_IF_ERROR(Gather());
    RETURN_IF_ERROR(CallTp());
    return world().Barrier();
  }

  absl::Status DieInPlace() {
    switch (place_) {
      case AbortCase::kTp: {
        RETURN_IF_ERROR(Gather());
        const collective::Pending pending = groups_.tp->Start(TpCall());
        return Die();
      }
      case AbortCase::kSplit:
        return world().Split(0, kFatalGroup).status();
      case AbortCase::kHostWait:
        break;
    }
    return Die();
  }

  // The calls of the others, up to one that needs the dead rank.
  absl::Status CallTheDead() {
    switch (place_) {
      case AbortCase::kTp:
        // In the second turn the dead rank takes no part.
        for (int turn = 0; turn < 2; ++turn) {
          RETURN_IF_ERROR(Gather());
          RETURN_IF_ERROR(CallTp());
        }
        return world().Barrier();
      case AbortCase::kSplit: {
        ASSIGN_OR_RETURN(const auto more, world().Split(0, kFatalGroup));
        return more->Barrier();
      }
      case AbortCase::kHostWait:
        break;
    }
    RETURN_IF_ERROR(Wait(*groups_.reductions[0],
                         Call::ReduceScatter(DataType::kF32, Reduction::kSum,
                                             whole_, shard_, kCount)));
    RETURN_IF_ERROR(CallTp());
    WaitOnHost();
    return world().status();
  }

  // After the error.
  absl::Status CallLater() {
    WaitOnHost();
    if (world().status().ok()) {
      return absl::InternalError("the world's status is OK");
    }
    for (Collective* group : {&world(), groups_.gathers[0].get(),
                              groups_.reductions[0].get(), groups_.tp.get()}) {
      if (!group->Barrier().ok()) continue;
      return absl::InternalError(absl::StrCat(group->name(), " went on"));
    }
    return absl::OkStatus();
  }

 private:
  Collective& world() { return of_device_ ? *of_device_ : *control_; }

  // The device waits.
  static absl::Status Wait(Collective& group, const Call& call) {
    return group.Start(call).Wait();
  }
  absl::Status Gather() {
    return Wait(*groups_.gathers[0],
                Call::AllGather(DataType::kF32, shard_, whole_, kCount));
  }
  Call TpCall() {
    return Call::AllReduce(DataType::kF32, Reduction::kSum, whole_, whole_,
                           2 * kCount);
  }
  absl::Status CallTp() { return groups_.tp->Run(TpCall()); }
  void WaitOnHost() {
    float value;
    ops_->ReadValues(1, whole_, &value);
  }

  const AbortCase::Place place_;
  const bool is_victim_;
  // Each depends on those before it.
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<collective::TcpWorld> tcp_;
  std::unique_ptr<Collective> control_;
  Arena arena_;
  float* shard_ = nullptr;
  float* whole_ = nullptr;
  std::unique_ptr<Collective> of_device_;  // Null: the control itself.
  RankGroups groups_;
};

// Whether `status` came, and `spent` seconds after the death at most.
absl::Status HoldError(const absl::Status& status, absl::Duration spent) {
  if (status.code() != absl::StatusCode::kUnavailable) {
    return absl::InternalError(
        absl::StrCat("after the death: ", status.ToString()));
  }
  if (spent <= kErrorLimit) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("the error came after ", absl::FormatDuration(spent)));
}

}  // namespace

const std::vector<AbortCase>& AbortCases() {
  static const auto& cases = *new std::vector<AbortCase>{
      {AbortCase::kTp, "a", "(a) in tp behind a gather"},
      {AbortCase::kSplit, "b", "(b) in Split"},
      {AbortCase::kHostWait, "c", "(c) while the host waits"}};
  return cases;
}

void CheckAbort(const AbortCase& abort_case, const NcclRank& at,
                Devices& devices, absl::Duration grace, Report& report) {
  const std::string prefix =
      absl::StrCat("abort ", abort_case.name, ", rank ", at.rank, ": ");
  const auto check = [&](absl::string_view what,
                         absl::FunctionRef<absl::Status()> run) {
    return report.Check(absl::StrCat(prefix, what), run);
  };
  const bool is_victim = at.rank == at.size - 1;
  auto rank = std::make_unique<Rank>(abort_case, is_victim);
  if (!check("join", [&] { return rank->Join(at, devices); }) ||
      !check("groups", [&] { return rank->MakeGroups(); }) ||
      !check("calls together", [&] { return rank->CallTogether(); })) {
    return;
  }
  if (is_victim) {
    if (!check("last calls", [&] { return rank->CallTogether(); })) return;
    // style-ok(call): the others wait for this rank by then.
    absl::SleepFor(grace);
    return report.Check(prefix + "death", rank->DieInPlace());
  }
  check("error", [&] {
    const auto start = std::chrono::steady_clock::now();
    absl::Status status = rank->CallTogether();
    if (status.ok()) status = rank->CallTheDead();
    const absl::Duration spent =
        absl::FromChrono(std::chrono::steady_clock::now() - start) - grace;
    report.Measure(
        prefix + "error",
        {{"seconds_after_death", absl::StrCat(absl::ToDoubleSeconds(spent))},
         {"status", JsonString(status.ToString())}});
    return HoldError(status, spent);
  });
  check("later calls", [&] { return rank->CallLater(); });
  check("leaving", [&] {
    rank.reset();
    return absl::OkStatus();
  });
}

}  // namespace atl::engine::check
