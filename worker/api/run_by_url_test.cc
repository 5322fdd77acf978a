// Whole islands whose data comes by URL, over an in-memory service.

#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/api/publish_data.h"
#include "worker/api/run_data.h"
#include "worker/api/run_island.h"
#include "worker/api/testing/island_fixture.h"
#include "worker/island/testing/memory_service.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {
namespace {

class RunByUrlTest : public IslandFixture {
 protected:
  void SetUp() override {
    IslandFixture::SetUp();
    published_ = absl::StrCat("file://", directory_, "/published");
    PublishOptions publish;
    publish.input = data_path_;
    publish.to = published_;
    publish.shard_bytes = 4096;
    const auto result = PublishData(publish);
    ASSERT_TRUE(result.ok()) << result.status();
  }

  v1::RunSpec Spec(const std::string& url) {
    TinyRunOptions tiny = Tiny(2);
    tiny.inner_step_count = 5;
    tiny.round_count = 3;
    v1::RunSpec spec = TinyRun(tiny);
    spec.mutable_data()->Clear();
    spec.mutable_data()->set_url(absl::StrCat(published_, "/manifest.json"));
    spec.mutable_data()->set_order(v1::DATA_ORDER_BY_FILE);
    spec.mutable_data()->set_data_shard_count(2);
    const absl::Status complete = CompleteDataByUrl(spec);
    EXPECT_TRUE(complete.ok()) << complete;
    spec.mutable_data()->set_url(url);
    return spec;
  }

  // The parameters at the end of a run of two islands on one machine.
  std::string Run(const std::string& url, const StoreOpener& open_store) {
    MemoryService service(Spec(url));
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      RunIslandOptions options =
          Options(std::string(1, static_cast<char>('a' + i)));
      options.data_cache_directory = directory_ + "/cache";
      options.open_data_store = open_store;
      // Slots follow the order of joins.
      while (joined_ < i) std::this_thread::yield();
      options.on_progress = [this, i](const IslandProgress& progress) {
        if (progress.slot != i) return;
        int expected = i;
        joined_.compare_exchange_strong(expected, i + 1);
      };
      threads.emplace_back([&service, options, this] {
        const auto result = RunOne(service, options);
        EXPECT_TRUE(result.ok()) << result.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    joined_ = 0;
    EXPECT_EQ(service.version(), 3);
    EXPECT_EQ(service.evaluations().size(), 3u);
    return service.parameters_sha256();
  }

  std::string published_;
};

TEST_F(RunByUrlTest, TheBitsOfARunDoNotDependOnHowDataCame) {
  const std::string local =
      Run(absl::StrCat(published_, "/manifest.json"), OpenStoreOfUrl);
  const StoreOpener fetch = [this](const std::string&, auto cancelled) {
    return OpenStoreOfUrl(published_, cancelled);
  };
  EXPECT_EQ(Run("s3://bucket/manifest.json", fetch), local);
  const StoreOpener away =
      [](const std::string&,
         auto) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    return absl::UnavailableError("away");
  };
  EXPECT_EQ(Run("s3://bucket/manifest.json", away), local) << "all is cached";
}

TEST_F(RunByUrlTest, AnIslandThatWaitsForDataLeavesWhenItIsStopped) {
  const v1::RunSpec spec = Spec("s3://bucket/manifest.json");
  MemoryService service(spec);
  std::stop_source stop;
  RunIslandOptions options = Options("a");
  options.data_cache_directory = directory_ + "/cache";
  options.stop = stop.get_token();
  // The manifest comes, and no other file.
  int opened = 0;
  options.open_data_store =
      [&](const std::string&,
          auto cancelled) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    if (++opened == 1) return OpenStoreOfUrl(published_, cancelled);
    stop.request_stop();
    return absl::UnavailableError("away");
  };
  std::thread other([&] {
    RunIslandOptions second = Options("b");
    second.data_cache_directory = directory_ + "/other_cache";
    second.stop = stop.get_token();
    second.open_data_store = [this](const std::string&, auto cancelled) {
      return OpenStoreOfUrl(published_, cancelled);
    };
    RunOne(service, second).status().IgnoreError();
  });
  const auto result = RunOne(service, options);
  other.join();
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_GE(service.leave_count(), 1);
}

}  // namespace
}  // namespace atl::worker
