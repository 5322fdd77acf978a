// Fixture for tests of whole islands over a MemoryService. Everything else is
// real, on a file system that forgets unsynced writes.

#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"
#include "worker/api/run_island.h"
#include "worker/island/testing/memory_service.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {

class IslandFixture : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(testing::TempDir(), "/run_island_", ::getpid());
    std::filesystem::create_directories(directory_);
    data_path_ = WriteTinyText(directory_, 7, 20000);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  TinyRunOptions Tiny(int island_count) {
    TinyRunOptions options;
    options.island_count = island_count;
    options.data_path = data_path_;
    return options;
  }

  RunIslandOptions Options(const std::string& island_id) {
    RunIslandOptions options;
    // Nobody listens there: the coordinator is in memory. Without TLS an island
    // of this machine opens the data that the run names.
    options.coordinator_address = "127.0.0.1:1";
    options.run_id = "test";
    options.island_id = island_id;
    options.work_directory = "/work-" + island_id;
    options.join_patience = absl::Minutes(2);
    return options;
  }

  absl::StatusOr<IslandProgress> RunOne(MemoryService& service,
                                        const RunIslandOptions& options) {
    return RunOne(service, options, [&] { return service.run(); });
  }
  absl::StatusOr<IslandProgress> RunOne(
      MemoryService& service, const RunIslandOptions& options,
      const std::function<absl::StatusOr<v1::Run>()>& get_run) {
    const auto coordinator = service.MakeCoordinator();
    IslandLinks links;
    links.get_run = get_run;
    links.coordinator = coordinator.get();
    links.make_parameter_client = [&](const v1::Run&, const HeldLayout&) {
      return absl::StatusOr<std::unique_ptr<server::ParameterClient>>(
          service.MakeParameters());
    };
    links.file_system = file_system_;
    return RunIslandOver(options, links);
  }

  void RunAll(MemoryService& service, int count, int thread_count = 1) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        RunIslandOptions options =
            Options(std::string(1, static_cast<char>('a' + i)));
        options.thread_count = thread_count;
        // Slots follow the order of joins, so join one after the other.
        while (joined_ < i) std::this_thread::yield();
        options.on_progress = [&, i](const IslandProgress& progress) {
          if (progress.slot == i) {
            int expected = i;
            joined_.compare_exchange_strong(expected, i + 1);
          }
        };
        const auto result = RunOne(service, options);
        EXPECT_TRUE(result.ok()) << result.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    joined_ = 0;
  }

  // Runs island `island_id` to the run's end, killed after `action_count`
  // actions and restarted without unsynced writes. False if it does not end.
  bool RunKilledOnce(MemoryService& service, const std::string& island_id,
                     int action_count) {
    for (int lives = 0; lives < 40; ++lives) {
      std::stop_source kill;
      int left = lives == 0 ? action_count : 1000;
      RunIslandOptions options = Options(island_id);
      options.stop_at_once = kill.get_token();
      options.on_progress = [&](const IslandProgress&) {
        if (--left == 0) kill.request_stop();
      };
      const auto result = RunOne(service, options);
      // A run may complete while its last island dies.
      if (result.ok() || service.run().state() == v1::RUN_STATE_COMPLETED) {
        return true;
      }
      EXPECT_TRUE(absl::IsCancelled(result.status())) << result.status();
      files_.Crash();
    }
    return false;
  }

  FakeFileSystem files_;
  FileSystem* file_system_ = &files_;  // The islands'.
  std::string directory_;
  std::string data_path_;
  std::atomic<int> joined_ = 0;
};

}  // namespace atl::worker
