#include "server/service/testing/test_cluster.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/codec/block_run.h"
#include "base/codec/codec.h"
#include "base/codec/f32_bytes.h"
#include "base/codec/sha256.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/rpc/channel.h"
#include "base/rpc/chunk_codec.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

constexpr int kSlots = 8;

RunLayout MakeLayout(const v1::Run& run) {
  auto layout = RunLayout::Create(run.spec().layout());
  CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

void AddTensor(v1::Layout* layout, const std::string& name, int64_t rows,
               int64_t columns, int32_t fragment, double stddev) {
  v1::TensorSpec* tensor = layout->add_tensors();
  tensor->set_name(name);
  tensor->add_shape(rows);
  tensor->add_shape(columns);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->set_fragment(fragment);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_NORMAL);
  tensor->mutable_init()->set_value(stddev);
}

}  // namespace

void SumChunk(v1::Chunk& chunk) {
  const rpc::ReceivedChunk parsed = rpc::FromProto(chunk);
  chunk.set_crc32c(rpc::ChunkCrc32c(parsed.header, parsed.payload));
}

v1::Run SmallRun() {
  v1::Run run;
  run.set_run_id("small");
  run.set_run_epoch(1);
  v1::RunSpec* spec = run.mutable_spec();
  v1::Layout* layout = spec->mutable_layout();
  layout->set_fragment_count(2);
  AddTensor(layout, "first", 100, 123, 0, 0.02);  // 4 blocks, the last short.
  AddTensor(layout, "second", 7, 11, 1, 0.5);     // One short block.
  AddTensor(layout, "third", 512, 600, 0, 1.0);   // 75 blocks.
  spec->mutable_init()->set_seed(42);
  v1::OuterSpec* outer = spec->mutable_outer();
  outer->set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  outer->set_learning_rate(0.7);
  outer->set_momentum(0.9);
  outer->set_weighting(v1::WEIGHTING_UNIFORM);
  spec->set_durability(v1::DURABILITY_MACHINE);
  return run;
}

TestCluster::TestCluster(const v1::Run& run, int server_count,
                         int merge_threads)
    : run_(run), layout_(MakeLayout(run)) {
  options_.data_dir = "data";
  options_.merge_thread_count = merge_threads;
  for (int i = 0; i < server_count; ++i) {
    nodes_.push_back(std::make_unique<Node>());
  }
  MakePlan();
}

void TestCluster::CreateAgain(const std::string& run_uid) {
  run_.set_run_uid(run_uid);
  plan_.Clear();
  MakePlan();
}

void TestCluster::MakePlan() {
  plan_.set_run_id(run_.run_id());
  plan_.set_run_uid(run_.run_uid());
  plan_.set_run_epoch(1);
  plan_.set_run_state(v1::RUN_STATE_STARTING);
  plan_.set_shard_count(static_cast<int32_t>(nodes_.size()));
  plan_.set_placement_epoch(1);
  plan_.set_layout_fingerprint(layout_.fingerprint());
  for (int slot = 0; slot < kSlots; ++slot) {
    v1::PlanMember* member = plan_.add_members();
    member->set_slot(slot);
    member->set_island_epoch(1);
    const codec::Sha256Digest hash = codec::ComputeSha256(Secret(slot));
    member->set_session_sha256(std::string(hash.begin(), hash.end()));
  }
}

void TestCluster::AddTwin() {
  twin_plan_ = plan_;
  twin_plan_->set_run_id(kTwin);
}

TestCluster::~TestCluster() {
  for (size_t i = 0; i < nodes_.size(); ++i) Stop(static_cast<int>(i));
}

std::string TestCluster::Secret(int32_t slot) {
  return std::string(32, static_cast<char>('a' + slot));
}

// --- Servers ----------------------------------------------------------------

