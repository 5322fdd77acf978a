#include "tests/benchmarks/timed_collective.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/status/status_macros.h"

namespace atl::collective {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(double* sum)
      : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    *sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                           start_)
                 .count();
  }

 private:
  double* sum_;
  std::chrono::steady_clock::time_point start_;
};

class TimedWork final : public Pending::Work {
 public:
  TimedWork(Pending pending, double* waited)
      : pending_(std::move(pending)), waited_(waited) {}

  absl::Status Wait() override {
    const Stopwatch stopwatch(waited_);
    return pending_.Wait();
  }

 private:
  Pending pending_;
  double* waited_;
};

class TimedCollective final : public Collective {
 public:
  TimedCollective(std::unique_ptr<Collective> inner, double* waited)
      : inner_(std::move(inner)), waited_(waited) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  void Abort(absl::string_view reason) override { inner_->Abort(reason); }
  absl::Status status() const override { return inner_->status(); }

  absl::Status Run(const Call& call) override {
    const Stopwatch stopwatch(waited_);
    return inner_->Run(call);
  }

  Pending Start(Call call) override {
    return Pending(
        std::make_unique<TimedWork>(inner_->Start(std::move(call)), waited_));
  }

  absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Collective> group,
                     inner_->Split(color, name));
    if (group == nullptr) return group;
    return MakeTimed(std::move(group), waited_);
  }

 private:
  std::unique_ptr<Collective> inner_;
  double* waited_;
};

}  // namespace

std::unique_ptr<Collective> MakeTimed(std::unique_ptr<Collective> inner,
                                      double* waited) {
  return std::make_unique<TimedCollective>(std::move(inner), waited);
}

}  // namespace atl::collective
