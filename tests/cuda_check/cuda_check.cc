// Checks a CUDA device: operations, models and codecs against the CPU, training
// against PyTorch's golden values, its speed, and NCCL and meshes between processes on one device,
// also when one of the processes is killed.
//
// usage: cuda_check [--only=ops,model,golden,codec,abort,nccl,mesh,speed]
//                   [--device=N] [--seed=N] [--small] [--steps=N] [--shapes=124m,1b]
//                   [--dtypes=f32,bf16] [--graphs=on|off] [--ranks=2,4]
//                   [--mesh-steps=N]
//
// --small takes small shapes in ops, and one model; it leaves out the check that
// libraries compute the shapes of speed. --steps, --shapes, --dtypes and
// --graphs are of speed. --ranks are of nccl and mesh; abort has 4.
//
// Ranks that share a device may be more than NCCL can do. So a control of NCCL
// alone runs before each part with ranks. If it fails, the part is "not possible
// on one GPU".
//
// Prints one JSON object a line, and finally `N passed, N failed`. Exit codes:
// 0 all passed, 1 a check failed, 2 wrong arguments, 3 no device, 4 a part is
// not possible on one GPU. Only libcublasLt and libnccl must be in its own
// folder or on the linker's path.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/codec/codec.h"
#include "base/status/status_macros.h"
#include "tests/cuda_check/abort_check.h"
#include "tests/cuda_check/device_checks.h"
#include "tests/cuda_check/mesh_check.h"
#include "tests/cuda_check/model_check.h"
#include "tests/cuda_check/ranks.h"
#include "tests/cuda_check/report.h"
#include "tests/cuda_check/speed.h"
#include "worker/engine/device/device_spec.h"
#include "worker/engine/device/devices.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/cuda_ops.h"
#include "worker/engine/ops/cuda/make_cuda_ops.h"
#include "worker/engine/ops/testing/op_cases.h"

namespace atl::engine::check {
namespace {

constexpr int kFailed = 1, kWrongArguments = 2, kNoDevice = 3,
              kNotPossible = 4;
constexpr absl::Duration kControlLimit = absl::Seconds(20);
constexpr absl::Duration kAbortGrace = absl::Seconds(1);

struct Arguments {
  int device = 0;
  uint64_t seed = 0;
  int steps = 20;
  int mesh_steps = 20;
  bool small = false;
  std::vector<std::string> only = {"ops",   "model", "golden", "codec",
                                   "abort", "nccl",  "mesh",   "speed"};
  std::vector<std::string> shapes = {"124m", "1b"};
  std::vector<std::string> dtypes = {"f32", "bf16"};
  std::vector<std::string> graphs = {"off", "on"};
  std::vector<std::string> ranks = {"2", "4"};
  // Set in a child process, which is one rank.
  NcclRank rank;  // It has a rendezvous.
  bool control = false;
  std::string abort_case;
};

bool ParseCount(absl::string_view text, int least, int* to) {
  return absl::SimpleAtoi(text, to) && *to >= least;
}

// A part of `all`, its default; false: another word.
bool ParsePart(absl::string_view text, std::vector<std::string>* all) {
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  for (const std::string& word : words) {
    if (std::find(all->begin(), all->end(), word) == all->end()) return false;
  }
  *all = words;
  return true;
}

bool ParseRank(absl::string_view text, NcclRank* to) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &to->rank) &&
         absl::SimpleAtoi(parts[1], &to->size);
}

bool ParseOne(absl::string_view argument, Arguments* to) {
  const auto is = [&](absl::string_view flag) {
    return absl::ConsumePrefix(&argument, absl::StrCat("--", flag, "="));
  };
  if (argument == "--small") return to->small = true;
  if (argument == "--control") return to->control = true;
  if (is("device")) return ParseCount(argument, 0, &to->device);
  if (is("seed")) return absl::SimpleAtoi(argument, &to->seed);
  if (is("steps")) return ParseCount(argument, 1, &to->steps);
  if (is("mesh-steps")) return ParseCount(argument, 1, &to->mesh_steps);
  if (is("only")) return ParsePart(argument, &to->only);
  if (is("shapes")) return ParsePart(argument, &to->shapes);
  if (is("dtypes")) return ParsePart(argument, &to->dtypes);
  if (is("graphs")) return ParsePart(argument, &to->graphs);
  if (is("ranks")) return ParsePart(argument, &to->ranks);
  if (is("rank")) return ParseRank(argument, &to->rank);
  if (is("abort-case")) {
    to->abort_case = std::string(argument);
    return true;
  }
  if (!is("rendezvous")) return false;
  to->rank.rendezvous = std::string(argument);
  return true;
}

