// Islands of several ranks and processes over an in-memory service; the rest is
// real. Processes are threads, each with its own world.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/file_system.h"
#include "base/io/forwarding_file_system.h"
#include "base/io/own_file.h"
#include "base/status/status_macros.h"
#include "gtest/gtest.h"
#include "worker/api/run_island.h"
#include "worker/api/testing/island_fixture.h"
#include "worker/collective/local/local_world.h"
#include "worker/engine/device/cpu_devices.h"
#include "worker/island/group/device.h"
#include "worker/island/group/island_world.h"
#include "worker/island/testing/memory_service.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {
namespace {

// The files of one process. The process dies when it opens, renames to or
// removes a file of this name for the `life`-th time.
class MortalFiles : public ForwardingFileSystem {
 public:
  MortalFiles(FileSystem& files, std::string ending, int life,
              std::function<void()> die)
      : ForwardingFileSystem(files),
        ending_(std::move(ending)),
        life_(life),
        die_(std::move(die)) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    RETURN_IF_ERROR(Live(path));
    return ForwardingFileSystem::OpenWritable(path, is_private);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    RETURN_IF_ERROR(Live(to));
    return ForwardingFileSystem::Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    RETURN_IF_ERROR(Live(path));
    return ForwardingFileSystem::Remove(path);
  }

 private:
  absl::Status Live(std::string path) {
    // A temporary file's name has a random part.
    const absl::string_view own = OwnFileName(path);
    if (own != path) path = absl::StrCat(own, ".tmp");
    if (!absl::EndsWith(path, ending_)) return absl::OkStatus();
    if (life_ > 0 && --life_ > 0) return absl::OkStatus();
    die_();
    return absl::UnavailableError("it is dead");
  }

  const std::string ending_;
  std::atomic<int> life_;  // 0: dead.
  const std::function<void()> die_;
};

// When a process dies, other than after some actions: see MortalFiles.
struct Death {
  std::string file;
  int life = 0;
};

