// Checks a CUDA device: operations, models and codecs against the CPU, training
// speed, and NCCL and meshes between processes on one device.
//
// usage: cuda_check [--device=N] [--seed=N] [--steps=N]
//                   [--only=ops,model,codec,speed,nccl,mesh]
//
// Prints one JSON object a line, and finally `N passed, N failed`. Exit codes:
// 0 all passed, 1 a check failed, 2 wrong arguments, 3 no device. Only
// libcublasLt and libnccl must be in its own folder or on the linker's path.

#include <algorithm>
#include <cstdint>
#include <cstdio>
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
#include "base/codec/codec.h"
#include "worker/engine/cuda_check/attention_speed.h"
#include "worker/engine/cuda_check/codec_check.h"
#include "worker/engine/cuda_check/mesh_check.h"
#include "worker/engine/cuda_check/model_check.h"
#include "worker/engine/cuda_check/nccl_check.h"
#include "worker/engine/cuda_check/peak.h"
#include "worker/engine/cuda_check/ranks.h"
#include "worker/engine/cuda_check/report.h"
#include "worker/engine/cuda_check/speed.h"
#include "worker/engine/device/device_spec.h"
#include "worker/engine/device/devices.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/cuda_ops.h"
#include "worker/engine/ops/cuda/make_cuda_ops.h"
#include "worker/engine/ops/shapes.h"
#include "worker/engine/ops/testing/op_cases.h"

namespace atl::engine::check {
namespace {

constexpr int kMeshSteps = 20;
constexpr int kFailed = 1, kWrongArguments = 2, kNoDevice = 3;

struct Arguments {
  int device = 0;
  uint64_t seed = 0;
  int steps = 20;
  std::vector<std::string> only = {"ops",   "model", "codec",
                                   "speed", "nccl",  "mesh"};
  NcclRank rank;  // Of a child process: it has a rendezvous.
};

bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--device=")) {
      if (!absl::SimpleAtoi(argument, &arguments->device)) return false;
      if (arguments->device < 0) return false;
    } else if (absl::ConsumePrefix(&argument, "--seed=")) {
      if (!absl::SimpleAtoi(argument, &arguments->seed)) return false;
    } else if (absl::ConsumePrefix(&argument, "--steps=")) {
      if (!absl::SimpleAtoi(argument, &arguments->steps)) return false;
      if (arguments->steps < 1) return false;
    } else if (absl::ConsumePrefix(&argument, "--only=")) {
      const Arguments all;
      arguments->only = absl::StrSplit(argument, ',');
      for (const std::string& part : arguments->only) {
        if (std::find(all.only.begin(), all.only.end(), part) ==
            all.only.end()) {
          return false;
        }
      }
    } else if (absl::ConsumePrefix(&argument, "--rank=")) {
      const std::vector<std::string> parts = absl::StrSplit(argument, '/');
      if (parts.size() != 2 ||
          !absl::SimpleAtoi(parts[0], &arguments->rank.rank) ||
          !absl::SimpleAtoi(parts[1], &arguments->rank.size)) {
        return false;
      }
    } else if (absl::ConsumePrefix(&argument, "--rendezvous=")) {
      arguments->rank.rendezvous = std::string(argument);
    } else {
      return false;
    }
  }
  return true;
}

bool Wants(const Arguments& arguments, absl::string_view part) {
  return std::find(arguments.only.begin(), arguments.only.end(), part) !=
         arguments.only.end();
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
       MakeBf16Cases({.seed = arguments.seed, .small = false})) {
    if (!absl::StartsWith(op_case.name, "attention")) continue;
    report.Check(absl::StrCat("op bf16, own: ", op_case.name),
                 HoldOpCase(op_case, *ops));
  }
}

// Reports which library computes attention, if any.
void ReportAttentionLibrary(cuda::CudaOps& ops, Report& report) {
  const AttentionShape usual = {.batch = 1,
                                .sequence_length = 512,
                                .head_count = 4,
                                .kv_head_count = 4,
                                .head_dim = 128};
  const auto library = ops.AttentionLibrary(usual);
  report.Measure("attention library",
                 {{"found", library.ok() ? "true" : "false"},
                  {"name", JsonString(library.ok() ? *library : "")},
                  {"error", JsonString(library.status().message())}});
}

void CheckOps(const Arguments& arguments, Report& report) {
  const OpCaseOptions options = {.seed = arguments.seed, .small = false};
  for (ComputeType compute : {ComputeType::kF32, ComputeType::kBf16}) {
    const bool is_f32 = compute == ComputeType::kF32;
    const auto ops = MakeOps(arguments, compute, report);
    if (ops == nullptr) return;
    if (!is_f32) ReportAttentionLibrary(*ops, report);
    for (const OpCase& op_case :
         is_f32 ? MakeOpCases(options) : MakeBf16Cases(options)) {
      report.Check(
          absl::StrCat(is_f32 ? "op f32: " : "op bf16: ", op_case.name),
          HoldOpCase(op_case, *ops));
    }
  }
  CheckOwnAttention(arguments, report);
}

