// The check itself, over CPU ranks: this program starts itself as each of them.

#include "tests/cuda_check/abort_check.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"
#include "gtest/gtest.h"
#include "tests/cuda_check/ranks.h"
#include "tests/cuda_check/report.h"
#include "worker/collective/collective.h"
#include "worker/engine/device/cpu_devices.h"

namespace atl::engine::check {
namespace {

using collective::Call;
using collective::Collective;

constexpr int kSize = 4;

// A world that takes the results of ended calls for good ones.
class Careless final : public Collective {
 public:
  Careless(Collective& inner, std::unique_ptr<Collective> own)
      : own_(std::move(own)), inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  absl::Status Run(const Call& call) override {
    inner_.Run(call).IgnoreError();
    return absl::OkStatus();
  }
  collective::Pending Start(Call call) override {
    inner_.Start(std::move(call)).Wait().IgnoreError();
    return {};
  }
  absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) override {
    ASSIGN_OR_RETURN(auto group, inner_.Split(color, name));
    Collective& made = *group;
    return std::make_unique<Careless>(made, std::move(group));
  }
  void Abort(absl::string_view reason) override { inner_.Abort(reason); }

 private:
  const std::unique_ptr<Collective> own_;
  Collective& inner_;
};

class CarelessDevices final : public Devices {
 public:
  DeviceKind kind() const override { return CpuDevices().kind(); }
  absl::StatusOr<DeviceDescription> Describe(int rank) const override {
    return CpuDevices().Describe(rank);
  }
  absl::Status CheckRanks(int, int) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Ops>> MakeOps(int rank, ComputeType compute,
                                               int threads) override {
    return CpuDevices().MakeOps(rank, compute, threads);
  }
  absl::StatusOr<std::unique_ptr<Collective>> JoinWorld(Collective& control,
                                                        Ops&) override {
    return std::make_unique<Careless>(control, nullptr);
  }
};

int Child(int argc, char** argv) {
  NcclRank at = {.size = kSize};
  int abort_case = 0;
  CarelessDevices careless;
  Devices* devices = &CpuDevices();
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--careless") devices = &careless;
    if (absl::ConsumePrefix(&argument, "--rank=")) at.rank = argument[0] - '0';
    if (absl::ConsumePrefix(&argument, "--rendezvous=")) {
      at.rendezvous = std::string(argument);
    }
    if (absl::ConsumePrefix(&argument, "--case=") &&
        !absl::SimpleAtoi(argument, &abort_case)) {
      return 2;
    }
  }
  Report report(stdout);
  CheckAbort(AbortCases()[abort_case], at, *devices, absl::ZeroDuration(),
             report);
  return report.failed() > 0 ? 1 : 0;
}

// Runs all cases; expects these counts of each.
void ExpectOfAll(const char* flag, int passed, int failed) {
  for (int i = 0; i < static_cast<int>(AbortCases().size()); ++i) {
    char* text = nullptr;
    size_t size = 0;
    std::FILE* const out = open_memstream(&text, &size);
    Report report(out);
    RunRanks({.name = "abort",
              .size = kSize,
              .flags = {absl::StrCat("--case=", i), flag},
              .victim = kSize - 1},
             report);
    std::fclose(out);
    const std::string all(text, size);
    std::free(text);
    EXPECT_EQ(report.passed(), passed) << all;
    EXPECT_EQ(report.failed(), failed) << all;
  }
}

// 6 checks of each survivor, 4 of the victim, and the ends of all.
constexpr int kChecks = 3 * 6 + 4 + kSize;

TEST(AbortCheckTest, CpuRanksPass) { ExpectOfAll("", kChecks, 0); }

TEST(AbortCheckTest, ResultsThatAreOkAfterTheDeathFail) {
  // "error" and "later calls" of each survivor.
  ExpectOfAll("--careless", kChecks - 6, 6);
}

}  // namespace
}  // namespace atl::engine::check

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]).rfind("--rank=", 0) == 0) {
    return atl::engine::check::Child(argc, argv);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