void TestCluster::UseTls(
    std::function<rpc::TlsFiles(const std::string&)> issue) {
  options_.listener.tls = issue("atoll:server:server");
  for (int slot = 0; slot < kSlots; ++slot) {
    certificates_.push_back(issue(absl::StrCat("atoll:island:island-", slot)));
  }
}

rpc::ChannelOptions TestCluster::Channel(int32_t slot) const {
  rpc::ChannelOptions options;
  options.kind = rpc::ChannelKind::kData;
  options.peer_role = Role::kServer;
  if (!certificates_.empty()) options.tls = certificates_[slot];
  return options;
}

absl::Status TestCluster::StartAll() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    RETURN_IF_ERROR(Start(static_cast<int>(i)));
  }
  Publish();
  return absl::OkStatus();
}

absl::Status TestCluster::Start(int shard) {
  Node& node = *nodes_[shard];
  node.control = std::make_unique<coordinator::FakeServerControlClient>();
  node.metrics = std::make_unique<Metrics>();
  ParameterServer::Options options = options_;
  options.server_id = absl::StrCat("server-", shard);
  ASSIGN_OR_RETURN(
      node.server,
      ParameterServer::Start(
          options,
          {node.fs, *node.control,
           [this](const std::string& run_id) -> absl::StatusOr<v1::Run> {
             v1::Run run = run_;
             if (run_id == kTwin) run.set_run_id(kTwin);
             if (run_id == run.run_id()) return run;
             return absl::NotFoundError(run_id);
           },
           *node.metrics}));
  if (revision_ > 0) Publish();
  return absl::OkStatus();
}

void TestCluster::Stop(int shard) { nodes_[shard]->server.reset(); }

void TestCluster::CutPower(int shard) {
  Stop(shard);
  nodes_[shard]->fs.Crash();
}

ShardNames TestCluster::Names(int shard) {
  return ShardNames("data", SmallRun().run_id(), "", shard);
}

// --- Coordinator ------------------------------------------------------------

void TestCluster::Publish() {
  ++revision_;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->control == nullptr) continue;
    v1::ServerPlan plan = ServerPlan();
    *plan.add_runs() = plan_;
    if (twin_plan_.has_value()) *plan.add_runs() = *twin_plan_;
    for (v1::ServerRunPlan& run : *plan.mutable_runs()) {
      run.set_shard(static_cast<int32_t>(i));
    }
    nodes_[i]->control->SetPlan(std::move(plan));
  }
}

v1::ServerPlan TestCluster::ServerPlan() const {
  v1::ServerPlan plan;
  plan.set_revision(revision_);
  plan.set_coordinator_epoch(1);
  if (!log_.cluster_id().empty()) *plan.mutable_log() = log_;
  return plan;
}

void TestCluster::PublishWithoutRun(
    const std::optional<std::string>& deleted_uid) {
  ++revision_;
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node->control == nullptr) continue;
    v1::ServerPlan plan = ServerPlan();
    if (deleted_uid.has_value()) {
      v1::DeletedRun* deleted = plan.add_deleted_runs();
      deleted->set_run_id(run_.run_id());
      deleted->set_run_uid(*deleted_uid);
    }
    node->control->SetPlan(std::move(plan));
  }
}

absl::StatusOr<v1::ShardReport> TestCluster::WaitForReport(
    int shard, const std::function<bool(const v1::ShardReport&)>& done,
    bool twin) {
  const std::string run_id = twin ? kTwin : run_.run_id();
  coordinator::FakeServerControlClient& control = *nodes_[shard]->control;
  const absl::Time deadline = absl::Now() + kPatience;
  while (true) {
    const std::vector<v1::ReportShardsRequest> reports = control.reports();
    if (!reports.empty()) {
      for (const v1::ShardReport& report : reports.back().shards()) {
        if (report.run_id() == run_id && done(report)) return report;
      }
    }
    if (!control.WaitForReports(reports.size() + 1, deadline - absl::Now())) {
      return absl::DeadlineExceededError(absl::StrCat(
          "shard ", shard, ", last report: ",
          reports.empty() ? "none" : reports.back().ShortDebugString()));
    }
  }
}

