#include "worker/collective/testing/faulty_collective.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::collective {
namespace {

class FaultyCollective;

struct Fate {
  FaultPlan plan;
  int64_t call_count = 0;
  bool dead = false;
  std::vector<FaultyCollective*> groups;
};

class FaultyCollective : public Collective {
 public:
  FaultyCollective(std::unique_ptr<Collective> inner,
                   std::shared_ptr<Fate> fate)
      : rank_(inner->rank()),
        size_(inner->size()),
        name_(inner->name()),
        inner_(std::move(inner)),
        fate_(std::move(fate)) {
    fate_->groups.push_back(this);
  }
  ~FaultyCollective() override { std::erase(fate_->groups, this); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  absl::Status Run(const Call& call) override {
    RETURN_IF_ERROR(BeforeCall());
    return EndsLate() ? absl::OkStatus() : inner_->Run(call);
  }

  Pending Start(Call call) override {
    absl::Status status = BeforeCall();
    if (!status.ok()) return Pending(std::make_unique<Failed>(status));
    return EndsLate() ? Pending() : inner_->Start(std::move(call));
  }

  absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) override {
    RETURN_IF_ERROR(BeforeCall());
    (void)EndsLate();
    ASSIGN_OR_RETURN(std::unique_ptr<Collective> part,
                     inner_->Split(color, name));
    if (part == nullptr) return part;
    return std::unique_ptr<Collective>(
        std::make_unique<FaultyCollective>(std::move(part), fate_));
  }

  void Abort(absl::string_view reason) override {
    if (inner_ != nullptr) inner_->Abort(reason);
  }
  absl::Status status() const override {
    return inner_ != nullptr ? inner_->status() : absl::OkStatus();
  }

 private:
  class Failed : public Pending::Work {
   public:
    explicit Failed(absl::Status status) : status_(std::move(status)) {}
    absl::Status Wait() override { return status_; }

   private:
    const absl::Status status_;
  };

  absl::Status BeforeCall() {
    const int64_t call = fate_->call_count++;
    if (fate_->plan.before_call) fate_->plan.before_call(call);
    if (call == fate_->plan.die_at_call) {
      fate_->dead = true;
      for (FaultyCollective* group : fate_->groups) group->inner_ = nullptr;
    }
    if (!fate_->dead) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("rank ", rank_, " of ", name_,
                                               " was made to die at call ",
                                               fate_->plan.die_at_call));
  }

  // Returns whether the call that began last ends the world.
  bool EndsLate() {
    if (fate_->call_count - 1 != fate_->plan.end_late_at_call) return false;
    inner_->Abort("made to end late");
    return true;
  }

  const int rank_;
  const int size_;
  const std::string name_;
  std::unique_ptr<Collective> inner_;  // Null once dead.
  const std::shared_ptr<Fate> fate_;
};

}  // namespace

std::unique_ptr<Collective> MakeFaulty(std::unique_ptr<Collective> inner,
                                       FaultPlan plan) {
  auto fate = std::make_shared<Fate>();
  fate->plan = std::move(plan);
  return std::make_unique<FaultyCollective>(std::move(inner), std::move(fate));
}

}  // namespace atl::collective
