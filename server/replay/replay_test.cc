// Replays from real servers, over loopback.

#include "server/replay/replay.h"

#include <cerrno>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/io/testing/fake_file_system.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "server/core/contribution_key.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

constexpr int kSlots = 3;
constexpr int64_t kManyBytes = int64_t{1} << 40;
constexpr int64_t kByte = 4096 + 5;  // Of a segment's first block.
std::string LogOf(int shard) {
  return TestCluster::Names(shard).log();
}

v1::Run MakeRun(int server_count) {
  v1::Run run = SmallRun();
  run.mutable_spec()->set_server_count(server_count);
  return run;
}

class ReplayTest : public testing::Test {
 protected:
  void Start(const v1::Run& run) {
    run_ = run;
    rounds_.clear();
    cluster_ =
        std::make_unique<TestCluster>(run, run.spec().server_count());
    ASSERT_TRUE(cluster_->StartAll().ok());
    ASSERT_TRUE(cluster_->Begin().ok());
    cut_.assign(cluster_->plan().version0().begin(),
                cluster_->plan().version0().end());
  }

  // One round of all fragments; their order alternates.
  void Play(int64_t version) {
    for (int32_t i = 0; i < 2; ++i) {
      PlayFragment(static_cast<int32_t>((i + version) % 2), version);
    }
  }

  void PlayFragment(int32_t f, int64_t version) {
    std::vector<v1::ContributionInfo> infos;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const std::vector<float> gradient = cluster_->Gradient(f, slot, version);
      infos.push_back(cluster_->Info(f, slot, version, gradient));
      ASSERT_TRUE(cluster_->Push(infos.back(), gradient).ok());
    }
    cluster_->AddSeal(f, version, infos);
    v1::ServerRunPlan& plan = cluster_->plan();
    v1::Seal& seal = *plan.mutable_seals(plan.seals_size() - 1);
    if (run_.spec().outer().merge().rule() == v1::MERGE_RULE_KIND_RDA) {
      AddVerdict(f, seal);
    }
    const auto digest = cluster_->WaitForPrepared(f, version);
    ASSERT_TRUE(digest.ok()) << digest.status();
    v1::Round& round = rounds_.emplace_back();
    round.set_commit_seq(cluster_->commit_seq() + 1);
    round.set_fragment(f);
    round.set_version(version + 1);
    *round.mutable_digest() = digest->ToProto();
    for (int i = 0; i < kSlots; ++i) {
      v1::RoundContribution& merged = *round.add_contributions();
      *merged.mutable_info() = infos[i];
      merged.set_weight(seal.contributions(i).weight());
      merged.set_outcome(v1::OUTCOME_MERGED);
    }
    round.add_contributions()->set_outcome(v1::OUTCOME_LATE);
    if (seal.has_verdict()) *round.mutable_verdict() = seal.verdict();
    ASSERT_TRUE(cluster_->Commit(f, version, *digest).ok());
    cut_[f].set_version(version + 1);
    cut_[f].set_commit_seq(round.commit_seq());
    *cut_[f].mutable_digest() = digest->ToProto();
  }

  // A verdict with a different factor for each tensor and contribution.
  void AddVerdict(int32_t f, v1::Seal& seal) {
    const auto& tensors = cluster_->layout().fragment_tensors(f);
    for (size_t t = 0; t < tensors.size(); ++t) {
      v1::CoefficientRow* row = seal.mutable_verdict()->add_rows();
      for (int i = 0; i < kSlots; ++i) {
        row->add_coefficients(0.1f * static_cast<float>(i + 1 + t));
      }
    }
    cluster_->Publish();
  }

  void Pin(int64_t bytes = kManyBytes) {
    v1::Pin& pin = *cluster_->plan().add_pins();
    pin.set_pin_id("audit");
    pin.set_commit_seq(cluster_->commit_seq() + 1);
    pin.set_keep_bytes_max(bytes);
    for (const v1::FragmentVersion& version : cut_) *pin.add_cut() = version;
    from_ = pin;
    rounds_.clear();
    cluster_->Publish();
  }

  absl::StatusOr<ReplayResult> Run(int threads = 1) {
    ParameterClientOptions options = MakeRunOptions(run_);
    options.channel.kind = rpc::ChannelKind::kData;
    auto parameters = MakeParameterClient(options, cluster_->layout());
    if (!parameters.ok()) return parameters.status();
    ShardRoutes routes;
    routes.placement_epoch = 1;
    for (int i = 0; i < run_.spec().server_count(); ++i) {
      v1::ShardPlacement& shard = routes.shards.emplace_back();
      shard.set_shard(i);
      shard.set_address(cluster_->server(i).address());
    }
    (*parameters)->SetRoutes(routes);
    KeptClientOptions kept_options;
    kept_options.run_id = run_.run_id();
    kept_options.shard_count = run_.spec().server_count();
    auto kept = KeptClient::Create(kept_options, cluster_->layout(), routes);
    if (!kept.ok()) return kept.status();
    ReplayOptions replay;
    replay.run = run_;
    replay.from = from_;
    replay.rounds = rounds_;
    replay.thread_count = threads;
    replay.bounds.deadline = absl::Now() + TestCluster::kPatience;
    return Replay(replay, cluster_->layout(), **parameters, **kept);
  }

  void ExpectAgreement(const absl::StatusOr<ReplayResult>& result) {
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->commits.size(), rounds_.size());
    EXPECT_EQ(result->first_difference(), nullptr)
        << "commit " << result->first_difference()->commit_seq;
    for (size_t i = 0; i < rounds_.size(); ++i) {
      const ReplayedCommit& commit = result->commits[i];
      EXPECT_EQ(commit.commit_seq, rounds_[i].commit_seq());
      EXPECT_EQ(commit.contribution_count, kSlots);
      EXPECT_EQ(commit.replayed, Digest128::FromProto(rounds_[i].digest()));
    }
    for (const ReplayedState& state : result->states) {
      EXPECT_TRUE(state.compared);
      EXPECT_EQ(state.element, -1);
    }
  }

  std::vector<std::string> Segments(int shard) {
    return *cluster_->fs(shard).List(LogOf(shard));
  }

  v1::Run run_;
  std::unique_ptr<TestCluster> cluster_;
  std::vector<v1::FragmentVersion> cut_;
  v1::Pin from_;
  std::vector<v1::Round> rounds_;
};