absl::Status TestCluster::WaitForNoRun(int shard) {
  coordinator::FakeServerControlClient& control = *nodes_[shard]->control;
  const absl::Time deadline = absl::Now() + kPatience;
  while (true) {
    const std::vector<v1::ReportShardsRequest> reports = control.reports();
    if (!reports.empty() && reports.back().shards().empty()) {
      return absl::OkStatus();
    }
    if (!control.WaitForReports(reports.size() + 1, deadline - absl::Now())) {
      return absl::DeadlineExceededError(
          absl::StrCat("server ", shard, " still names a run"));
    }
  }
}

absl::Status TestCluster::WaitForPlan(int shard) {
  coordinator::FakeServerControlClient& control = *nodes_[shard]->control;
  const absl::Time deadline = absl::Now() + kPatience;
  while (true) {
    const std::vector<v1::ReportShardsRequest> reports = control.reports();
    if (!reports.empty() && reports.back().plan_revision() >= revision_) {
      return absl::OkStatus();
    }
    if (!control.WaitForReports(reports.size() + 1, deadline - absl::Now())) {
      return absl::DeadlineExceededError(
          absl::StrCat("server ", shard, " has not taken in plan ", revision_));
    }
  }
}

bool TestCluster::WaitForRegistrations(int shard, size_t count) {
  coordinator::FakeServerControlClient& control = *nodes_[shard]->control;
  const absl::Time deadline = absl::Now() + kPatience;
  while (control.registrations().size() < count) {
    const size_t seen = control.reports().size();
    if (!control.WaitForReports(seen + 1, deadline - absl::Now())) return false;
  }
  return true;
}

absl::Status TestCluster::Begin() {
  std::vector<Digest128> digests(layout_.fragment_count());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto initialized = [](const v1::ShardReport& report) {
      return report.initialized();
    };
    const int shard = static_cast<int>(i);
    ASSIGN_OR_RETURN(const v1::ShardReport report,
                     WaitForReport(shard, initialized));
    if (twin_plan_.has_value()) {
      RETURN_IF_ERROR(
          WaitForReport(shard, initialized, /*twin=*/true).status());
    }
    for (int f = 0; f < layout_.fragment_count(); ++f) {
      digests[f] += Digest128::FromProto(report.version0_digests(f));
    }
  }
  plan_.set_started(true);
  plan_.set_run_state(v1::RUN_STATE_ACTIVE);
  for (int f = 0; f < layout_.fragment_count(); ++f) {
    v1::FragmentVersion* version = plan_.add_version0();
    version->set_fragment(f);
    *version->mutable_digest() = digests[f].ToProto();
    plan_.add_open_rounds()->set_fragment(f);
  }
  if (twin_plan_.has_value()) AddTwin();
  Publish();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    RETURN_IF_ERROR(WaitForPlan(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

v1::Pin TestCluster::AddCheckpoint(const std::string& pin_id) {
  v1::Pin& pin = *plan_.add_pins();
  pin.set_pin_id(pin_id);
  pin.set_commit_seq(plan_.commit_seq() + 1);
  pin.set_checkpoint(true);
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    v1::FragmentVersion& version = *pin.add_cut();
    version.set_fragment(f);
    version.set_version(plan_.open_rounds(f).version());
    version.set_commit_seq(newest_commits_[f]);
  }
  Publish();
  return pin;
}

void TestCluster::Restore(const v1::Pin& pin) {
  plan_.set_run_epoch(plan_.run_epoch() + 1);
  plan_.set_commit_seq(plan_.commit_seq() + 1);
  v1::RestoredCut& restored = *plan_.mutable_restored();
  restored.set_commit_seq(plan_.commit_seq());
  restored.set_pin_id(pin.pin_id());
  *restored.mutable_cut() = pin.cut();
  plan_.clear_commits();
  plan_.clear_seals();
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    plan_.mutable_open_rounds(f)->set_version(pin.cut(f).version());
    newest_commits_[f] = pin.cut(f).commit_seq();
  }
  while (plan_.pins_size() > 0 && plan_.pins(plan_.pins_size() - 1).commit_seq() >
                                      pin.commit_seq()) {
    plan_.mutable_pins()->RemoveLast();
  }
  Publish();
}

