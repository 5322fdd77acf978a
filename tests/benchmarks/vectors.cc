#include "tests/benchmarks/vectors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/check.h"

namespace atl::benchmarks {
namespace {

double Gradient(int index, size_t element) {
  return (index + 1) * 1e-3 + (element % 1000) * 1e-6;
}

}  // namespace

absl::Span<float> MakeVector(size_t element_count) {
  // An odd number of huge pages. Lines 256 MiB apart alias in the first-level
  // cache of some processors (server/store/version_image.cc lists them), and a
  // loop over two such vectors takes up to thirteen times as long.
  constexpr size_t kHugePageBytes = 2 << 20;
  const size_t bytes =
      ((element_count * sizeof(float) + kHugePageBytes - 1) / kHugePageBytes |
       1) *
      kHugePageBytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED) << "no memory for " << bytes << " bytes";
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, element_count * sizeof(float));
  return absl::MakeSpan(static_cast<float*>(memory), element_count);
}

absl::Span<float> MapVector(const std::string& path, size_t element_count) {
  const size_t bytes = element_count * sizeof(float);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(file >= 0) << "cannot open " << path;
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  CHECK(memory != MAP_FAILED) << "cannot map " << bytes << " bytes of " << path;
  return absl::MakeSpan(static_cast<float*>(memory), element_count);
}

void FillGradient(int index, absl::Span<float> out) {
  for (size_t e = 0; e < out.size(); ++e) {
    out[e] = static_cast<float>(Gradient(index, e));
  }
}

std::string CheckParameters(absl::Span<const float> parameters,
                            int island_count, int64_t round_count,
                            double tolerance) {
  for (size_t e = 0; e < parameters.size(); e += 997) {
    double mean = 0;
    for (int i = 0; i < island_count; ++i) mean += Gradient(i, e);
    mean /= island_count;
    double theta = 0;
    double momentum = 0;
    for (int64_t round = 0; round < round_count; ++round) {
      momentum = kMomentum * momentum + mean;
      theta -= kLearningRate * (mean + kMomentum * momentum);
    }
    const double limit = tolerance * (std::abs(theta) + 1e-3);
    if (!(std::abs(parameters[e] - theta) <= limit)) {
      return absl::StrCat("element ", e, " is ", parameters[e], " and not ",
                          theta, " after ", round_count, " rounds of ",
                          island_count, " islands");
    }
  }
  return "";
}

}  // namespace atl::benchmarks