TEST_F(ReplayTest, TheVersionsAfterAPinComeOutAsTheyWereCommitted) {
  Start(MakeRun(2));
  Play(0);
  Pin();
  for (int64_t version = 1; version < 4; ++version) Play(version);
  for (const int threads : {1, 3}) {
    const auto result = Run(threads);
    ExpectAgreement(result);
    EXPECT_EQ(result->states.size(), 2u);
  }
}

TEST_F(ReplayTest, AnotherWeightIsFoundInItsCommit) {
  Start(MakeRun(2));
  Pin();
  for (int64_t version = 0; version < 3; ++version) Play(version);
  v1::Round& wrong = rounds_[2];
  const float weight = wrong.contributions(1).weight();
  wrong.mutable_contributions(1)->set_weight(
      std::nextafter(weight, 1.0f));
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  const ReplayedCommit* found = result->first_difference();
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->commit_seq, wrong.commit_seq());
  EXPECT_EQ(found->fragment, wrong.fragment());
  // The fragment's digest, and those of the shards with blocks of it.
  EXPECT_EQ(found->differences[0].shard, -1);
  EXPECT_GE(found->differences.size(), 2u);
  EXPECT_EQ(result->commits.size(), 5u);
}

TEST_F(ReplayTest, AByteThatHasChangedNamesTheContribution) {
  Start(MakeRun(2));
  Pin();
  Play(0);
  Play(1);
  for (const std::string& name : Segments(1)) {
    auto file = cluster_->fs(1).OpenForWrite(absl::StrCat(LogOf(1), "/", name));
    ASSERT_TRUE(file.ok());
    char byte;
    ASSERT_TRUE((*file)->ReadAt(kByte, absl::MakeSpan(&byte, 1)).ok());
    byte ^= 1;
    ASSERT_TRUE((*file)->WriteAt(kByte, absl::string_view(&byte, 1)).ok());
  }
  const auto result = Run();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(result.status().message().find(".seg"), std::string::npos)
      << result.status();
  EXPECT_NE(result.status().message().find("slot"), std::string::npos)
      << result.status();
}