void CheckModels(const Arguments& arguments, Report& report) {
  for (ComputeType compute : {ComputeType::kF32, ComputeType::kBf16}) {
    const bool is_f32 = compute == ComputeType::kF32;
    for (const ModelCase& model_case : ModelCases()) {
      const auto ops = MakeOps(arguments, compute, report);
      if (ops == nullptr) return;
      report.Check(absl::StrCat(is_f32 ? "model f32: " : "model bf16: ",
                                model_case.name),
                   CheckModel(model_case, arguments.seed, compute, *ops));
      if (model_case.config.is_mixture()) continue;
      absl::Status replayed = CheckReplay(model_case, arguments.seed, *ops);
      if (replayed.ok() && ops->replay_count() == 0) {
        replayed = absl::InternalError("no step was replayed");
      }
      report.Check(absl::StrCat(is_f32 ? "graph f32: " : "graph bf16: ",
                                model_case.name),
                   replayed);
    }
  }
}

void CheckCodecs(const Arguments& arguments, Report& report) {
  const auto ops = MakeOps(arguments, ComputeType::kF32, report);
  if (ops == nullptr) return;
  for (codec::CodecId id : codec::AllCodecs()) {
    report.Check(absl::StrCat("codec ", codec::CodecName(id)),
                 CheckCodec(id, arguments.seed, *ops));
  }
}

void CheckSpeed(const Arguments& arguments, Report& report) {
  for (const SpeedShape& shape : SpeedShapes()) {
    for (const bool fused : {true, false}) {
      const auto ops = MakeOps(arguments, ComputeType::kBf16, report,
                               {.fused_attention = fused});
      if (ops == nullptr) return;
      report.Check(
          absl::StrCat("attention of ", shape.name, fused ? "" : ", own"),
          MeasureAttention(shape, *ops, report));
    }
    for (ComputeType compute : {ComputeType::kF32, ComputeType::kBf16}) {
      for (const bool graphs : {false, true}) {
        const auto ops =
            MakeOps(arguments, compute, report, {.graphs = graphs});
        if (ops == nullptr) return;
        report.Check(
            absl::StrCat("speed of ", shape.name, graphs ? " with graphs" : ""),
            MeasureSpeed(
                shape, compute, arguments.steps,
                [&] { return MeasurePeak(compute, *ops); }, *ops, report));
      }
    }
  }
}

// One rank's part of the mesh checks on this device.
void CheckMeshesOnDevice(const Arguments& arguments, Report& report) {
  const auto tcp = MeetRanks(arguments.rank);
  if (!tcp.ok()) return report.Check("meeting", tcp.status());
  const auto devices =
      OpenDevices({DeviceKind::kCuda, arguments.rank.device, /*graphs=*/true});
  if (!devices.ok()) return report.Check("devices", devices.status());
  const auto world = std::move((*tcp)->TakeRanks()[0]);
  CheckMeshes(*world, **devices, arguments.seed, kMeshSteps, report);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  arguments.seed = std::random_device()();
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: cuda_check [--device=N] [--seed=N] [--steps=N] "
                 "[--only=ops,model,codec,speed,nccl,mesh]\n");
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
    if (Wants(arguments, "mesh")) {
      CheckMeshesOnDevice(arguments, report);
    } else {
      CheckNccl(arguments.rank, report);
    }
    return report.failed() > 0 ? kFailed : 0;
  }
  report.Measure("device", {{"found", "true"},
                            {"count", absl::StrCat(*devices)},
                            {"seed", absl::StrCat(arguments.seed)}});
  if (Wants(arguments, "ops")) CheckOps(arguments, report);
  if (Wants(arguments, "model")) CheckModels(arguments, report);
  if (Wants(arguments, "codec")) CheckCodecs(arguments, report);
  for (const char* part : {"nccl", "mesh"}) {
    if (!Wants(arguments, part)) continue;
    for (int size : {2, 4}) {
      RunNcclRanks(size, arguments.device, part, arguments.seed, report);
    }
  }
  if (Wants(arguments, "speed")) CheckSpeed(arguments, report);
  report.PrintTotals();
  return report.failed() > 0 ? kFailed : 0;
}

}  // namespace
}  // namespace atl::engine::check

int main(int argc, char** argv) { return atl::engine::check::Main(argc, argv); }
