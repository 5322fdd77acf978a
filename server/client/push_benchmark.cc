// One-way push of a 256 MiB fragment over loopback, compared with a raw TCP
// socket that moves as many bytes: interleaved, medians. Receivers are separate
// processes. The server discards its messages, so this measures the client
// (cut, checksum, encode) and gRPC. Prints one JSON object a case.

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/parameter_service.grpc.pb.h"
#include "base/codec/f32_bytes.h"
#include "base/rpc/allocator.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/listener.h"
#include "base/sync/mutex.h"
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

class Sink;

struct Pushed {
  Mutex mutex;
  int64_t received_count = 0;  // Blocks.
  std::vector<Sink*> waiting;  // Have sent all that they had.
};

// Answers that everything is missing, and `stored` once all blocks came.
class Sink
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Sink(int64_t block_count, bool check, Pushed& pushed)
      : block_count_(block_count), check_(check), pushed_(pushed) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    v1::PushOuterGradientResponse response;
    if (!ok) {
      End();
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
      MutexLock lock(&pushed_.mutex);
      pushed_.received_count += chunk.header.block_count;
    }
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  void End() {
    std::vector<Sink*> ended;
    {
      MutexLock lock(&pushed_.mutex);
      pushed_.waiting.push_back(this);
      // A stream that opens after all blocks were sent has nothing to wait for.
      if (pushed_.received_count % block_count_ != 0) return;
      ended.swap(pushed_.waiting);
    }
    for (Sink* sink : ended) sink->SayStored();
  }

  void SayStored() {
    v1::PushOuterGradientResponse response;
    response.set_stored(true);
    answer_ = rpc::EncodeMessage(response);
    StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
  }

  const int64_t block_count_;
  const bool check_;
  Pushed& pushed_;
  bool started_ = false;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
};

class SinkService
    : public v1::ParameterService::WithRawCallbackMethod_PushOuterGradient<
          v1::ParameterService::Service> {
 public:
  SinkService(int64_t block_count, bool check)
      : block_count_(block_count), check_(check) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
  PushOuterGradient(grpc::CallbackServerContext*) override {
    return new Sink(block_count_, check_, pushed_);
  }

 private:
  Pushed pushed_;
  const int64_t block_count_;
  const bool check_;
};

// Runs `serve(port_out)` in a child process that dies with this one. Returns
// its id and the port that it wrote to `port_out`.
template <typename Serve>
std::pair<pid_t, int> Spawn(Serve serve) {
  int ends[2];
  Require(pipe(ends) == 0, "pipe");
  const pid_t child = fork();
  Require(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve(ends[1]);
    _exit(0);
  }
  int port = 0;
  Require(read(ends[0], &port, sizeof(port)) == sizeof(port), "a port");
  return {child, port};
}

void Tell(int port_out, int port) {
  Require(write(port_out, &port, sizeof(port)) == sizeof(port), "tell");
}

// Reads 1 MiB at a time; answers each `bytes` with one byte.
void ServeRaw(int port_out, int64_t bytes) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Require(bind(listener, generic, size) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, generic, &size) == 0,
          "listen");
  Tell(port_out, ntohs(address.sin_port));
  const int in = accept(listener, nullptr, nullptr);
  std::vector<char> buffer(1 << 20);
  while (true) {
    for (int64_t left = bytes; left > 0;) {
      const ssize_t count = read(in, buffer.data(), buffer.size());
      if (count <= 0) return;
      left -= count;
    }
    if (write(in, "k", 1) != 1) return;
  }
}