TEST_F(ReplayTest, AContributionThatWasNotSealedIsFound) {
  Start(MakeRun(1));
  Pin();
  Play(0);
  rounds_[1].mutable_contributions(2)->mutable_info()->mutable_digest()
      ->set_low(7);
  const auto result = Run();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(result.status().message().find("was sealed"), std::string::npos)
      << result.status();
}

TEST_F(ReplayTest, WhatIsKeptOutlivesTheProcessAndThePower) {
  Start(MakeRun(2));
  Play(0);
  Pin();
  Play(1);
  cluster_->Stop(0);
  ASSERT_TRUE(cluster_->Start(0).ok());
  cluster_->CutPower(1);
  ASSERT_TRUE(cluster_->Start(1).ok());
  Play(2);
  ExpectAgreement(Run());
}

TEST_F(ReplayTest, AReleaseFreesTheSpaceAlsoAfterARestart) {
  for (const bool restarts : {false, true}) {
    SCOPED_TRACE(restarts);
    Start(MakeRun(1));
    Play(0);
    const size_t before = Segments(0).size();
    Pin();
    for (int64_t version = 1; version < 4; ++version) Play(version);
    // The next round's reservation may be missing.
    EXPECT_GE(Segments(0).size(), before + 2 * 2 * kSlots);
    if (restarts) {
      cluster_->Stop(0);
      cluster_->plan().clear_pins();
      ASSERT_TRUE(cluster_->Start(0).ok());
    } else {
      cluster_->plan().clear_pins();
      cluster_->Publish();
    }
    // Runs after the disk thread's earlier work.
    Play(4);
    EXPECT_LE(Segments(0).size(), before + 2 * kSlots);
    const auto gone = Run();
    EXPECT_EQ(gone.status().code(), absl::StatusCode::kOutOfRange)
        << gone.status();
  }
}