absl::StatusOr<v1::ShardReport> TestCluster::WaitForRestore(int shard) {
  return WaitForReport(shard, [this](const v1::ShardReport& report) {
    return report.run_epoch() == plan_.run_epoch();
  });
}

void TestCluster::AddSeal(int32_t fragment, int64_t version,
                          std::vector<v1::ContributionInfo> infos,
                          int64_t attempt) {
  std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) {
    return a.key().slot() < b.key().slot();
  });
  v1::Seal* seal = plan_.add_seals();
  seal->set_fragment(fragment);
  seal->set_version(version);
  seal->set_attempt(attempt);
  for (const v1::ContributionInfo& info : infos) {
    v1::SealedContribution* sealed = seal->add_contributions();
    *sealed->mutable_key() = info.key();
    *sealed->mutable_digest() = info.digest();
    sealed->set_weight(1.0f / static_cast<float>(infos.size()));
  }
  Publish();
}

absl::StatusOr<Digest128> TestCluster::Seal(
    int32_t fragment, int64_t version, std::vector<v1::ContributionInfo> infos,
    int64_t attempt) {
  AddSeal(fragment, version, std::move(infos), attempt);
  return WaitForPrepared(fragment, version, attempt);
}

absl::StatusOr<Digest128> TestCluster::WaitForPrepared(int32_t fragment,
                                                       int64_t version,
                                                       int64_t attempt) {
  Digest128 digest;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (layout_
            .ShardBlocks(fragment, static_cast<int32_t>(i),
                         static_cast<int32_t>(nodes_.size()))
            .empty()) {
      continue;
    }
    const auto prepared = [&](const v1::ShardReport& report) {
      for (const v1::PreparedRound& round : report.prepared()) {
        if (round.fragment() == fragment && round.version() == version &&
            round.attempt() == attempt) {
          return true;
        }
      }
      return false;
    };
    ASSIGN_OR_RETURN(const v1::ShardReport report,
                     WaitForReport(static_cast<int>(i), prepared));
    for (const v1::PreparedRound& round : report.prepared()) {
      if (round.fragment() != fragment) continue;
      digest += Digest128::FromProto(round.digest());
    }
  }
  return digest;
}

void TestCluster::AddCommit(int32_t fragment, int64_t version,
                            const Digest128& digest, int64_t attempt) {
  v1::Commit* commit = plan_.add_commits();
  commit->set_commit_seq(plan_.commit_seq() + 1);
  commit->set_fragment(fragment);
  commit->set_version(version + 1);
  commit->set_attempt(attempt);
  *commit->mutable_digest() = digest.ToProto();
  for (const v1::Seal& seal : plan_.seals()) {
    if (seal.fragment() != fragment || seal.version() != version) continue;
    for (const v1::SealedContribution& sealed : seal.contributions()) {
      v1::ContributionOutcome* outcome = commit->add_outcomes();
      *outcome->mutable_key() = sealed.key();
      outcome->set_outcome(v1::OUTCOME_MERGED);
    }
  }
  plan_.set_commit_seq(commit->commit_seq());
  newest_commits_[fragment] = commit->commit_seq();
  for (v1::OpenRound& round : *plan_.mutable_open_rounds()) {
    if (round.fragment() == fragment) round.set_version(version + 1);
  }
}