bool Has(const std::vector<std::string>& words, absl::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool Wants(const Arguments& arguments, absl::string_view part) {
  return Has(arguments.only, part);
}

// New operations, so one check's error does not affect the next. On failure
// reports a failed check and returns null.
std::unique_ptr<cuda::CudaOps> MakeOps(const Arguments& arguments,
                                       ComputeType compute, Report& report,
                                       const cuda::CudaOptions& options = {}) {
  auto ops = cuda::MakeCudaOps(arguments.device, compute, options);
  if (ops.ok()) return std::move(*ops);
  report.Check("making operations", ops.status());
  return nullptr;
}

// Our bf16 attention kernel. In the other cases a library may have replaced it.
void CheckOwnAttention(const Arguments& arguments, Report& report) {
  const auto ops = MakeOps(arguments, ComputeType::kBf16, report,
                           {.fused_attention = false});
  if (ops == nullptr) return;
  for (const OpCase& op_case :
       MakeBf16Cases({.seed = arguments.seed, .small = arguments.small})) {
    if (!absl::StartsWith(op_case.name, "attention")) continue;
    report.Check(absl::StrCat("op bf16, own: ", op_case.name),
                 [&] { return HoldOpCase(op_case, *ops); });
  }
}

void CheckOps(const Arguments& arguments, Report& report) {
  const OpCaseOptions options = {.seed = arguments.seed,
                                 .small = arguments.small};
  for (ComputeType compute : {ComputeType::kF32, ComputeType::kBf16}) {
    const bool is_f32 = compute == ComputeType::kF32;
    const auto ops = MakeOps(arguments, compute, report);
    if (ops == nullptr) return;
    if (!is_f32) CheckCudnn(report);
    for (const OpCase& op_case :
         is_f32 ? MakeOpCases(options) : MakeBf16Cases(options)) {
      report.Check(
          absl::StrCat(is_f32 ? "op f32: " : "op bf16: ", op_case.name),
          [&] { return HoldOpCase(op_case, *ops); });
    }
    if (arguments.small) continue;
    CheckFallbacks(
        compute, [&] { return MakeOps(arguments, compute, report); }, report);
  }
  CheckOwnAttention(arguments, report);
}

void CheckModels(const Arguments& arguments, Report& report) {
  for (ComputeType compute : {ComputeType::kF32, ComputeType::kBf16}) {
    const bool is_f32 = compute == ComputeType::kF32;
    for (const ModelCase& model_case : ModelCases()) {
      const auto ops = MakeOps(arguments, compute, report);
      if (ops == nullptr) return;
      report.Check(
          absl::StrCat(is_f32 ? "model f32: " : "model bf16: ",
                       model_case.name),
          [&] {
            return CheckModel(model_case, arguments.seed, compute, *ops);
          });
      if (model_case.config.is_mixture()) continue;
      report.Check(
          absl::StrCat(is_f32 ? "graph f32: " : "graph bf16: ",
                       model_case.name),
          [&]() -> absl::Status {
            RETURN_IF_ERROR(CheckReplay(model_case, arguments.seed, *ops));
            if (ops->replay_count() > 0) return absl::OkStatus();
            return absl::InternalError("no step was replayed");
          });
      if (arguments.small) break;
    }
  }
}

void CheckCodecs(const Arguments& arguments, Report& report) {
  const auto ops = MakeOps(arguments, ComputeType::kF32, report);
  if (ops == nullptr) return;
  for (codec::CodecId id : codec::AllCodecs()) {
    report.Check(absl::StrCat("codec ", codec::CodecName(id)),
                 [&] { return CheckCodec(id, arguments.seed, *ops); });
  }
}

void CheckSpeed(const Arguments& arguments, Report& report) {
  for (const SpeedShape& shape : SpeedShapes()) {
    if (!Has(arguments.shapes, shape.name)) continue;
    const std::vector<float> parameters = DrawParameters(shape);
    for (const bool fused : {true, false}) {
      if (!Has(arguments.dtypes, "bf16")) continue;
      const auto ops = MakeOps(arguments, ComputeType::kBf16, report,
                               {.fused_attention = fused});
      if (ops == nullptr) return;
      report.Check(
          absl::StrCat("attention of ", shape.name, fused ? "" : ", own"),
          [&] { return MeasureAttention(shape, *ops, report); });
    }
    for (ComputeType compute : {ComputeType::kF32, ComputeType::kBf16}) {
      const bool is_f32 = compute == ComputeType::kF32;
      if (!Has(arguments.dtypes, is_f32 ? "f32" : "bf16")) continue;
      for (const bool graphs : {false, true}) {
        if (!Has(arguments.graphs, graphs ? "on" : "off")) continue;
        const auto ops =
            MakeOps(arguments, compute, report, {.graphs = graphs});
        if (ops == nullptr) return;
        report.Check(absl::StrCat("speed of ", shape.name,
                                  is_f32 ? " f32" : " bf16",
                                  graphs ? " with graphs" : ""),
                     [&] {
                       return MeasureSpeed(shape, compute, arguments.steps,
                                           parameters, *ops, report);
                     });
      }
    }
  }
}

// One rank's part of the mesh or abort checks on this device.
void CheckOnDevice(const Arguments& arguments, Report& report) {
  const auto devices =
      OpenDevices({DeviceKind::kCuda, arguments.rank.device, /*graphs=*/true});
  if (!devices.ok()) return report.Check("devices", devices.status());
  for (const AbortCase& abort_case : AbortCases()) {
    if (arguments.abort_case != abort_case.flag) continue;
    return CheckAbort(abort_case, arguments.rank, **devices, kAbortGrace,
                      report);
  }
  const auto tcp = MeetRanks(arguments.rank);
  if (!tcp.ok()) return report.Check("meeting", tcp.status());
  const auto world = std::move((*tcp)->TakeRanks()[0]);
  CheckMeshes(*world, **devices, arguments.seed, arguments.mesh_steps, report);
}

void CheckRank(const Arguments& arguments, Report& report) {
  if (arguments.control) {
    ControlNccl(arguments.rank, Wants(arguments, "abort"), report);
  } else if (Wants(arguments, "nccl")) {
    CheckNccl(arguments.rank, report);
  } else {
    CheckOnDevice(arguments, report);
  }
}

// Returns whether NCCL alone passes. Else reports that `part` is not possible.
bool PassesControl(const RankRun& part, Report& report) {
  std::string folder = "/tmp/cuda_check-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    report.Check(part.name, absl::InternalError("no folder for NCCL's id"));
    return false;
  }
  RankRun control = part;
  control.name = absl::StrCat("control of NCCL, ", part.size, " ranks");
  control.flags.push_back("--control");
  control.rendezvous = folder + "/id";
  control.is_control = true;
  control.limit = kControlLimit;
  const int before = report.not_possible();
  RunRanks(control, report);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (report.not_possible() == before) return true;
  report.Control(part.name, absl::UnavailableError("its control has failed"));
  return false;
}