TEST_F(ReplayTest, WhatIsBeyondThePinsBytesIsNotKept) {
  Start(MakeRun(1));
  Pin();
  Play(0);
  cluster_->plan().mutable_pins(0)->set_keep_end(cluster_->commit_seq() + 1);
  cluster_->Publish();
  Play(1);
  const auto all = Run();
  EXPECT_EQ(all.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(all.status().message().find("not kept"), std::string::npos);
  rounds_.resize(2);
  ExpectAgreement(Run());
}

TEST_F(ReplayTest, AFullDiskTakesWhatIsKeptAndTheRunGoesOn) {
  Start(MakeRun(1));
  Pin();
  Play(0);
  Play(1);
  FakeFileSystem& fs = cluster_->fs(0);
  fs.SetFull();
  Play(2);
  Play(3);  // In the space of what was kept.
  const auto report = cluster_->WaitForReport(0, [](const auto& shard) {
    return shard.checkpoints_size() == 1;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->checkpoints(0).pin_id(), "audit");
  EXPECT_NE(report->checkpoints(0).fault().find("disk was full"),
            std::string::npos);
  for (const bool restarted : {false, true}) {
    if (restarted) {
      cluster_->Stop(0);
      ASSERT_TRUE(cluster_->Start(0).ok());
      ASSERT_TRUE(cluster_->WaitForPlan(0).ok());
    }
    const auto result = Run();
    EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_NE(result.status().message().find("disk was full"),
              std::string::npos)
        << result.status();
  }
}

TEST_F(ReplayTest, TooFewDescriptorsOrTooLittleMemoryTakesNothingThatIsKept) {
  Start(MakeRun(1));
  Pin();
  Play(0);
  int64_t version = 1;
  for (const int error_number : {EMFILE, ENOMEM}) {
    FakeFileSystem::Fault fault;
    fault.call = FakeFileSystem::Fault::Call::kWrite;
    fault.path_part = "/versions";
    fault.error_number = error_number;
    cluster_->fs(0).AddFault(fault);
    Play(version++);  // The write is tried again.
  }
  ExpectAgreement(Run());
}

TEST_F(ReplayTest, APinUnderTheIdOfOneThatWasGivenUpKeeps) {
  Start(MakeRun(1));
  Pin();
  Play(0);
  FakeFileSystem& fs = cluster_->fs(0);
  fs.SetFull();
  Play(1);
  Play(2);
  fs.SetCapacity(kManyBytes);
  // No plan in between lacks both pins.
  cluster_->plan().clear_pins();
  Pin();
  Play(3);
  ExpectAgreement(Run());
  EXPECT_TRUE(cluster_
                  ->WaitForReport(0,
                                  [](const v1::ShardReport& report) {
                                    return report.checkpoints_size() == 0;
                                  })
                  .ok());
}

TEST_F(ReplayTest, DecisionsThatDoNotFollowAreRefused) {
  Start(MakeRun(1));
  Pin();
  Play(0);
  Play(1);
  rounds_.erase(rounds_.begin() + 1);
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReplayTest, APullOfWhatMakesNoSenseIsRefused) {
  Start(MakeRun(2));
  Pin();
  Play(0);
  v1::PullKeptRequest good;
  good.set_run_id(run_.run_id());
  good.set_fragment(0);
  good.set_layout_fingerprint(cluster_->layout().fingerprint());
  *good.mutable_contribution() = rounds_[0].contributions(0).info().key();
  const auto stub = cluster_->Stub(0);
  const auto code = [&](void (*change)(v1::PullKeptRequest&)) {
    v1::PullKeptRequest request = good;
    change(request);
    grpc::ClientContext context;
    const auto stream = stub->PullKept(&context, request);
    v1::PullKeptResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish().error_code();
  };
  using Request = v1::PullKeptRequest;
  EXPECT_EQ(code([](Request&) {}), grpc::StatusCode::OK);
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  EXPECT_EQ(code([](Request& r) { r.clear_kept(); }), kInvalid);
  EXPECT_EQ(code([](Request& r) { r.set_fragment(-1); }), kInvalid);
  EXPECT_EQ(code([](Request& r) { r.set_fragment(1); }), kInvalid);
  EXPECT_EQ(code([](Request& r) { r.set_fragment(2); }), kInvalid);
  // An import's key.
  EXPECT_EQ(
      code([](Request& r) { r.mutable_contribution()->set_run_epoch(0); }),
      kInvalid);
  EXPECT_EQ(code([](Request& r) { r.mutable_range()->set_end(1 << 20); }),
            kInvalid);
  EXPECT_EQ(code([](Request& r) { r.mutable_range()->set_begin(-1); }),
            kInvalid);
  for (const int array : {-1, 1}) {
    good.mutable_state()->set_array(array);
    EXPECT_EQ(code([](Request&) {}), kInvalid);
  }
  good.mutable_state()->set_array(0);
  EXPECT_EQ(code([](Request&) {}), grpc::StatusCode::OK);
  EXPECT_EQ(code([](Request& r) { r.mutable_state()->set_version(-1); }),
            kInvalid);
  EXPECT_EQ(code([](Request& r) { r.mutable_state()->set_version(9); }),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(code([](Request& r) { r.set_shard(1); }),
            grpc::StatusCode::ABORTED);
  EXPECT_EQ(code([](Request& r) { r.set_run_id("nobody"); }),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code([](Request& r) {
              r.mutable_contribution()->set_run_epoch(1);
              r.mutable_contribution()->set_seq(77);
            }),
            grpc::StatusCode::OUT_OF_RANGE);
}

// --- Every rule --------------------------------------------------------------

struct Rule {
  std::string name;
  void (*change)(v1::RunSpec&);
};

class ReplayRuleTest : public ReplayTest,
                       public testing::WithParamInterface<Rule> {};

TEST_P(ReplayRuleTest, Agrees) {
  v1::Run run = MakeRun(3);
  GetParam().change(*run.mutable_spec());
  Start(run);
  Play(0);
  Pin();
  for (int64_t version = 1; version < 4; ++version) Play(version);
  const auto result = Run(2);
  ExpectAgreement(result);
}

void Adaptive(v1::RunSpec& spec, v1::OuterOptimizerKind kind) {
  v1::OuterSpec& outer = *spec.mutable_outer();
  outer.set_optimizer(kind);
  outer.set_learning_rate(0.01);
  outer.set_beta1(0.9);
  outer.set_beta2(0.99);
  outer.set_tau(1e-3);
}

void Exchange(v1::RunSpec& spec, v1::Codec up, v1::Codec down) {
  spec.mutable_exchange()->set_up(up);
  spec.mutable_exchange()->set_down(down);
  spec.mutable_exchange()->set_seed(99);
}

const Rule kRules[] = {
    {"Sgd",
     [](v1::RunSpec& spec) {
       spec.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_SGD);
     }},
    {"FedAvg",
     [](v1::RunSpec& spec) {
       spec.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_FEDAVG);
     }},
    {"FedAvgM",
     [](v1::RunSpec& spec) {
       spec.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_FEDAVGM);
     }},
    {"FedAdam",
     [](v1::RunSpec& spec) {
       Adaptive(spec, v1::OUTER_OPTIMIZER_KIND_FEDADAM);
     }},
    {"FedYogi",
     [](v1::RunSpec& spec) {
       Adaptive(spec, v1::OUTER_OPTIMIZER_KIND_FEDYOGI);
     }},
    {"FedAdagrad",
     [](v1::RunSpec& spec) {
       Adaptive(spec, v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD);
     }},
    {"DelayedNesterov",
     [](v1::RunSpec& spec) {
       v1::OuterSpec& outer = *spec.mutable_outer();
       outer.set_optimizer(v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV);
       outer.set_buffer_count(2);
       outer.set_momentum_share(0.25);
     }},
    {"Bf16",
     [](v1::RunSpec& spec) {
       Exchange(spec, v1::CODEC_BF16, v1::CODEC_BF16_STOCHASTIC);
     }},
    {"Int8",
     [](v1::RunSpec& spec) { Exchange(spec, v1::CODEC_INT8, v1::CODEC_BF16); }},
    {"StreamingE3m0",
     [](v1::RunSpec& spec) { Exchange(spec, v1::CODEC_E3M0, v1::CODEC_E3M0); }},
    {"TwoBit",
     [](v1::RunSpec& spec) {
       Exchange(spec, v1::CODEC_TWO_BIT, v1::CODEC_TWO_BIT);
     }},
    {"SparseLoCo",
     [](v1::RunSpec& spec) {
       Exchange(spec, v1::CODEC_TOP_K, v1::CODEC_TOP_K);
       spec.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_SGD);
     }},
    // Its blocks lie on several shards, beside those of parameters.
    {"Buffers",
     [](v1::RunSpec& spec) {
       spec.mutable_layout()->mutable_tensors(2)->set_tensor_class(
           v1::TENSOR_CLASS_BUFFER);
     }},
    {"BuffersOnly",
     [](v1::RunSpec& spec) {
       spec.mutable_layout()->mutable_tensors(1)->set_tensor_class(
           v1::TENSOR_CLASS_BUFFER);
       Adaptive(spec, v1::OUTER_OPTIMIZER_KIND_FEDADAM);
     }},
    {"Median",
     [](v1::RunSpec& spec) {
       Exchange(spec, v1::CODEC_INT8, v1::CODEC_F32);
       spec.mutable_outer()->mutable_merge()->set_rule(
           v1::MERGE_RULE_KIND_MEDIAN);
     }},
    {"TrimmedMean",
     [](v1::RunSpec& spec) {
       v1::MergeSpec& merge = *spec.mutable_outer()->mutable_merge();
       merge.set_rule(v1::MERGE_RULE_KIND_TRIMMED_MEAN);
       merge.set_byzantine_count(1);
     }},
    // With a verdict, a row for each tensor.
    {"Rda",
     [](v1::RunSpec& spec) {
       spec.mutable_outer()->mutable_merge()->set_rule(
           v1::MERGE_RULE_KIND_RDA);
     }},
};

INSTANTIATE_TEST_SUITE_P(AllRules, ReplayRuleTest, testing::ValuesIn(kRules),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace atl::server