absl::Status TestCluster::Commit(int32_t fragment, int64_t version,
                                 const Digest128& digest, int64_t attempt) {
  AddCommit(fragment, version, digest, attempt);
  Publish();
  const int64_t seq = plan_.commit_seq();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    RETURN_IF_ERROR(
        WaitForReport(static_cast<int>(i), [seq](
                                               const v1::ShardReport& report) {
          return report.persisted_commit_seq() >= seq;
        }).status());
  }
  // Plans leave out what all servers have persisted.
  plan_.clear_commits();
  plan_.clear_seals();
  return absl::OkStatus();
}

// --- Islands ----------------------------------------------------------------

std::vector<float> TestCluster::Gradient(int32_t fragment, int32_t slot,
                                         int64_t version) const {
  std::mt19937_64 random(1000003 * fragment + 1009 * slot + version);
  std::vector<float> gradient(layout_.fragment_element_count(fragment));
  for (float& value : gradient) {
    // A sum of four uniform numbers is nearly normal, and far cheaper.
    const uint64_t bits = random();
    const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) +
                         (bits >> 32 & 0xffff) + (bits >> 48);
    value = (static_cast<float>(sum) / 65536 - 2) * 0.17f;
  }
  return gradient;
}

v1::ContributionInfo TestCluster::Info(
    int32_t fragment, int32_t slot, int64_t version,
    const std::vector<float>& gradient) const {
  v1::ContributionInfo info;
  info.mutable_key()->set_run_epoch(plan_.run_epoch());
  info.mutable_key()->set_fragment(fragment);
  info.mutable_key()->set_slot(slot);
  info.mutable_key()->set_seq(version + 1);
  info.set_anchor_version(version);
  *info.mutable_digest() =
      ContributionDigest(Encode(fragment, gradient)).ToProto();
  info.set_codec(ToProto(UpCodec(run_.spec())));
  info.set_step_count(10);
  info.set_token_count(1000);
  return info;
}

absl::StatusOr<std::unique_ptr<ParameterClient>> TestCluster::Client(
    int32_t slot) {
  ParameterClientOptions options = MakeRunOptions(run_);
  options.shard_count = static_cast<int32_t>(nodes_.size());
  options.channel = Channel(slot);
  options.retry.initial_delay = absl::Milliseconds(5);
  options.retry.max_delay = absl::Milliseconds(100);
  ASSIGN_OR_RETURN(std::unique_ptr<ParameterClient> client,
                   MakeParameterClient(options, layout_));
  ShardRoutes routes;
  routes.placement_epoch = 1;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    v1::ShardPlacement placement;
    placement.set_shard(static_cast<int32_t>(i));
    if (nodes_[i]->server != nullptr) {
      placement.set_address(nodes_[i]->server->address());
    }
    routes.shards.push_back(placement);
  }
  client->SetRoutes(routes);
  client->SetIdentity({absl::StrCat("island-", slot), 1, Secret(slot)});
  return client;
}

std::vector<char> TestCluster::Encode(
    int32_t fragment, const std::vector<float>& gradient) const {
  const codec::Codec& codec = UpCodec(run_.spec());
  if (codec.id() == codec::CodecId::kF32) {  // May hold invalid values.
    const absl::Span<const char> bytes = codec::F32Bytes(gradient);
    return {bytes.begin(), bytes.end()};
  }
  const EncodedLayout layout(layout_, fragment, codec);
  const std::vector<int32_t> counts =
      layout.ElementCounts({0, layout_.fragment_block_count(fragment)});
  codec::BlockRun run;
  run.element_counts = counts;
  std::vector<char> encoded(layout.byte_count());
  const absl::Status status =
      codec::EncodeRun(codec, run, gradient, absl::MakeSpan(encoded));
  CHECK(status.ok()) << status;
  return encoded;
}

absl::Status TestCluster::Push(const v1::ContributionInfo& info,
                               const std::vector<float>& gradient,
                               absl::Duration patience) {
  return PushEncoded(info, Encode(info.key().fragment(), gradient), patience);
}

