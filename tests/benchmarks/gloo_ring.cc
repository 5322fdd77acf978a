// One peer of Gloo's ring allreduce over loopback TCP, for the round benchmark:
// the mean of a f32 vector, without a server and without an outer step.
//
//     gloo_ring --index=0 --island-count=2 --mib=256 --rendezvous=DIR
//
// Follows orders on standard input: "go V" plays a round and answers "done";
// "sum" runs only the ring, without the mean; "check V" answers "ok" or the
// fault of the mean.

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cmath>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "base/flags/flags.h"
#include "tests/benchmarks/vectors.h"

namespace atl::benchmarks {
namespace {

struct Flags {
  int index = 0;
  int island_count = 2;
  size_t mib = 256;
  std::string rendezvous;
};

void Add(void* out, const void* a, const void* b, size_t count) {
  auto* sum = static_cast<float*>(out);
  const auto* left = static_cast<const float*>(a);
  const auto* right = static_cast<const float*>(b);
  for (size_t i = 0; i < count; ++i) sum[i] = left[i] + right[i];
}

class Peer {
 public:
  explicit Peer(const Flags& flags)
      : flags_(flags),
        vector_(MakeVector(flags.mib << 18)),
        mean_(MakeVector(flags.mib << 18)) {
    FillGradient(flags.index, vector_);
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(address);
    context_ = std::make_shared<gloo::rendezvous::Context>(flags.index,
                                                           flags.island_count);
    gloo::rendezvous::FileStore store(flags.rendezvous);
    context_->connectFullMesh(store, device);
  }

  void Sum() {
    gloo::AllreduceOptions options(context_);
    options.setInput(vector_.data(), vector_.size());
    options.setOutput(mean_.data(), mean_.size());
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(&Add);
    gloo::allreduce(options);
  }

  void PlayRound() {
    Sum();
    const float share = 1.0f / static_cast<float>(flags_.island_count);
    for (float& element : mean_) element *= share;
  }

  std::string Check() const {
    // The mean of (i + 1) * 1e-3 over the islands, and the element's own part.
    const double first = 1e-3 * (flags_.island_count + 1) / 2;
    for (size_t e = 0; e < mean_.size(); e += 997) {
      const double expected = first + (e % 1000) * 1e-6;
      if (!(std::abs(mean_[e] - expected) <= 1e-5 * expected)) {
        return "element " + std::to_string(e) + " is " +
               std::to_string(mean_[e]) + ", not " + std::to_string(expected);
      }
    }
    return "ok";
  }

 private:
  const Flags flags_;
  const absl::Span<float> vector_;
  const absl::Span<float> mean_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

int Main(int argc, char** argv) {
  Flags flags;
  flags::Command app("gloo_ring", "A peer of Gloo's ring.");
  app.Add("--index", flags.index);
  app.Add("--island-count", flags.island_count);
  app.Add("--mib", flags.mib);
  app.Add("--rendezvous", flags.rendezvous, "An empty directory").Required();
  if (const auto end = app.ParseOrEnd(argc, argv)) return *end;
  try {
    Peer peer(flags);
    std::cout << "ready" << std::endl;
    std::string order;
    while (std::getline(std::cin, order)) {
      if (absl::StartsWith(order, "check")) {
        std::cout << peer.Check() << std::endl;
        continue;
      }
      if (order == "sum") {
        peer.Sum();
      } else {
        peer.PlayRound();
      }
      std::cout << "done" << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << "gloo_ring: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