class RunMeshTest : public IslandFixture {
 protected:
  // One attempt of an island with `mesh` in `process_count` processes. Process
  // `victim` stops at once when it begins action `action_count`.
  absl::StatusOr<IslandProgress> RunOnce(MemoryService& service,
                                         const std::string& mesh,
                                         int process_count, int victim = -1,
                                         int action_count = 1 << 30,
                                         const Death& death = {}) {
    const engine::Mesh parsed = *engine::Mesh::Parse(mesh);
    collective::LocalWorld world(parsed.rank_count());
    auto ranks = world.TakeRanks();
    const int each = parsed.rank_count() / process_count;
    std::vector<absl::StatusOr<IslandProgress>> ends(
        process_count, absl::UnknownError("not ended"));
    std::vector<std::thread> threads;
    for (int i = 0; i < process_count; ++i) {
      std::vector<std::unique_ptr<collective::Collective>> own;
      for (int r = i * each; r < (i + 1) * each; ++r) {
        own.push_back(std::move(ranks[r]));
      }
      threads.emplace_back([&, i, own = std::move(own)]() mutable {
        ends[i] = RunProcess(service, parsed, std::move(own),
                             process_count > 1,
                             i == victim ? action_count : 1 << 30,
                             i == victim ? death : Death());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 1; i < process_count; ++i) {
      EXPECT_EQ(ends[i].ok(), ends[0].ok()) << i << ": " << ends[i].status();
    }
    return ends[0];
  }

  absl::StatusOr<IslandProgress> RunProcess(
      MemoryService& service, const engine::Mesh& mesh,
      std::vector<std::unique_ptr<collective::Collective>> ranks,
      bool has_group, int action_count, const Death& death) {
    const auto world =
        has_group ? IslandWorld::Over(mesh, std::move(ranks))
                  : IslandWorld::Join({.mesh = mesh.ToString(),
                                       .micro_batch_count = micro_batch_count_},
                                      {}, absl::Minutes(2));
    if (!world.ok()) return world.status();
    const auto coordinator = service.MakeCoordinator();
    IslandLinks links;
    links.get_run = [&] { return absl::StatusOr<v1::Run>(service.run()); };
    links.coordinator = coordinator.get();
    links.make_parameter_client = [&](const v1::Run&,
                                      const HeldLayout& held) {
      return absl::StatusOr<std::unique_ptr<server::ParameterClient>>(
          service.MakeParameters(held));
    };
    std::stop_source kill;
    MortalFiles files(files_, death.file, death.life,
                      [&kill] { kill.request_stop(); });
    links.file_system = death.file.empty() ? file_system_ : &files;
    links.group = (*world)->group();
    links.make_trainer = [&](const engine::TrainerOptions& options) {
      return (*world)->MakeTrainer(options);
    };
    // Called when the ranks belong to the trainer.
    links.describe_device = [&] {
      return DescribeDevice(engine::CpuDevices(), (*world)->first_rank());
    };
    RunIslandOptions options = Options("a");
    options.stop_at_once = kill.get_token();
    std::atomic<int> left = action_count;
    options.on_progress = [&](const IslandProgress&) {
      if (--left == 0) kill.request_stop();
    };
    return RunIslandOver(options, links);
  }

  // The next run of the same name must not find this one's.
  void ForgetSaves() {
    const std::string directory = Options("a").work_directory;
    const auto names = files_.List(directory);
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      EXPECT_TRUE(files_.Remove(absl::StrCat(directory, "/", name)).ok());
    }
    EXPECT_TRUE(files_.SyncDirectory(directory).ok());
  }

  std::vector<std::string> SaveNames() {
    const auto names = files_.List(Options("a").work_directory);
    std::vector<std::string> saves;
    for (const std::string& name : names.ok() ? *names : saves) {
      if (!absl::EndsWith(name, ".tmp")) saves.push_back(name);
    }
    return saves;
  }

  std::string RunToEnd(const v1::RunSpec& spec, const std::string& mesh,
                       int process_count) {
    files_.Crash();
    MemoryService service(spec);
    const auto end = RunOnce(service, mesh, process_count);
    EXPECT_TRUE(end.ok()) << mesh << ": " << end.status();
    EXPECT_EQ(service.version(), spec.schedule().round_count());
    return service.parameters_sha256();
  }

  int micro_batch_count_ = 0;  // Of islands in one process; 0: default.
};

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    sum += d * d;
  }
  return std::sqrt(sum);
}

double LargestDifference(const std::vector<v1::Evaluation>& a,
                         const std::vector<v1::Evaluation>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    most = std::max(most, std::abs(a[i].loss() - b[i].loss()));
  }
  return most;
}

TEST_F(RunMeshTest, AMeshLearnsWhatOneRankLearns) {
  TinyRunOptions tiny = Tiny(1);
  tiny.inner_step_count = 5;
  const v1::RunSpec spec = TinyRun(tiny);
  MemoryService one(spec);
  ASSERT_TRUE(RunOne(one, Options("one")).ok());
  // AdamW amplifies rounding differences of sums in another order. The
  // reference is the same rank with its batch in parts.
  double distance = 0, difference = 0;
  for (const int parts : {2, 4}) {
    files_.Crash();
    micro_batch_count_ = parts;
    MemoryService service(spec);
    ASSERT_TRUE(RunOnce(service, "", 1).ok());
    distance =
        std::max(distance, Distance(service.parameters(), one.parameters()));
    difference = std::max(difference, LargestDifference(service.evaluations(),
                                                        one.evaluations()));
  }
  micro_batch_count_ = 0;
  EXPECT_GT(distance, 0);
  for (const std::string mesh : {"dp_shard=2", "dp_replicate=2", "tp=2"}) {
    files_.Crash();
    MemoryService service(spec);
    ASSERT_TRUE(RunOnce(service, mesh, 1).ok());
    const double of_mesh = Distance(service.parameters(), one.parameters());
    const double of_losses =
        LargestDifference(service.evaluations(), one.evaluations());
    std::cout << mesh << ": parameters " << of_mesh << " of " << distance
              << ", losses " << of_losses << " of " << difference << std::endl;
    EXPECT_LE(of_mesh, 4 * distance) << mesh;
    // Losses travel in f32.
    EXPECT_LE(of_losses, 4 * difference + 1e-6) << mesh;
  }
}

