// One-way push of a 256 MiB fragment over loopback, beside a raw TCP socket that
// moves as many bytes in the same process: interleaved, medians.
//
// The server takes messages as slices and throws them away: what is measured is
// the client (cut, checksum, encode) and gRPC. One JSON object a case.

#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "atoll/v1/parameter_service.grpc.pb.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/listener.h"
#include "server/client/parameter_client.h"

namespace atl::server {
namespace {

constexpr int64_t kElements = int64_t{64} << 20;
constexpr int kRepetitions = 9;

void Require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "push_benchmark: %s\n", what);
  std::exit(1);
}

// Says that it misses everything, reads it, says that it is stored.
class Sink : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Sink(int64_t block_count, bool check)
      : block_count_(block_count), check_(check) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    v1::PushOuterGradientResponse response;
    if (!ok) {
      response.set_stored(true);
      answer_ = rpc::EncodeMessage(response);
      StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
      return;
    }
    if (!started_) {
      started_ = true;
      v1::BlockRange* range = response.add_missing();
      range->set_end(block_count_);
      answer_ = rpc::EncodeMessage(response);
      StartWrite(&answer_);
    } else {
      rpc::ReceivedChunk chunk;
      Require(rpc::DecodePlainChunk(message_, &chunk), "not a chunk");
      if (check_) Require(rpc::CheckCrc32c(chunk).ok(), "a wrong checksum");
    }
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  const int64_t block_count_;
  const bool check_;
  bool started_ = false;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
};

class SinkService : public v1::ParameterService::
                        WithRawCallbackMethod_PushOuterGradient<
                            v1::ParameterService::Service> {
 public:
  SinkService(int64_t block_count, bool check)
      : block_count_(block_count), check_(check) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
  PushOuterGradient(grpc::CallbackServerContext*) override {
    return new Sink(block_count_, check_);
  }

 private:
  const int64_t block_count_;
  const bool check_;
};

// A socket that a thread reads 1 MiB at a time.
class RawTcp {
 public:
  RawTcp() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    Require(bind(listener, generic, size) == 0 && listen(listener, 1) == 0 &&
                getsockname(listener, generic, &size) == 0,
            "listen");
    out_ = socket(AF_INET, SOCK_STREAM, 0);
    Require(connect(out_, generic, size) == 0, "connect");
    in_ = accept(listener, nullptr, nullptr);
    Require(in_ >= 0, "accept");
    close(listener);
  }

  void Move(const char* data, int64_t bytes) {
    std::thread reader([&] {
      std::vector<char> buffer(1 << 20);
      for (int64_t left = bytes; left > 0;) {
        const ssize_t count = read(in_, buffer.data(), buffer.size());
        Require(count > 0, "read");
        left -= count;
      }
    });
    for (int64_t sent = 0; sent < bytes;) {
      const ssize_t count =
          write(out_, data + sent, std::min<int64_t>(1 << 20, bytes - sent));
      Require(count > 0, "write");
      sent += count;
    }
    reader.join();
  }

 private:
  int in_ = -1;
  int out_ = -1;
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec +
                                    usage.ru_stime.tv_usec);
}

struct Sample {
  std::vector<double> seconds;
  double cpu_seconds = 0;
  double Median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

template <typename Work>
void Take(Sample& sample, Work work) {
  const double cpu = CpuSeconds();
  const absl::Time begin = absl::Now();
  work();
  sample.seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
  sample.cpu_seconds += CpuSeconds() - cpu;
}

int Main() {
  // As programs that receive bulk do: big slices stay in the process.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2000000000);
  v1::Layout spec;
  spec.set_fragment_count(1);
  v1::TensorSpec* tensor = spec.add_tensors();
  tensor->set_name("t");
  tensor->add_shape(kElements);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  const RunLayout layout = *RunLayout::Create(spec);
  std::vector<float> elements(kElements);
  for (int64_t i = 0; i < kElements; ++i) elements[i] = static_cast<float>(i);
  RawTcp raw;
  for (const bool check : {false, true}) {
    SinkService service(layout.fragment_block_count(0), check);
    rpc::RpcServer::Spec server_spec;
    server_spec.services = {&service};
    server_spec.message_bytes_max = rpc::kDataMessageBytesMax;
    const auto server = *rpc::RpcServer::Start(server_spec);
    ParameterClientOptions options;
    options.run_id = "run";
    options.shard_count = 1;
    const auto client = *MakeParameterClient(options, layout);
    v1::ShardPlacement placement;
    placement.set_address(server->address());
    client->SetRoutes({1, {placement}});
    v1::ContributionInfo info;
    info.mutable_key()->set_seq(1);
    info.set_codec(v1::CODEC_F32);
    Sample ours;
    Sample theirs;
    for (int i = -1; i < kRepetitions; ++i) {
      Sample warm_up;
      Take(i < 0 ? warm_up : ours, [&] {
        Require(client->Push(info, elements, {}).status.ok(), "push");
      });
      Take(i < 0 ? warm_up : theirs, [&] {
        raw.Move(reinterpret_cast<const char*>(elements.data()),
                 kElements * 4);
      });
    }
    const double gigabytes = kElements * 4e-9;
    std::printf(
        "{\"case\": \"push_one_way\", \"server_checks\": %s, "
        "\"of_raw\": %.3f, \"ours_gb_per_s\": %.2f, "
        "\"raw_gb_per_s\": %.2f, \"ours_cpu_s_per_gb\": %.3f, "
        "\"raw_cpu_s_per_gb\": %.3f}\n",
        check ? "true" : "false", theirs.Median() / ours.Median(),
        gigabytes / ours.Median(), gigabytes / theirs.Median(),
        ours.cpu_seconds / (kRepetitions * gigabytes),
        theirs.cpu_seconds / (kRepetitions * gigabytes));
  }
  return 0;
}

}  // namespace
}  // namespace atl::server

int main() { return atl::server::Main(); }