int ConnectTo(int port) {
  const int out = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  Require(
      connect(out, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
      "connect");
  return out;
}

void MoveRaw(int out, const char* data, int64_t bytes) {
  for (int64_t sent = 0; sent < bytes;) {
    const ssize_t count =
        write(out, data + sent, std::min<int64_t>(1 << 20, bytes - sent));
    Require(count > 0, "write");
    sent += count;
  }
  char answer;
  Require(read(out, &answer, 1) == 1, "an answer");
}

void ServeGrpc(int port_out, int64_t block_count, bool check) {
  SinkService service(block_count, check);
  rpc::RpcServer::Spec spec;
  spec.services = {&service};
  spec.message_bytes_max = rpc::kDataMessageBytesMax;
  spec.receive_window_bytes = 256 << 10;  // As a server.
  const auto server = *rpc::RpcServer::Start(spec);
  Tell(port_out, server->port());
  while (true) pause();
}

double CpuSeconds(pid_t other) {
  double seconds = 0;
  for (const pid_t pid : {getpid(), other}) {
    clockid_t clock;
    timespec time;
    Require(clock_getcpuclockid(pid, &clock) == 0 &&
                clock_gettime(clock, &time) == 0,
            "a clock");
    seconds += static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
  }
  return seconds;
}

int64_t PageFaults() {
  rusage usage = {};
  Require(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  return usage.ru_minflt;
}

struct Sample {
  std::vector<double> seconds;
  double cpu_seconds = 0;
  int64_t page_faults = 0;
  double Median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

template <typename Work>
void Take(Sample& sample, pid_t other, Work work) {
  const double cpu = CpuSeconds(other);
  const int64_t faults = PageFaults();
  const absl::Time begin = absl::Now();
  work();
  sample.seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
  sample.cpu_seconds += CpuSeconds(other) - cpu;
  sample.page_faults += PageFaults() - faults;
}

int Main() {
  rpc::TuneAllocator();
  v1::Layout spec;
  spec.set_fragment_count(1);
  v1::TensorSpec* tensor = spec.add_tensors();
  tensor->set_name("t");
  tensor->add_shape(kElements);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  const RunLayout layout = *RunLayout::Create(spec);
  const int64_t block_count = layout.fragment_block_count(0);
  // Forks before this process has threads.
  const auto raw = Spawn([](int out) { ServeRaw(out, kElements * 4); });
  const std::pair<pid_t, int> servers[] = {
      Spawn([&](int out) { ServeGrpc(out, block_count, false); }),
      Spawn([&](int out) { ServeGrpc(out, block_count, true); })};
  std::vector<float> elements(kElements);
  for (int64_t i = 0; i < kElements; ++i) elements[i] = static_cast<float>(i);
  const int raw_socket = ConnectTo(raw.second);
  for (const bool check : {false, true}) {
    const auto& server = servers[check ? 1 : 0];
    constexpr int kStreamCounts[] = {1, 2, 4, 8};
    std::vector<std::unique_ptr<ParameterClient>> clients;
    for (const int stream_count : kStreamCounts) {
      ParameterClientOptions options;
      options.run_id = "run";
      options.shard_count = 1;
      options.stream_count = stream_count;
      clients.push_back(*MakeParameterClient(options, layout));
      v1::ShardPlacement placement;
      placement.set_address(absl::StrCat("127.0.0.1:", server.second));
      clients.back()->SetRoutes({1, {placement}});
    }
    v1::ContributionInfo info;
    info.mutable_key()->set_seq(1);
    info.set_codec(v1::CODEC_F32);
    std::vector<Sample> ours(clients.size());
    Sample theirs;
    for (int i = -1; i < kRepetitions; ++i) {
      Sample warm_up;
      for (size_t c = 0; c < clients.size(); ++c) {
        Take(i < 0 ? warm_up : ours[c], server.first, [&] {
          const auto pushed =
              clients[c]->Push(info, codec::F32Bytes(elements), {});
          Require(pushed.status.ok(), "push");
        });
      }
      Take(i < 0 ? warm_up : theirs, raw.first, [&] {
        MoveRaw(raw_socket, reinterpret_cast<const char*>(elements.data()),
                kElements * 4);
      });
    }
    const double gigabytes = kElements * 4e-9;
    for (size_t c = 0; c < clients.size(); ++c) {
      std::printf(
          "{\"case\": \"push_one_way\", \"server_checks\": %s, "
          "\"streams\": %d, \"of_raw\": %.3f, \"ours_gb_per_s\": %.2f, "
          "\"raw_gb_per_s\": %.2f, \"ours_cpu_s_per_gb\": %.3f, "
          "\"raw_cpu_s_per_gb\": %.3f, \"page_faults_per_gb\": %.0f}\n",
          check ? "true" : "false", kStreamCounts[c],
          theirs.Median() / ours[c].Median(), gigabytes / ours[c].Median(),
          gigabytes / theirs.Median(),
          ours[c].cpu_seconds / (kRepetitions * gigabytes),
          theirs.cpu_seconds / (kRepetitions * gigabytes),
          static_cast<double>(ours[c].page_faults) /
              (kRepetitions * gigabytes));
    }
  }
  return 0;
}

}  // namespace
}  // namespace atl::server

int main() { return atl::server::Main(); }