// A local checkpoint holds elements, not ranks: another mesh or process count
// can continue from it. The remaining difference is rounding of sums, far less
// than a loss of optimizer state would cause.
TEST_F(RunMeshTest, ASaveUnderOneMeshGoesOnUnderAnother) {
  TinyRunOptions tiny = Tiny(1);
  tiny.inner_step_count = 4;
  const v1::RunSpec spec = TinyRun(tiny);
  MemoryService undisturbed(spec);
  ASSERT_TRUE(RunOnce(undisturbed, "dp_shard=2", 2).ok());
  const auto distance_after = [&](int before, int after, bool forget) {
    ForgetSaves();
    MemoryService service(spec);
    // While it writes the second local checkpoint.
    const Death death = {
        before == 1 ? "a.save.tmp" : "0-of-2.save.next.tmp", 2};
    const auto first =
        RunOnce(service, "dp_shard=2", before, 0, 1 << 30, death);
    EXPECT_FALSE(first.ok());
    EXPECT_GT(service.version(), 0);
    files_.Crash();
    if (forget) ForgetSaves();
    const auto end = RunOnce(service, "tp=2", after);
    EXPECT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(service.version(), spec.schedule().round_count());
    return Distance(service.parameters(), undisturbed.parameters());
  };
  const double forgotten = distance_after(2, 2, /*forget=*/true);
  for (const auto& [before, after] :
       {std::pair(2, 2), std::pair(2, 1), std::pair(1, 2)}) {
    const double loaded = distance_after(before, after, /*forget=*/false);
    std::cout << before << " processes, then " << after << ": with the save "
              << loaded << ", without " << forgotten << std::endl;
    EXPECT_LT(loaded, 0.01 * forgotten);
  }
}

struct Exchange {
  v1::Codec codec = v1::CODEC_F32;
  bool feedback = false;
  bool streaming = false;
};

class ProcessesTest : public RunMeshTest,
                      public testing::WithParamInterface<Exchange> {
 protected:
  v1::RunSpec Spec() {
    TinyRunOptions tiny = Tiny(1);
    tiny.fragment_count = 2;
    tiny.inner_step_count = 4;
    v1::RunSpec spec = TinyRun(tiny);
    spec.mutable_exchange()->set_up(GetParam().codec);
    spec.mutable_exchange()->set_error_feedback(GetParam().feedback);
    spec.mutable_exchange()->set_seed(11);
    if (GetParam().streaming) {
      spec.mutable_schedule()->set_fragment_schedule(
          v1::FRAGMENT_SCHEDULE_STAGGERED);
      spec.mutable_schedule()->set_overlap_step_count(1);
      spec.mutable_schedule()->set_blend(0.5);
    }
    return spec;
  }
};

// The placement of ranks changes neither steps, encodings nor the merge.
TEST_P(ProcessesTest, ProcessesChangeNoBit) {
  const v1::RunSpec spec = Spec();
  const std::string one = RunToEnd(spec, "dp_shard=4", 1);
  EXPECT_EQ(RunToEnd(spec, "dp_shard=4", 2), one);
  EXPECT_EQ(RunToEnd(spec, "dp_shard=4", 4), one);
  // A control: the comparison can fail. Two bits hide how sums are rounded.
  if (GetParam().codec == v1::CODEC_F32) {
    EXPECT_NE(RunToEnd(spec, "dp_shard=2", 1), one);
  }
}