// The parts with ranks, each after its control.
void CheckRanks(const Arguments& arguments, Report& report) {
  if (Wants(arguments, "abort")) {
    RankRun run = {.name = "abort",
                   .size = 4,
                   .device = arguments.device,
                   .flags = {"--only=abort"},
                   .victim = 3};
    if (PassesControl(run, report)) {
      for (const AbortCase& abort_case : AbortCases()) {
        run.name = absl::StrCat("abort ", abort_case.name);
        run.flags = {"--only=abort",
                     absl::StrCat("--abort-case=", abort_case.flag)};
        RunRanks(run, report);
      }
    }
  }
  for (const char* part : {"nccl", "mesh"}) {
    if (!Wants(arguments, part)) continue;
    for (const int size : {2, 4}) {
      if (!Has(arguments.ranks, absl::StrCat(size))) continue;
      const RankRun run = {
          .name = absl::StrCat(part, " ", size, " ranks"),
          .size = size,
          .device = arguments.device,
          .flags = {absl::StrCat("--only=", part),
                    absl::StrCat("--seed=", arguments.seed),
                    absl::StrCat("--mesh-steps=", arguments.mesh_steps)}};
      if (PassesControl(run, report)) RunRanks(run, report);
    }
  }
}

int Main(int argc, char** argv) {
  Arguments arguments;
  arguments.seed = std::random_device()();
  for (int i = 1; i < argc; ++i) {
    if (ParseOne(argv[i], &arguments)) continue;
    std::fprintf(stderr,
                 "cuda_check: %s is not known\n"
                 "usage: cuda_check "
                 "[--only=ops,model,golden,codec,abort,nccl,mesh,speed]\n"
                 "    [--device=N] [--seed=N] [--small] [--steps=N] [--shapes=124m,1b] "
                 "[--dtypes=f32,bf16]\n"
                 "    [--graphs=on|off] [--ranks=2,4] [--mesh-steps=N]\n",
                 argv[i]);
    return kWrongArguments;
  }
  Report report(stdout);
  const auto devices = cuda::DeviceCount();
  if (!devices.ok() || arguments.device >= *devices) {
    report.Measure(
        "device",
        {{"found", "false"},
         {"error", JsonString(devices.ok() ? "there is no such device"
                                           : devices.status().message())}});
    report.PrintTotals();
    return kNoDevice;
  }
  if (!arguments.rank.rendezvous.empty()) {
    arguments.rank.device = arguments.device;
    CheckRank(arguments, report);
    return report.failed() > 0 ? kFailed : 0;
  }
  report.Measure("device", {{"found", "true"},
                            {"count", absl::StrCat(*devices)},
                            {"seed", absl::StrCat(arguments.seed)}});
  if (Wants(arguments, "ops")) CheckOps(arguments, report);
  if (Wants(arguments, "model")) CheckModels(arguments, report);
  if (Wants(arguments, "golden")) CheckGolden(arguments.device, report);
  if (Wants(arguments, "codec")) CheckCodecs(arguments, report);
  CheckRanks(arguments, report);
  if (Wants(arguments, "speed")) CheckSpeed(arguments, report);
  report.PrintTotals();
  if (report.failed() > 0) return kFailed;
  return report.not_possible() > 0 ? kNotPossible : 0;
}

}  // namespace
}  // namespace atl::engine::check

int main(int argc, char** argv) { return atl::engine::check::Main(argc, argv); }
