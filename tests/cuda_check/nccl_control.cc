#include "tests/cuda_check/device_checks.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"

namespace atl::engine::check {
namespace {

constexpr size_t kCount = 1 << 16;

absl::Status Nccl(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      what, ": ", ncclGetErrorString(result), ": ", ncclGetLastError(nullptr)));
}

absl::Status Cuda(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(cudaGetErrorString(error));
}

// Rank 0 makes the id. The others read it from the file at `path`.
absl::Status ShareId(int rank, const std::string& path, ncclUniqueId* id) {
  char* const bytes = reinterpret_cast<char*>(id);
  if (rank == 0) {
    RETURN_IF_ERROR(Nccl(ncclGetUniqueId(id), "ncclGetUniqueId"));
    std::ofstream(path + ".new", std::ios::binary).write(bytes, sizeof(*id));
    if (std::rename((path + ".new").c_str(), path.c_str()) == 0) return {};
    return absl::InternalError("cannot write the id");
  }
  // style-ok(call): another process writes the file.
  while (!std::filesystem::exists(path)) absl::SleepFor(absl::Milliseconds(5));
  if (std::ifstream(path, std::ios::binary).read(bytes, sizeof(*id))) return {};
  return absl::InternalError("cannot read the id");
}

class Control {
 public:
  absl::Status Join(const NcclRank& at) {
    RETURN_IF_ERROR(Cuda(cudaSetDevice(at.device)));
    ncclUniqueId id = {};
    RETURN_IF_ERROR(ShareId(at.rank, at.rendezvous, &id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;  // Blocking.
    RETURN_IF_ERROR(Nccl(
        ncclCommInitRankConfig(&comm_, at.size, id, at.rank, &config), "join"));
    RETURN_IF_ERROR(Cuda(cudaStreamCreate(&stream_)));
    return Cuda(
        cudaMalloc(reinterpret_cast<void**>(&data_), kCount * sizeof(float)));
  }

  // Each element of rank r is r + 1.
  absl::Status Sum(const NcclRank& at) {
    std::vector<float> values(kCount, at.rank + 1);
    const size_t bytes = kCount * sizeof(float);
    RETURN_IF_ERROR(
        Cuda(cudaMemcpy(data_, values.data(), bytes, cudaMemcpyDefault)));
    RETURN_IF_ERROR(Queue());
    RETURN_IF_ERROR(Cuda(cudaStreamSynchronize(stream_)));
    RETURN_IF_ERROR(
        Cuda(cudaMemcpy(values.data(), data_, bytes, cudaMemcpyDefault)));
    const std::vector<float> sums(kCount, at.size * (at.size + 1) / 2);
    return values == sums ? absl::OkStatus() : absl::InternalError("wrong sum");
  }

  // The dead rank's last call: all ranks have their sums once it has ended.
  absl::Status Die() {
    RETURN_IF_ERROR(Queue());
    RETURN_IF_ERROR(Cuda(cudaStreamSynchronize(stream_)));
    (void)raise(SIGKILL);
    return absl::InternalError("still alive");
  }

  // The dead rank takes part in the first call alone.
  absl::Status Abort() {
    for (int i = 0; i < 2; ++i) {
      Queue().IgnoreError();  // NCCL may know of the death already.
    }
    // style-ok(call): the peer is dead by then.
    absl::SleepFor(absl::Seconds(1));
    RETURN_IF_ERROR(Nccl(ncclCommAbort(comm_), "ncclCommAbort"));
    return Cuda(cudaStreamSynchronize(stream_));
  }

  absl::Status Leave() { return Nccl(ncclCommDestroy(comm_), "destroying it"); }

 private:
  absl::Status Queue() {
    return Nccl(
        ncclAllReduce(data_, data_, kCount, ncclFloat, ncclSum, comm_, stream_),
        "ncclAllReduce");
  }

  // The process ends after the control, which frees them.
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  float* data_ = nullptr;
};

}  // namespace

void ControlNccl(const NcclRank& at, bool kill, Report& report) {
  const std::string prefix =
      absl::StrCat("control of NCCL, ", at.size, " ranks, rank ", at.rank);
  Control control;
  if (!report.Control(prefix + ": join", [&] { return control.Join(at); }) ||
      !report.Control(prefix + ": sum", [&] { return control.Sum(at); })) {
    return;
  }
  if (!kill) {
    report.Control(prefix + ": end", [&] { return control.Leave(); });
  } else if (at.rank < at.size - 1) {
    report.Control(prefix + ": abort", [&] { return control.Abort(); });
  } else {
    report.Control(prefix + ": death", control.Die());
  }
}

}  // namespace atl::engine::check