// A dead process ends the attempt of all; the next attempt continues from the
// files of all, with the same bits, or starts anew if they do not agree.
TEST_P(ProcessesTest, TheIslandComesBackWhenAProcessDies) {
  const v1::RunSpec spec = Spec();
  const std::string undisturbed = RunToEnd(spec, "dp_shard=2", 2);
  for (const int victim : {0, 1}) {
    for (const int life : {3, 9, 14}) {
      files_.Crash();
      MemoryService service(spec);
      const auto first = RunOnce(service, "dp_shard=2", 2, victim, life);
      EXPECT_FALSE(first.ok());
      files_.Crash();
      const auto second = RunOnce(service, "dp_shard=2", 2);
      ASSERT_TRUE(second.ok()) << second.status();
      EXPECT_EQ(service.version(), spec.schedule().round_count());
      EXPECT_EQ(service.parameters_sha256(), undisturbed)
          << "process " << victim << " died after " << life << " actions";
    }
  }
}

// Killed during writes: only some processes have the next file, or renamed it.
TEST_P(ProcessesTest, TheBitsAreTheSameWhicheverSaveIsTheLastOfADeadProcess) {
  const v1::RunSpec spec = Spec();
  const std::string undisturbed = RunToEnd(spec, "dp_shard=2", 2);
  for (const int victim : {0, 1}) {
    const std::string save = absl::StrCat(victim, "-of-2.save");
    for (const std::string& file : {save + ".next.tmp", save}) {
      for (const int life : {1, 2, 3}) {
        ForgetSaves();
        MemoryService service(spec);
        const auto first = RunOnce(service, "dp_shard=2", 2, victim, 1 << 30,
                                   {file, life});
        EXPECT_FALSE(first.ok());
        files_.Crash();
        const auto second = RunOnce(service, "dp_shard=2", 2);
        ASSERT_TRUE(second.ok()) << second.status();
        EXPECT_EQ(service.parameters_sha256(), undisturbed)
            << "process " << victim << " died when it made " << file
            << ", the " << life << ". time";
      }
    }
  }
}

// A local checkpoint holds elements, so placement does not matter. The mesh is
// the same, so sums and all bits are too.
TEST_P(ProcessesTest, AnotherNumberOfProcessesGoesOnWithTheSameBits) {
  const v1::RunSpec spec = Spec();
  const std::string undisturbed = RunToEnd(spec, "dp_shard=4", 2);
  struct Change {
    int before = 1, after = 1;
  };
  for (const auto& [before, after] :
       {Change{2, 1}, Change{1, 2}, Change{4, 2}, Change{2, 4}}) {
    for (const int life : {14, 18}) {
      SCOPED_TRACE(absl::StrCat(before, " processes, then ", after,
                                ", after ", life, " actions"));
      ForgetSaves();
      MemoryService service(spec);
      ASSERT_FALSE(RunOnce(service, "dp_shard=4", before, 0, life).ok());
      files_.Crash();
      ASSERT_FALSE(SaveNames().empty());
      ASSERT_FALSE(RunOnce(service, "dp_shard=4", after, 0, life).ok());
      files_.Crash();
      // And back again, from files that the others wrote or left. A run may
      // complete while its last island dies.
      if (service.run().state() != v1::RUN_STATE_COMPLETED) {
        const auto end = RunOnce(service, "dp_shard=4", before);
        ASSERT_TRUE(end.ok()) << end.status();
      }
      EXPECT_EQ(service.version(), spec.schedule().round_count());
      EXPECT_EQ(service.parameters_sha256(), undisturbed);
    }
  }
}

// Files of another process count are removed once newer ones exist, not before.
TEST_P(ProcessesTest, OfOtherNumbersOfProcessesNoSaveIsLeft) {
  const v1::RunSpec spec = Spec();
  for (const auto& [before, after] : {std::pair(2, 1), std::pair(1, 4)}) {
    ForgetSaves();
    MemoryService service(spec);
    ASSERT_FALSE(RunOnce(service, "dp_shard=4", before, 0, 14).ok());
    files_.Crash();
    ASSERT_FALSE(SaveNames().empty());
    const auto end = RunOnce(service, "dp_shard=4", after);
    ASSERT_TRUE(end.ok()) << end.status();
    int save_count = 0;
    for (const std::string& name : SaveNames()) {
      save_count += absl::EndsWith(name, ".save");
      EXPECT_EQ(absl::StrContains(name, "-of-4"), after == 4) << name;
      EXPECT_FALSE(absl::StrContains(name, "-of-2")) << name;
    }
    EXPECT_EQ(save_count, after);
  }
}