absl::Status TestCluster::PushEncoded(const v1::ContributionInfo& info,
                                      absl::Span<const char> encoded,
                                      absl::Duration patience) {
  ASSIGN_OR_RETURN(std::unique_ptr<ParameterClient> client,
                   Client(info.key().slot()));
  return client->Push(info, encoded, {absl::Now() + patience, {}}).status;
}

absl::Status TestCluster::Import(int32_t fragment,
                                 const std::vector<float>& elements) {
  ASSIGN_OR_RETURN(std::unique_ptr<ParameterClient> client, Client(0));
  return client->Import(fragment, elements, {absl::Now() + kPatience, {}})
      .status;
}

absl::StatusOr<std::vector<float>> TestCluster::Pull(int32_t fragment,
                                                     int64_t version,
                                                     int32_t slot) {
  ASSIGN_OR_RETURN(std::unique_ptr<ParameterClient> client, Client(slot));
  std::vector<float> elements(layout_.fragment_element_count(fragment));
  RETURN_IF_ERROR(client
                      ->Pull(fragment, version, std::nullopt,
                             absl::MakeSpan(elements),
                             {absl::Now() + kPatience, {}})
                      .status);
  return elements;
}

absl::StatusOr<int64_t> TestCluster::PullReplica(int32_t fragment,
                                                 int64_t version,
                                                 int64_t from_version,
                                                 std::vector<float>& replica) {
  ASSIGN_OR_RETURN(std::unique_ptr<ParameterClient> client, Client(0));
  replica.resize(layout_.fragment_element_count(fragment));
  RETURN_IF_ERROR(client
                      ->PullReplica(fragment, version, from_version,
                                    absl::MakeSpan(replica),
                                    {absl::Now() + kPatience, {}})
                      .status);
  return client->counters().received_payload_bytes;
}

absl::Status TestCluster::Round(int64_t version, int slots) {
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    std::vector<v1::ContributionInfo> infos;
    // The order of slots changes from round to round.
    for (int i = 0; i < slots; ++i) {
      const int32_t slot = static_cast<int32_t>((i + version) % slots);
      const std::vector<float> gradient = Gradient(f, slot, version);
      infos.push_back(Info(f, slot, version, gradient));
      RETURN_IF_ERROR(Push(infos.back(), gradient));
    }
    ASSIGN_OR_RETURN(const Digest128 digest, Seal(f, version, infos));
    RETURN_IF_ERROR(Commit(f, version, digest));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TestCluster::Sha256() {
  std::vector<float> model(layout_.element_count());
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    ASSIGN_OR_RETURN(const std::vector<float> elements,
                     Pull(f, plan_.open_rounds(f).version()));
    for (const int32_t t : layout_.fragment_tensors(f)) {
      const TensorPlace& tensor = layout_.tensors()[t];
      std::copy_n(elements.begin() + tensor.fragment_offset,
                  tensor.element_count, model.begin() + tensor.model_offset);
    }
  }
  return ParametersSha256(layout_, model);
}

std::unique_ptr<v1::ParameterService::Stub> TestCluster::Stub(int shard,
                                                              int32_t slot) {
  auto channel =
      rpc::MakeChannel(nodes_[shard]->server->address(), Channel(slot));
  CHECK(channel.ok()) << channel.status();
  return v1::ParameterService::NewStub(*channel);
}

v1::PushHeader TestCluster::Header(const v1::ContributionInfo& info,
                                   int shard) const {
  v1::PushHeader header;
  header.set_run_id(run_.run_id());
  header.set_island_id(absl::StrCat("island-", info.key().slot()));
  header.set_island_epoch(1);
  *header.mutable_info() = info;
  header.set_layout_fingerprint(layout_.fingerprint());
  header.set_placement_epoch(1);
  header.set_shard(shard);
  return header;
}

}  // namespace atl::server
