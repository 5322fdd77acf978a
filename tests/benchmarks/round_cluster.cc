#include "tests/benchmarks/round_cluster.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/status_macros.h"
#include "coordinator/client/client.h"
#include "tests/benchmarks/vectors.h"

namespace atl::benchmarks {
namespace {

constexpr int kColumns = 4096;  // Of the tensor; divides the vector's length.

v1::RunSpec MakeSpec(const ClusterOptions& options) {
  v1::RunSpec spec;
  v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
  spec.mutable_layout()->set_fragment_count(1);
  tensor.set_name("vector");
  tensor.add_shape(options.element_count / kColumns);
  tensor.add_shape(kColumns);
  tensor.set_dtype(v1::DATA_TYPE_F32);
  tensor.set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  spec.mutable_init()->set_seed(1);

  v1::ModelSpec& model = *spec.mutable_model();
  model.set_architecture("llama");
  model.set_vocab_size(2);
  model.set_hidden_size(2);
  model.set_intermediate_size(2);
  model.set_layer_count(1);
  model.set_head_count(1);
  model.set_kv_head_count(1);
  model.set_sequence_length(1);
  model.set_rope_theta(10000);
  model.set_rms_norm_eps(1e-5);

  v1::InnerSpec& inner = *spec.mutable_inner();
  inner.set_optimizer(v1::INNER_OPTIMIZER_KIND_SGD);
  inner.set_learning_rate(0.1);
  inner.set_final_learning_rate_fraction(1);
  inner.set_batch_size(1);

  v1::OuterSpec& outer = *spec.mutable_outer();
  outer.set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  outer.set_learning_rate(kLearningRate);
  outer.set_momentum(kMomentum);
  outer.set_weighting(v1::WEIGHTING_UNIFORM);

  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_timing(v1::TIMING_STRICT);
  schedule.set_inner_step_count(1);
  // One more than played, so that the run does not end during the benchmark.
  schedule.set_round_count(options.round_count + 1);
  schedule.set_island_count_min(options.island_count);
  schedule.set_min_quorum(options.island_count);
  schedule.mutable_lease_duration()->set_seconds(3600);

  v1::DataSpec& data = *spec.mutable_data();
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_path("/nowhere");
  data.set_data_shard_count(options.island_count);
  spec.mutable_evaluation()->set_batch_count(1);
  spec.set_durability(options.durability);
  *spec.mutable_exchange() = options.exchange;
  spec.set_server_count(1);
  return spec;
}

// Starts a service, waits until it serves and returns its address.
absl::StatusOr<std::string> StartService(const std::string& directory,
                                         const std::string& name,
                                         std::vector<std::string> command,
                                         std::unique_ptr<ChildProcess>& child) {
  const std::string port_file = absl::StrCat(directory, "/", name, ".port");
  command.push_back("--listen=127.0.0.1:0");
  command.push_back(absl::StrCat("--data-dir=", directory, "/", name));
  command.push_back(absl::StrCat("--port-file=", port_file));
  const std::string log = absl::StrCat(directory, "/", name, ".log");
  ASSIGN_OR_RETURN(child, ChildProcess::Start(command, log));
  const absl::Time deadline = absl::Now() + kPatience;
  while (absl::Now() < deadline && !child->Ended()) {
    std::ifstream file(port_file);
    int port = 0;
    if (file >> port && port > 0) return absl::StrCat("127.0.0.1:", port);
    absl::SleepFor(absl::Milliseconds(10));
  }
  std::ifstream file(log);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return absl::UnavailableError(absl::StrCat(name, " does not serve: ", text));
}

absl::Status CreateRun(const std::string& address,
                       const ClusterOptions& options) {
  coordinator::ClientOptions client_options;
  client_options.address = address;
  ASSIGN_OR_RETURN(auto client, coordinator::MakeClient(client_options));
  v1::CreateRunRequest request;
  request.set_run_id("round");
  *request.mutable_spec() = MakeSpec(options);
  return client->Call(&v1::RunService::Stub::CreateRun, request).status();
}

}  // namespace

void AddClusterFlags(flags::Command& app, ClusterFlags& flags) {
  const char* temporary = getenv("TEST_TMPDIR");
  flags.directory = temporary != nullptr ? temporary : "/tmp";
  app.Add("--dir", flags.directory, "Directory for the servers' files");
  app.Add("--coordinator-binary", flags.coordinator_binary, "");
  app.Add("--server-binary", flags.server_binary, "");
  app.Add("--role", flags.role).Hidden();
  app.Add("--index", flags.index).Hidden();
  app.Add("--coordinator", flags.coordinator).Hidden();
}

RoundCluster::~RoundCluster() {
  islands_.clear();
  server_.reset();
  coordinator_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::Status RoundCluster::Start(const ClusterOptions& options) {
  directory_ = options.directory;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat(directory_, ": ", error.message()));
  }
  ASSIGN_OR_RETURN(const auto init,
                   ChildProcess::Start({options.coordinator_binary, "init",
                                        absl::StrCat("--data-dir=", directory_,
                                                     "/coordinator")},
                                       directory_ + "/init.log"));
  while (!init->Ended()) absl::SleepFor(absl::Milliseconds(10));
  ASSIGN_OR_RETURN(const std::string address,
                   StartService(directory_, "coordinator",
                                {options.coordinator_binary}, coordinator_));
  RETURN_IF_ERROR(StartService(directory_, "server",
                               {options.server_binary, "--server-id=server-0",
                                absl::StrCat("--coordinator=", address)},
                               server_)
                      .status());
  RETURN_IF_ERROR(CreateRun(address, options));
  for (int i = 0; i < options.island_count; ++i) {
    std::vector<std::string> command = options.island_command;
    command.push_back(absl::StrCat("--index=", i));
    command.push_back(absl::StrCat("--coordinator=", address));
    ASSIGN_OR_RETURN(auto island, ChildProcess::Start(command));
    islands_.push_back(std::move(island));
  }
  for (const auto& island : islands_) {
    RETURN_IF_ERROR(island->Expect("ready", kPatience));
  }
  return absl::OkStatus();
}

absl::Status GiveAll(const Children& children, const std::string& order) {
  for (const auto& child : children) {
    RETURN_IF_ERROR(child->WriteLine(order));
  }
  return absl::OkStatus();
}

absl::Status ExpectAll(const Children& children, const std::string& answer) {
  for (const auto& child : children) {
    RETURN_IF_ERROR(child->Expect(answer, kPatience));
  }
  return absl::OkStatus();
}

absl::Status OrderAll(const Children& children, const std::string& order,
                      const std::string& answer) {
  RETURN_IF_ERROR(GiveAll(children, order));
  return ExpectAll(children, answer);
}

std::vector<pid_t> RoundCluster::pids() const {
  std::vector<pid_t> pids = {coordinator_->pid(), server_->pid()};
  for (const auto& island : islands_) pids.push_back(island->pid());
  return pids;
}

}  // namespace atl::benchmarks