// If a process's file is missing or torn, the island joins as new.
TEST_P(ProcessesTest, ASaveThatIsNotWholeIsNoneForAnotherNumber) {
  const v1::RunSpec spec = Spec();
  const std::string undisturbed = RunToEnd(spec, "dp_shard=4", 2);
  const auto end_after = [&](const std::function<void()>& harm) {
    ForgetSaves();
    MemoryService service(spec);
    // While it writes the third local checkpoint.
    EXPECT_FALSE(RunOnce(service, "dp_shard=4", 2, 0, 1 << 30,
                         {"0-of-2.save.next.tmp", 3})
                     .ok());
    files_.Crash();
    harm();
    const auto end = RunOnce(service, "dp_shard=4", 1);
    EXPECT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(service.version(), spec.schedule().round_count());
    return service.parameters_sha256();
  };
  const auto each_of_process_1 =
      [&](const std::function<void(const std::string& path)>& harm) {
        int count = 0;
        for (const std::string& name : SaveNames()) {
          if (!absl::StrContains(name, "1-of-2")) continue;
          harm(absl::StrCat(Options("a").work_directory, "/", name));
          ++count;
        }
        EXPECT_GT(count, 0);
      };
  const std::string forgotten = end_after([&] { ForgetSaves(); });
  EXPECT_EQ(end_after([] {}), undisturbed);
  const auto remove = [&](const std::string& path) {
    EXPECT_TRUE(files_.Remove(path).ok());
  };
  EXPECT_EQ(end_after([&] { each_of_process_1(remove); }), forgotten);
  const auto tear = [&](const std::string& path) {
    const auto file = *files_.OpenForWrite(path);
    const int64_t last = *file->Size() - 1;
    char byte = 0;
    ASSERT_TRUE(file->ReadAt(last, absl::MakeSpan(&byte, 1)).ok());
    byte = static_cast<char>(byte ^ 1);
    ASSERT_TRUE(file->WriteAt(last, absl::string_view(&byte, 1)).ok());
  };
  EXPECT_EQ(end_after([&] { each_of_process_1(tear); }), forgotten);
  EXPECT_NE(forgotten, undisturbed);
}

// Killed when its own file is complete and the other one's still exists: any
// process uses the newer one.
TEST_P(ProcessesTest, OfTwoNumbersOfProcessesTheNewerSaveIsUsed) {
  const v1::RunSpec spec = Spec();
  const std::string undisturbed = RunToEnd(spec, "dp_shard=4", 2);
  for (const int after : {1, 2}) {
    ForgetSaves();
    MemoryService service(spec);
    ASSERT_FALSE(RunOnce(service, "dp_shard=4", 2, 0, 1 << 30,
                         {"0-of-2.save.next.tmp", 2})
                     .ok());
    files_.Crash();
    ASSERT_FALSE(RunOnce(service, "dp_shard=4", 1, 0, 1 << 30,
                         {"-of-2.save", 1})
                     .ok());
    files_.Crash();
    const std::vector<std::string> names = SaveNames();
    for (const char* name : {"test.a.save", "test.a.0-of-2.save"}) {
      EXPECT_TRUE(absl::c_linear_search(names, name)) << name;
    }
    const auto end = RunOnce(service, "dp_shard=4", after);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(service.parameters_sha256(), undisturbed) << after;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Exchanges, ProcessesTest,
    testing::Values(Exchange{}, Exchange{v1::CODEC_TWO_BIT, true},
                    Exchange{v1::CODEC_INT8, true, true}));

}  // namespace
}  // namespace atl::worker
